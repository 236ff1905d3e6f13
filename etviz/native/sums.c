/* Passes over a pair of float32 arrays: one gathers what every metric needs, one the squares that a noise needs.
 *
 * All sums are float64, gathered in blocks so that their rounding error does not grow with the length of the arrays.
 */
#include <stdint.h>
#include <string.h>

#include "targets.h"

enum { BLOCK = 4096 };

typedef struct {
    double dd, rr, qq, rq, ad, max_d, max_r;
    int64_t close;
    uint32_t max_ulp;
} pair_sums;

static inline int is_infinite(double x) {
    int64_t u;
    memcpy(&u, &x, 8);
    return (u & 0x7ff0000000000000) == 0x7ff0000000000000;
}

/* Adds one block; returns 0 if an element of it is not finite. */
EACH_TARGET
static int add_block(const float *restrict r, const float *restrict q, int64_t n, double rtol, double atol,
                     pair_sums *restrict out) {
    double dd = 0, rr = 0, qq = 0, rq = 0, ad = 0, max_d = 0, max_r = 0;
    int64_t close = 0;
    uint32_t max_ulp = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = r[i], b = q[i], d = b - a;
        double x = d < 0 ? -d : d, y = a < 0 ? -a : a;
        dd += d * d;
        rr += a * a;
        qq += b * b;
        rq += a * b;
        ad += x;
        max_d = x > max_d ? x : max_d;
        max_r = y > max_r ? y : max_r;
        close += x <= atol + rtol * y;
        int32_t u, v;
        memcpy(&u, r + i, 4);
        memcpy(&v, q + i, 4);
        /* The bits of floats of one sign are in the order of the numbers; those of negative ones run backwards. */
        u = (u ^ (u >> 31 & 0x7fffffff)) - (u >> 31);
        v = (v ^ (v >> 31 & 0x7fffffff)) - (v >> 31);
        uint32_t steps = (uint32_t)(u > v ? u : v) - (uint32_t)(u > v ? v : u);
        max_ulp = steps > max_ulp ? steps : max_ulp;
    }
    if (is_infinite(rr + qq)) return 0;
    out->dd += dd;
    out->rr += rr;
    out->qq += qq;
    out->rq += rq;
    out->ad += ad;
    out->max_d = max_d > out->max_d ? max_d : out->max_d;
    out->max_r = max_r > out->max_r ? max_r : out->max_r;
    out->close += close;
    out->max_ulp = max_ulp > out->max_ulp ? max_ulp : out->max_ulp;
    return 1;
}

/* Sums of q against r, both of n elements; returns 0, with `out` unfinished, if an element is not finite. */
EXPORTED int etviz_sums_f32(const float *r, const float *q, int64_t n, double rtol, double atol, pair_sums *out) {
    memset(out, 0, sizeof *out);
    for (int64_t at = 0; at < n; at += BLOCK)
        if (!add_block(r + at, q + at, n - at < BLOCK ? n - at : BLOCK, rtol, atol, out)) return 0;
    return 1;
}

EACH_TARGET
static int add_squares(const float *restrict r, const float *restrict q, int64_t n, double *restrict out) {
    double dd = 0, rr = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = r[i], d = q[i] - a;
        dd += d * d;
        rr += a * a;
    }
    out[0] += dd;
    out[1] += rr;
    return !is_infinite(dd + rr);
}

/* Sums of the squares of q - r and of r; returns 0, with `out` unfinished, if an element is not finite. */
EXPORTED int etviz_squares_f32(const float *r, const float *q, int64_t n, double *out) {
    out[0] = out[1] = 0;
    for (int64_t at = 0; at < n; at += BLOCK)
        if (!add_squares(r + at, q + at, n - at < BLOCK ? n - at : BLOCK, out)) return 0;
    return 1;
}
