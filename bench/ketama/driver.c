/* The port program of the article "Erlang libketama driver - Consistent Hashing" (2008), written
 * anew, with the ring of libketama in it: what apps/ketama is measured against, and, since its
 * arithmetic is C's own `float', a second opinion on the points.
 *
 *     driver FILE         requests on stdin: a byte of length, 0 to 254, and a key; answers on
 *                         stdout: a byte of length and the server's name
 *     driver FILE points  prints the points, `number name' a line, and ends
 *
 * As there: it reads FILE (`name weight' a line) once, and answers one request after the other with
 * blocking reads and writes. What differs: any number of servers, no shared memory, and a key's
 * bytes behind a NUL are not looked at, which is what libketama's C strings amount to.
 *
 * What it is not: a judge of FILE. A line that isn't understood ends it with status 1. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES_MAX = 63, KEY_BYTES_MAX = 254, HASHES_PER_SERVER = 40 };

struct server {
    char name[NAME_BYTES_MAX + 1];
    unsigned long weight;
};

struct point {
    uint32_t at;
    uint32_t server;
};

static struct server *servers;
static size_t servers_count;
static struct point *points;
static size_t points_count;

/* RFC 1321. Its table of sines is computed. */
static uint32_t sines[64];

static void md5_prepare(void)
{
    for (int i = 0; i < 64; i++) {
        sines[i] = (uint32_t)floor(fabs(sin(i + 1.0)) * 4294967296.0);
    }
}

static uint32_t rotated(uint32_t x, unsigned by)
{
    return x << by | x >> (32 - by);
}

static void md5_block(uint32_t state[4], const unsigned char *block)
{
    static const unsigned char shifts[4][4] = {
        { 7, 12, 17, 22 }, { 5, 9, 14, 20 }, { 4, 11, 16, 23 }, { 6, 10, 15, 21 }
    };
    uint32_t words[16];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    memcpy(words, block, sizeof words); /* little-endian machines only */
    for (unsigned i = 0; i < 64; i++) {
        uint32_t mixed;
        unsigned word;
        switch (i / 16) {
        case 0: mixed = (b & c) | (~b & d); word = i; break;
        case 1: mixed = (b & d) | (c & ~d); word = (5 * i + 1) % 16; break;
        case 2: mixed = b ^ c ^ d; word = (3 * i + 5) % 16; break;
        default: mixed = c ^ (b | ~d); word = 7 * i % 16; break;
        }
        uint32_t next = b + rotated(a + mixed + words[word] + sines[i], shifts[i / 16][i % 4]);
        a = d;
        d = c;
        c = b;
        b = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

static void md5(const char *text, size_t length, uint32_t digest[4])
{
    unsigned char last[128] = { 0 };
    size_t whole = length / 64 * 64;
    size_t rest = length - whole;
    size_t padded = rest < 56 ? 64 : 128;
    uint64_t bits = (uint64_t)length * 8;
    digest[0] = 0x67452301;
    digest[1] = 0xefcdab89;
    digest[2] = 0x98badcfe;
    digest[3] = 0x10325476;
    for (size_t at = 0; at < whole; at += 64) {
        md5_block(digest, (const unsigned char *)text + at);
    }
    memcpy(last, text + whole, rest);
    last[rest] = 0x80;
    memcpy(last + padded - 8, &bits, 8);
    for (size_t at = 0; at < padded; at += 64) {
        md5_block(digest, last + at);
    }
}

static void fail(const char *what)
{
    fprintf(stderr, "driver: %s\n", what);
    exit(1);
}

static void *grown(void *memory, size_t bytes)
{
    void *larger = realloc(memory, bytes);
    if (larger == NULL) {
        fail("no memory");
    }
    return larger;
}

static void read_servers(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256];
    if (file == NULL) {
        fail("the file can't be opened");
    }
    while (fgets(line, sizeof line, file) != NULL) {
        struct server new;
        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }
        if (sscanf(line, "%63s %lu", new.name, &new.weight) != 2 || new.weight == 0) {
            fail("a line that isn't understood");
        }
        servers = grown(servers, (servers_count + 1) * sizeof *servers);
        servers[servers_count++] = new;
    }
    fclose(file);
    if (servers_count == 0) {
        fail("no servers");
    }
}

static int compare(const void *left, const void *right)
{
    const struct point *a = left, *b = right;
    if (a->at != b->at) {
        return a->at < b->at ? -1 : 1;
    }
    return a->server < b->server ? -1 : a->server > b->server;
}

/* A `float' share; its product with a double 40 is a double, and floorf() takes a float again. */
static void make_points(void)
{
    unsigned long total = 0;
    for (size_t i = 0; i < servers_count; i++) {
        total += servers[i].weight;
    }
    for (size_t i = 0; i < servers_count; i++) {
        float share = (float)servers[i].weight / (float)total;
        float hashes = (float)(share * (double)HASHES_PER_SERVER * (double)(float)servers_count);
        unsigned count = (unsigned)floorf(hashes);
        points = grown(points, (points_count + 4 * (size_t)count + 1) * sizeof *points);
        for (unsigned k = 0; k < count; k++) {
            char name[NAME_BYTES_MAX + 16];
            uint32_t digest[4];
            int length = snprintf(name, sizeof name, "%s-%u", servers[i].name, k);
            md5(name, (size_t)length, digest);
            for (int part = 0; part < 4; part++) {
                points[points_count].at = digest[part];
                points[points_count++].server = (uint32_t)i;
            }
        }
    }
    qsort(points, points_count, sizeof *points, compare);
}

static const char *owner(const char *key, size_t length)
{
    uint32_t digest[4];
    size_t from = 0, to = points_count;
    md5(key, length, digest);
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (points[middle].at < digest[0]) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return servers[points[from == points_count ? 0 : from].server].name;
}

static int read_whole(unsigned char *buffer, size_t length)
{
    for (size_t at = 0; at < length;) {
        ssize_t got = read(0, buffer + at, length - at);
        if (got <= 0) {
            return 0;
        }
        at += (size_t)got;
    }
    return 1;
}

/* As in the article, the length and the name are a write each. */
static void serve(void)
{
    unsigned char length, key[KEY_BYTES_MAX + 1];
    while (read_whole(&length, 1) && length <= KEY_BYTES_MAX && read_whole(key, length)) {
        const char *name;
        unsigned char name_length;
        key[length] = '\0';
        name = owner((const char *)key, strlen((const char *)key));
        name_length = (unsigned char)strlen(name);
        if (write(1, &name_length, 1) != 1 || write(1, name, name_length) != name_length) {
            return;
        }
    }
}

int main(int count, char **arguments)
{
    if (count < 2) {
        fail("usage: driver FILE [points]");
    }
    md5_prepare();
    read_servers(arguments[1]);
    make_points();
    if (count > 2) {
        for (size_t i = 0; i < points_count; i++) {
            printf("%u %s\n", points[i].at, servers[points[i].server].name);
        }
    } else {
        serve();
    }
    return 0;
}
