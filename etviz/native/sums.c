/* Passes over a pair of float32 arrays: one gathers what every metric needs, one the squares that a noise needs. A pass
 * over one array gathers its squares and fourth powers.
 *
 * All sums are float64, gathered in blocks so that their rounding error does not grow with the length of the arrays.
 */
#include "targets.h"

enum { BLOCK = 4096, BLOCKS = 256, PART = 256, AHEAD = 4 * PART, LINE = 16 };

typedef struct {
    double dd, rr, qq, rq, ad, max_d, max_r;
    int64_t close;
    uint32_t max_ulp;
} pair_sums;

/* Memory is slower than the sums: ask for what comes next. */
static void ask_for(const float *r, const float *q, int64_t n) {
    for (int64_t i = AHEAD; i < AHEAD + n; i += LINE) {
        __builtin_prefetch(r + i);
        __builtin_prefetch(q + i);
    }
}

/* The sums of one part without `close` and `max_ulp`. */
#define ADD_PAIR                                                           \
    double a = r[i], b = q[i], d = b - a, x = d < 0 ? -d : d;              \
    float size = r[i] < 0 ? -r[i] : r[i];                                  \
    int32_t u, v;                                                          \
    memcpy(&u, r + i, 4);                                                  \
    memcpy(&v, q + i, 4);                                                  \
    dd += d * d, rr += a * a, qq += b * b, rq += a * b, ad += x;           \
    max_d = x > max_d ? x : max_d;                                         \
    max_r = size > max_r ? size : max_r;

/* The sums of one part of two equal arrays. */
EACH_TARGET
static void sums_of_same(const float *restrict r, int64_t n, pair_sums *out) {
    double rr = 0;
    float max_r = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = r[i];
        float size = r[i] < 0 ? -r[i] : r[i];
        rr += a * a;
        max_r = size > max_r ? size : max_r;
    }
    *out = (pair_sums){.rr = rr, .qq = rr, .rq = rr, .max_r = max_r, .close = n};
}

/* The sums of one part, whose elements are all closer than `atol` and have the reference's sign; else returns 0. */
EACH_TARGET
static int sums_of_near(const float *restrict r, const float *restrict q, int64_t n, double atol, pair_sums *out) {
    double dd = 0, rr = 0, qq = 0, rq = 0, ad = 0, max_d = 0;
    float max_r = 0;
    int32_t signs = 0;
    uint32_t max_ulp = 0;
    for (int64_t i = 0; i < n; i++) {
        ADD_PAIR
        uint32_t steps = (uint32_t)(u > v ? u : v) - (uint32_t)(u > v ? v : u);
        max_ulp = steps > max_ulp ? steps : max_ulp;
        signs |= u ^ v;
    }
    *out = (pair_sums){dd, rr, qq, rq, ad, max_d, max_r, n, max_ulp};
    return max_d <= atol && signs >= 0;
}

/* The sums of one part. */
EACH_TARGET
static void sums_of_any(const float *restrict r, const float *restrict q, int64_t n, double rtol, double atol,
                        pair_sums *out) {
    double dd = 0, rr = 0, qq = 0, rq = 0, ad = 0, max_d = 0;
    float max_r = 0;
    int64_t close = 0;
    uint32_t max_ulp = 0;
    for (int64_t i = 0; i < n; i++) {
        ADD_PAIR
        close += x <= atol + rtol * (a < 0 ? -a : a);
        /* The bits of floats of one sign are in the order of the numbers; those of negative ones run backwards. */
        u = (u ^ (u >> 31 & 0x7fffffff)) - (u >> 31);
        v = (v ^ (v >> 31 & 0x7fffffff)) - (v >> 31);
        uint32_t steps = (uint32_t)(u > v ? u : v) - (uint32_t)(u > v ? v : u);
        max_ulp = steps > max_ulp ? steps : max_ulp;
    }
    *out = (pair_sums){dd, rr, qq, rq, ad, max_d, max_r, close, max_ulp};
}

static void add(const pair_sums *part, pair_sums *out) {
    out->dd += part->dd;
    out->rr += part->rr;
    out->qq += part->qq;
    out->rq += part->rq;
    out->ad += part->ad;
    out->max_d = part->max_d > out->max_d ? part->max_d : out->max_d;
    out->max_r = part->max_r > out->max_r ? part->max_r : out->max_r;
    out->close += part->close;
    out->max_ulp = part->max_ulp > out->max_ulp ? part->max_ulp : out->max_ulp;
}

