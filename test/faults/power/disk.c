// A disk whose power can be cut: one file, served by FUSE, for a loop device to stand on.
//
//     disk FILE BYTES     mounts itself over the empty file FILE; takes commands on stdin
//
// It holds what a disk holds: the content that a flush has made safe, and the writes since then, in
// order, in its volatile cache. A cut keeps the first and a choice of the second. The kernel's own
// protocol (linux/fuse.h) is spoken by hand, so that nothing but a C compiler is needed.
//
//   cut STYLE PERCENT SEED   takes the content after a power cut now, atomically: nothing of it
//                            changes by what comes later. STYLE is what of the cache is kept:
//                              none; all; prefix: the first PERCENT; writes, sectors: each write or
//                              each sector of one with this chance
//                            answers `cut WRITES KEPT`, counted in writes, or in sectors
//   restore                  the disk has that content from now on; to be called while unmounted
//   fail                     writes and flushes fail with EIO from now on, until `restore` or `heal`
//   heal
//   hold                     nothing is answered from now on, until `go`
//   go
//   stats                    answers `stats WRITES FLUSHES CACHED`
//   (end of stdin)           unmounts and ends
//
// One thread: between two requests of the kernel nothing is half done. It is no real disk: a sector
// is written whole or not at all, and what was flushed never rots.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECTOR = 512, WRITE_MAX = 1 << 20, BUFFER = WRITE_MAX + 65536, LINE_MAX_BYTES = 256 };

struct write {
    uint64_t offset;
    uint32_t size;
    char *data;
};

static uint64_t bytes;
static char *now, *safe, *after;
static struct write *cache;
static size_t cached, cache_room;
static uint64_t writes, flushes;
static int failing, holding;
static uint64_t seed;
static int fuse_fd;
static const char *file;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void *room(void *old, size_t size) {
    void *new = realloc(old, size);
    if (!new) die("realloc");
    return new;
}

// xorshift64* (Sebastiano Vigna, public domain).
static int chance(unsigned percent) {
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (seed * 2685821657736338717ULL >> 33) % 100 < percent;
}

static void answer(uint64_t unique, int error, const void *body, size_t size) {
    static char out[BUFFER];
    struct fuse_out_header head = { sizeof head + size, -error, unique };
    memcpy(out, &head, sizeof head);
    if (size) memcpy(out + sizeof head, body, size);
    // ENOENT: whoever asked has gone meanwhile.
    if (write(fuse_fd, out, head.len) < 0 && errno != ENOENT) die("answer");
}

static void on_init(uint64_t unique, const struct fuse_init_in *in) {
    struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION, .minor = 31,
        .max_readahead = in->max_readahead, .max_write = WRITE_MAX, .max_pages = WRITE_MAX / 4096,
        .max_background = 64, .congestion_threshold = 48, .time_gran = 1,
        .flags = FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO };
    answer(unique, 0, &out, sizeof out);
}

static void on_attr(uint64_t unique) {
    struct fuse_attr_out out = { .attr_valid = 3600, .attr = { .ino = FUSE_ROOT_ID, .size = bytes,
        .blocks = bytes / SECTOR, .mode = S_IFREG | 0600, .nlink = 1, .blksize = 4096 } };
    answer(unique, 0, &out, sizeof out);
}

static void on_open(uint64_t unique) {
    // No cache of the kernel's own in between: a write is here when it is answered.
    struct fuse_open_out out = { .open_flags = FOPEN_DIRECT_IO };
    answer(unique, 0, &out, sizeof out);
}

static void on_read(uint64_t unique, const struct fuse_read_in *in) {
    uint64_t left = in->offset < bytes ? bytes - in->offset : 0;
    answer(unique, 0, now + in->offset, in->size < left ? in->size : left);
}

static void on_write(uint64_t unique, const struct fuse_write_in *in) {
    struct fuse_write_out out = { .size = in->size };
    if (failing) return answer(unique, EIO, NULL, 0);
    if (in->offset > bytes || in->size > bytes - in->offset) return answer(unique, ENOSPC, NULL, 0);
    if (cached == cache_room) {
        cache_room = cache_room ? 2 * cache_room : 1024;
        cache = room(cache, cache_room * sizeof *cache);
    }
    struct write *new = &cache[cached++];
    *new = (struct write){ in->offset, in->size, room(NULL, in->size) };
    memcpy(new->data, in + 1, in->size);
    memcpy(now + in->offset, new->data, in->size);
    writes++;
    answer(unique, 0, &out, sizeof out);
}

static void forget_cache(void) {
    for (size_t i = 0; i < cached; i++) free(cache[i].data);
    cached = 0;
}

static void on_flush(uint64_t unique) {
    if (failing) return answer(unique, EIO, NULL, 0);
    for (size_t i = 0; i < cached; i++)
        memcpy(safe + cache[i].offset, cache[i].data, cache[i].size);
    forget_cache();
    flushes++;
    answer(unique, 0, NULL, 0);
}

