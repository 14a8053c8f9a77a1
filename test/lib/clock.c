/* What the clocks of a process say, off by what a file says: loaded before libc (LD_PRELOAD).
 *
 * The file, CLOCK_FILE, which is named when this is compiled, since the edge is given no variable of
 * a test's, has two 64-bit numbers of nanoseconds: by how much the wall's clock is off, and by how
 * much CLOCK_BOOTTIME is. CLOCK_MONOTONIC is left alone. So a step of the wall's clock is the first
 * number changed, and a machine that slept is both: the wall's clock went on, and no monotonic time
 * passed.
 *
 * The file is mapped when the process starts, so one that may open nothing later (the edge in its
 * sandbox) follows as well. Nothing of the machine is changed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *offsets;

__attribute__((constructor)) static void map_offsets(void) {
    int fd = open(CLOCK_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *map = mmap(NULL, 2 * sizeof *offsets, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) offsets = map;
    close(fd);
}

static int64_t offset_of(clockid_t id) {
    if (!offsets) return 0;
    switch (id) {
        case CLOCK_REALTIME:
        case CLOCK_REALTIME_COARSE:
        case CLOCK_TAI: return offsets[0];
        case CLOCK_BOOTTIME: return offsets[1];
        default: return 0;
    }
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, id, at);
    int64_t offset = result == 0 ? offset_of(id) : 0;
    if (offset == 0) return result;
    int64_t ns = at->tv_nsec + offset % SECOND;
    at->tv_sec += offset / SECOND;
    if (ns < 0) {
        ns += SECOND;
        at->tv_sec -= 1;
    } else if (ns >= SECOND) {
        ns -= SECOND;
        at->tv_sec += 1;
    }
    at->tv_nsec = ns;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    if (result == 0) {
        at->tv_sec = now.tv_sec;
        at->tv_usec = now.tv_nsec / 1000;
    }
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
