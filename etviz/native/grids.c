/* Passes between float32 and the integers of a grid, with the bits of torch's operators.
 *
 * torch multiplies, rounds, adds, clamps and converts one after the other: each reads and writes all elements.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "targets.h"

enum { BLOCK = 4096 };

/* One block: x + u·part where x is not 0, over the step, rounded to the grid; returns 0 if an x is not finite. */
EACH_TARGET
static int to_grid(const float *restrict x, const float *restrict u, int64_t n, const float *restrict grid,
                   float *restrict out) {
    const float part = grid[0], inverse = grid[1], zero = grid[2], low = grid[3], high = grid[4];
    int32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, 4);
        bad |= (bits & 0x7f800000) == 0x7f800000;
        out[i] = x[i];
    }
    if (u)
        for (int64_t i = 0; i < n; i++) out[i] += x[i] != 0 ? u[i] * part : 0;
    for (int64_t i = 0; i < n; i++) {
        float v = rintf(out[i] * inverse) + zero;
        v = v < low ? low : v;
        out[i] = v > high ? high : v;
    }
    return !bad;
}

#define CONVERSIONS(name, type)                                                                                  \
    EACH_TARGET                                                                                                  \
    static void to_##name(const float *restrict x, int64_t n, type *restrict q) {                                \
        for (int64_t i = 0; i < n; i++) q[i] = (type)(int32_t)x[i];                                              \
    }                                                                                                            \
    EACH_TARGET                                                                                                  \
    static void from_##name(const type *restrict q, int64_t n, float scale, float zero, float *restrict x) {     \
        for (int64_t i = 0; i < n; i++) x[i] = ((float)q[i] - zero) * scale;                                     \
    }

CONVERSIONS(int8, int8_t)
CONVERSIONS(uint8, uint8_t)
CONVERSIONS(int16, int16_t)

/* Rounds n numbers to a grid of (part, 1/step, zero point, first, last); kinds are those of histogram.c.
 * `u` may be null. Returns 0, with q unfinished, if a number is not finite or the kind has no pass.
 */
EXPORTED int etviz_to_grid(const float *x, const float *u, int64_t n, const float *grid, void *q, int kind) {
    int bad = 0;
    if (kind < 2 || kind > 4) return 0;
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY) reduction(| : bad)
    for (int64_t at = 0; at < n; at += BLOCK) {
        float rounded[BLOCK];
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        if (bad) continue;
        bad |= !to_grid(x + at, u ? u + at : 0, count, grid, rounded);
        if (kind == 2) to_int8(rounded, count, (int8_t *)q + at);
        if (kind == 3) to_uint8(rounded, count, (uint8_t *)q + at);
        if (kind == 4) to_int16(rounded, count, (int16_t *)q + at);
    }
    return !bad;
}

/* (q - zero)·scale of n integers; returns 0 if the kind has no pass. */
EXPORTED int etviz_from_grid(const void *q, int64_t n, int kind, float scale, float zero, float *x) {
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY)
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        if (kind == 2) from_int8((const int8_t *)q + at, count, scale, zero, x + at);
        if (kind == 3) from_uint8((const uint8_t *)q + at, count, scale, zero, x + at);
        if (kind == 4) from_int16((const int16_t *)q + at, count, scale, zero, x + at);
    }
    return kind >= 2 && kind <= 4;
}
