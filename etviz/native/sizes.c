/* The size S of the law of noise, for results of one function of each element. */
#include <math.h>

#include "targets.h"

enum { BLOCK = 4096 };

/* One block: sqrt(v^2 + sum over arguments of ((moved - exact) / part)^2), at least what the result v is off from the
 * exact one. With `x`, exact - x / 2 is one more summand. Returns 0 if a number is not finite. */
EACH_TARGET
static int sizes_of(const float *restrict v, const double *restrict exact, const double *const *moved, int count,
                    const double *restrict x, double part, double half, int64_t at, int64_t n, float *restrict out) {
    double squares[BLOCK], all = 0;
    for (int64_t i = 0; i < n; i++) squares[i] = (double)v[at + i] * v[at + i];
    if (x)
        for (int64_t i = 0; i < n; i++) {
            const double d = exact[at + i] - x[at + i] / 2;
            squares[i] += d * d;
        }
    for (int k = 0; k < count; k++) {
        const double *restrict other = moved[k];
        for (int64_t i = 0; i < n; i++) {
            const double d = (other[at + i] - exact[at + i]) / part;
            squares[i] += d * d;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        const double e = exact[at + i] - v[at + i], off = (e < 0 ? -e : e) / half, s = sqrt(squares[i]);
        all += squares[i] + off;
        out[at + i] = (float)(s > off ? s : off);
    }
    return !is_infinite(all);
}

/* Sizes of n results; returns 0 if a number is not finite. */
EXPORTED int etviz_sizes(const float *v, const double *exact, const double *const *moved, int count, const double *x,
                         double part, double half, int64_t n, float *out) {
    int bad = 0;
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY) reduction(| : bad)
    for (int64_t at = 0; at < n; at += BLOCK)
        bad |= !sizes_of(v, exact, moved, count, x, part, half, at, n - at < BLOCK ? n - at : BLOCK, out);
    return !bad;
}

EACH_TARGET
static void inexact_of(const float *restrict v, const double *restrict exact, int64_t n, float *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = exact[i] != v[i] ? (v[i] < 0 ? -v[i] : v[i]) : 0;
}

/* |v| where the result is not exact, else 0. */
EXPORTED void etviz_inexact(const float *v, const double *exact, int64_t n, float *out) {
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY)
    for (int64_t at = 0; at < n; at += BLOCK)
        inexact_of(v + at, exact + at, n - at < BLOCK ? n - at : BLOCK, out + at);
}
