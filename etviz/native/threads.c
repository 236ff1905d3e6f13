/* How many threads a pass uses, and a file that several threads read. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#ifndef _WIN32
#include <sys/types.h>
#include <unistd.h>
#endif

#include "targets.h"

enum { PIECE = 1 << 20 };

static int shared;

/* Two pools would wait for one another's threads, which spin. */
EXPORTED void etviz_share_threads(int is_shared) { shared = is_shared; }

int etviz_threads(void) {
#ifdef _OPENMP
    return shared ? omp_get_max_threads() : 1;
#else
    return 1;
#endif
}

static int read_piece(int file, char *out, int64_t at, int64_t count) {
#ifdef _WIN32
    return 0;
#else
    while (count > 0) {
        const ssize_t size = pread(file, out, (size_t)count, (off_t)at);
        if (size <= 0) return 0;
        out += size, at += size, count -= size;
    }
    return 1;
#endif
}

/* Reads `count` bytes from `at` on; returns 0 if the file has fewer, or can't be read. */
EXPORTED int etviz_read(int file, char *out, int64_t at, int64_t count) {
    int bad = 0;
#pragma omp parallel for num_threads(etviz_threads()) if (count > PIECE) reduction(| : bad)
    for (int64_t i = 0; i < count; i += PIECE)
        bad |= !read_piece(file, out + i, at + i, count - i < PIECE ? count - i : PIECE);
    return !bad;
}