/* The sums of one block; returns 0 if an element of it is not finite. */
static int sums_of(const float *r, const float *q, int64_t n, double rtol, double atol, pair_sums *out) {
    int near = 1;
    memset(out, 0, sizeof *out);
    for (int64_t start = 0; start < n; start += PART) {
        const int64_t count = n - start < PART ? n - start : PART;
        pair_sums part;
        ask_for(r + start, q + start, count);
        if (!memcmp(r + start, q + start, count * sizeof *r))
            sums_of_same(r + start, count, &part);
        else if (!(near = near && sums_of_near(r + start, q + start, count, atol, &part)))
            sums_of_any(r + start, q + start, count, rtol, atol, &part);
        add(&part, out);
    }
    return !is_infinite(out->rr + out->qq);
}

/* Sums of q against r, both of n elements; returns 0, with `out` unfinished, if an element is not finite.
 * The sums of blocks are added in their order, so that they are the same with any number of threads. */
EXPORTED int etviz_sums_f32(const float *r, const float *q, int64_t n, double rtol, double atol, pair_sums *out) {
    memset(out, 0, sizeof *out);
    for (int64_t start = 0; start < n; start += BLOCKS * BLOCK) {
        pair_sums each[BLOCKS];
        const int64_t end = n - start < BLOCKS * BLOCK ? n : start + BLOCKS * BLOCK;
        int bad = 0;
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY) reduction(| : bad)
        for (int64_t at = start; at < end; at += BLOCK)
            bad |= !sums_of(r + at, q + at, end - at < BLOCK ? end - at : BLOCK, rtol, atol, each + (at - start) / BLOCK);
        if (bad) return 0;
        for (int64_t at = start; at < end; at += BLOCK) add(each + (at - start) / BLOCK, out);
    }
    return 1;
}

EACH_TARGET
static int squares_of(const float *restrict r, const float *restrict q, int64_t n, double *restrict out) {
    double dd = 0, rr = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = r[i], d = q[i] - a;
        dd += d * d;
        rr += a * a;
    }
    out[0] = dd;
    out[1] = rr;
    return !is_infinite(dd + rr);
}

/* Sums of the squares of q - r and of r; returns 0, with `out` unfinished, if an element is not finite. */
EXPORTED int etviz_squares_f32(const float *r, const float *q, int64_t n, double *out) {
    out[0] = out[1] = 0;
    for (int64_t start = 0; start < n; start += BLOCKS * BLOCK) {
        double each[BLOCKS][2];
        const int64_t end = n - start < BLOCKS * BLOCK ? n : start + BLOCKS * BLOCK;
        int bad = 0;
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY) reduction(| : bad)
        for (int64_t at = start; at < end; at += BLOCK)
            bad |= !squares_of(r + at, q + at, end - at < BLOCK ? end - at : BLOCK, each[(at - start) / BLOCK]);
        if (bad) return 0;
        for (int64_t i = 0; i < (end - start + BLOCK - 1) / BLOCK; i++) out[0] += each[i][0], out[1] += each[i][1];
    }
    return 1;
}

#define POWERS_OF(NAME, TYPE)                                                      \
    EACH_TARGET                                                                    \
    static void NAME(const void *restrict given, int64_t n, double *restrict out) { \
        const TYPE *x = given;                                                     \
        double squares = 0, fourths = 0, largest = 0;                              \
        for (int64_t i = 0; i < n; i++) {                                          \
            double a = x[i], s = a * a;                                            \
            squares += s;                                                          \
            fourths += s * s;                                                      \
            largest = s > largest ? s : largest;                                   \
        }                                                                          \
        out[0] = squares, out[1] = fourths, out[2] = largest;                      \
    }
POWERS_OF(powers_of_f32, float)
POWERS_OF(powers_of_f64, double)

/* Sums of squares and of fourth powers, and the largest square, of n elements of `width` bytes. */
EXPORTED void etviz_powers(const char *x, int width, int64_t n, double *out) {
    out[0] = out[1] = out[2] = 0;
    for (int64_t start = 0; start < n; start += BLOCKS * BLOCK) {
        double each[BLOCKS][3];
        const int64_t end = n - start < BLOCKS * BLOCK ? n : start + BLOCKS * BLOCK;
#pragma omp parallel for num_threads(etviz_threads()) if (n >= MANY)
        for (int64_t at = start; at < end; at += BLOCK)
            (width == 4 ? powers_of_f32 : powers_of_f64)(x + at * width, end - at < BLOCK ? end - at : BLOCK,
                                                         each[(at - start) / BLOCK]);
        for (int64_t i = 0; i < (end - start + BLOCK - 1) / BLOCK; i++) {
            out[0] += each[i][0], out[1] += each[i][1];
            out[2] = each[i][2] > out[2] ? each[i][2] : out[2];
        }
    }
}