static void on_request(const char *request) {
    const struct fuse_in_header *head = (const void *)request;
    const void *in = head + 1;
    switch (head->opcode) {
    case FUSE_INIT: return on_init(head->unique, in);
    case FUSE_GETATTR:
    case FUSE_SETATTR: return on_attr(head->unique);
    case FUSE_OPEN: return on_open(head->unique);
    case FUSE_READ: return on_read(head->unique, in);
    case FUSE_WRITE: return on_write(head->unique, in);
    case FUSE_FSYNC: return on_flush(head->unique);
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_DESTROY: return answer(head->unique, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: return;
    default: return answer(head->unique, ENOSYS, NULL, 0);
    }
}

static void cut(const char *style, unsigned percent) {
    size_t kept = 0, all = cached;
    memcpy(after, safe, bytes);
    if (strcmp(style, "none") == 0) percent = 0;
    if (strcmp(style, "all") == 0) percent = 100;
    int by_sector = strcmp(style, "sectors") == 0, by_write = strcmp(style, "writes") == 0;
    if (by_sector) all = 0;
    for (size_t i = 0; i < cached; i++) {
        struct write w = cache[i];
        uint32_t piece = by_sector ? SECTOR : w.size;
        for (uint32_t from = 0; from < w.size; from += piece) {
            if (by_sector) all++;
            if (by_sector || by_write ? !chance(percent) : i * 100 >= cached * percent) continue;
            uint32_t size = w.size - from < piece ? w.size - from : piece;
            memcpy(after + w.offset + from, w.data + from, size);
            kept++;
        }
    }
    printf("cut %zu %zu\n", all, kept);
}

static void restore(void) {
    forget_cache();
    memcpy(now, after, bytes);
    memcpy(safe, after, bytes);
    failing = 0;
    printf("restored\n");
}

static void on_command(const char *line) {
    char style[16];
    unsigned percent;
    unsigned long long number;
    if (sscanf(line, "cut %15s %u %llu", style, &percent, &number) == 3) {
        seed = number * 2 + 1;
        cut(style, percent);
    } else if (strcmp(line, "restore") == 0) {
        restore();
    } else if (strcmp(line, "fail") == 0 || strcmp(line, "heal") == 0) {
        failing = line[0] == 'f';
        printf("%s\n", line);
    } else if (strcmp(line, "hold") == 0 || strcmp(line, "go") == 0) {
        holding = line[0] == 'h';
        printf("%s\n", line);
    } else if (strcmp(line, "stats") == 0) {
        printf("stats %llu %llu %zu\n", (unsigned long long)writes, (unsigned long long)flushes,
            cached);
    } else {
        printf("unknown\n");
    }
    fflush(stdout);
}

// Gives 0 when there is nothing more to come.
static int read_commands(void) {
    static char line[LINE_MAX_BYTES];
    static size_t used;
    ssize_t got = read(0, line + used, sizeof line - used - 1);
    if (got <= 0) return 0;
    used += got;
    line[used] = 0;
    for (char *end; (end = strchr(line, '\n')); ) {
        *end = 0;
        on_command(line);
        used -= end + 1 - line;
        memmove(line, end + 1, used + 1);
    }
    return used < sizeof line - 1;
}

static void *content(void) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("mmap");
    return at;
}

static void serve(void) {
    static char request[BUFFER];
    struct pollfd fds[] = { { .fd = 0, .events = POLLIN }, { .fd = fuse_fd, .events = POLLIN } };
    for (;;) {
        // What the kernel asks meanwhile waits there.
        fds[1].events = holding ? 0 : POLLIN;
        if (poll(fds, 2, -1) < 0 && errno != EINTR) die("poll");
        if (fds[1].revents) {
            ssize_t got = read(fuse_fd, request, sizeof request);
            if (got > 0) on_request(request);
            else if (errno == ENODEV) return;
            else if (errno != EINTR && errno != EAGAIN && errno != ENOENT) die("read");
        }
        if (fds[0].revents && !read_commands()) return;
    }
}

int main(int argc, char **argv) {
    char options[128];
    if (argc != 3) return fprintf(stderr, "usage: disk FILE BYTES\n"), 2;
    file = argv[1];
    bytes = strtoull(argv[2], NULL, 10) / 4096 * 4096;
    now = content();
    safe = content();
    after = content();
    fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fuse_fd < 0) die("/dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=0,group_id=0", fuse_fd,
        S_IFREG | 0600);
    if (mount("halley-power", file, "fuse.halley", MS_NOSUID | MS_NODEV, options) < 0) die("mount");
    printf("ready\n");
    fflush(stdout);
    serve();
    umount2(file, MNT_DETACH);
    return 0;
}
