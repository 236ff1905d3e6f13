/* Differences of float64 arrays: as float32, with the sums that tell how large they are. */
#include "targets.h"

enum { BLOCK = 512, BLOCKS = 2048 };

typedef struct {
    double squares, of_base, largest;
} sums;

EACH_TARGET
static sums narrow(const double *restrict x, const double *restrict base, int64_t n, float *restrict out) {
    sums s = {0, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        const double b = base ? base[i] : 0, d = x[i] - b, size = d < 0 ? -d : d;
        s.squares += d * d;
        s.of_base += b * b;
        s.largest = size > s.largest ? size : s.largest;
        if (out) out[i] = (float)d;
    }
    return s;
}

EACH_TARGET
static sums narrow_float(const float *restrict x, const double *restrict base, int64_t n, float *restrict out) {
    double wide[BLOCK];
    for (int64_t i = 0; i < n; i++) wide[i] = x[i];
    return narrow(wide, base, n, out);
}

/* Writes x - base (x without a base) as float32, where there is room for it. Returns 0 if a square is not finite. */
EXPORTED int etviz_narrow(const void *x, int is_float, const double *base, int64_t n, float *out, sums *found) {
    *found = (sums){0, 0, 0};
    for (int64_t start = 0; start < n; start += BLOCKS * BLOCK) {
        sums each[BLOCKS];
        const int64_t end = n - start < BLOCKS * BLOCK ? n : start + BLOCKS * BLOCK;
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY)
        for (int64_t at = start; at < end; at += BLOCK) {
            const double *below = base ? base + at : 0;
            const int64_t count = end - at < BLOCK ? end - at : BLOCK;
            float *room = out ? out + at : 0;
            each[(at - start) / BLOCK] = is_float ? narrow_float((const float *)x + at, below, count, room)
                                                  : narrow((const double *)x + at, below, count, room);
        }
        for (const sums *s = each; s < each + (end - start + BLOCK - 1) / BLOCK; s++) {
            found->squares += s->squares;
            found->of_base += s->of_base;
            found->largest = s->largest > found->largest ? s->largest : found->largest;
        }
    }
    return !is_infinite(found->squares + found->of_base);
}

EACH_TARGET
static double dot(const double *restrict x, const float *restrict y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* The sum of the products; not finite if an element is not. */
EXPORTED double etviz_dot(const double *x, const float *y, int64_t n) {
    double found = 0;
    for (int64_t start = 0; start < n; start += BLOCKS * BLOCK) {
        double each[BLOCKS];
        const int64_t end = n - start < BLOCKS * BLOCK ? n : start + BLOCKS * BLOCK;
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY)
        for (int64_t at = start; at < end; at += BLOCK)
            each[(at - start) / BLOCK] = dot(x + at, y + at, end - at < BLOCK ? end - at : BLOCK);
        for (int64_t i = 0; i < (end - start + BLOCK - 1) / BLOCK; i++) found += each[i];
    }
    return found;
}
