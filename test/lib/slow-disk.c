/* A disk that is slow to keep what was written: fdatasync and fsync take their time, now and then a
 * very long one. Loaded before libc (LD_PRELOAD). SYNC_MS, LONG_SYNC_MS and LONG_ONE_IN are named
 * when this is compiled. Nothing of the machine is changed. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void take_time(void) {
    static atomic_uint syncs;
    int is_long = atomic_fetch_add(&syncs, 1) % LONG_ONE_IN == LONG_ONE_IN - 1;
    long ms = is_long ? LONG_SYNC_MS : SYNC_MS;
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&wait, NULL);
}

int fdatasync(int fd) {
    take_time();
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    take_time();
    return (int)syscall(SYS_fsync, fd);
}
