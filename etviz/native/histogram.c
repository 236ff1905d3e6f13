/* Two passes over a pair of arrays of any type: what is in reference, runtime and error, and how it is distributed.
 *
 * Elements are taken to float64 in chunks that stay in the cache. Those that are not finite are told by their bits, for
 * the compiler takes every number for finite, and are left out before anything is computed of them.
 */
#include <stdint.h>
#include <string.h>

#include "targets.h"

enum { CHUNK = 1024, REFERENCE = 0, RUNTIME = 1, ERROR = 2 };
enum { FLOAT32, FLOAT64, INT8, UINT8, INT16, INT32, INT64 };

typedef struct {
    double low, high, sum, squares, spread;
    int64_t count, zeros;
} series;

typedef struct {
    const double *edges;
    double scale; /* bins a unit; 0 where that can't be told as a float64, and bins are searched for */
    int64_t bins;
    int64_t *counts;
} binned;

EACH_TARGET
static void load(const void *data, int kind, int64_t at, int64_t n, double *restrict out) {
#define EACH(type)                                                        \
    {                                                                     \
        const type *x = (const type *)data + at;                          \
        for (int64_t i = 0; i < n; i++) out[i] = (double)x[i];            \
        break;                                                            \
    }
    switch (kind) {
    case FLOAT32: EACH(float)
    case FLOAT64: EACH(double)
    case INT8: EACH(int8_t)
    case UINT8: EACH(uint8_t)
    case INT16: EACH(int16_t)
    case INT32: EACH(int32_t)
    case INT64: EACH(int64_t)
    }
#undef EACH
}

static inline uint64_t bits(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static const uint64_t EXPONENT = 0x7ff0000000000000u;

EACH_TARGET
static int all_finite(const double *x, int64_t n) {
    int64_t odd = 0;
    for (int64_t i = 0; i < n; i++) odd |= (bits(x[i]) & EXPONENT) == EXPONENT;
    return !odd;
}

/* Moves the finite elements to the front; returns how many there are. */
static int64_t keep_finite(double *x, int64_t n) {
    if (all_finite(x, n)) return n;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if ((bits(x[i]) & EXPONENT) != EXPONENT) x[kept++] = x[i];
    return kept;
}

/* Finite, +inf, -inf, nan: the order of `blocks.CLASSES`. */
static int class_of(double x) {
    uint64_t u = bits(x);
    if ((u & EXPONENT) != EXPONENT) return 0;
    return u & ~(EXPONENT | 1ull << 63) ? 3 : u >> 63 ? 2 : 1;
}

static void count_classes(const double *r, const double *q, int64_t n, int64_t *classes) {
    if (all_finite(r, n) && all_finite(q, n)) {
        classes[0] += n;
        return;
    }
    for (int64_t i = 0; i < n; i++) classes[4 * class_of(r[i]) + class_of(q[i])]++;
}

EACH_TARGET
static void describe(const double *restrict x, int64_t n, series *restrict out) {
    double low = out->low, high = out->high, sum = 0, squares = 0;
    int64_t zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = x[i];
        low = a < low ? a : low;
        high = a > high ? a : high;
        sum += a;
        squares += a * a;
        zeros += a == 0;
    }
    out->low = low;
    out->high = high;
    out->sum += sum;
    out->squares += squares;
    out->count += n;
    out->zeros += zeros;
}

EACH_TARGET
static double spread(const double *restrict x, int64_t n, double mean) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

EACH_TARGET
static void guess(const double *restrict x, int64_t n, double low, double scale, double last, int32_t *restrict bin) {
    for (int64_t i = 0; i < n; i++) {
        double at = (x[i] - low) * scale;
        at = at > 0 ? at : 0;
        bin[i] = (int32_t)(at < last ? at : last);
    }
}

/* A bin holds what is at its lower edge and below its upper one, the last one its upper edge too. */
static void count(const double *x, int64_t n, const binned *to) {
    const double *edges = to->edges;
    int64_t last = to->bins - 1, *counts = to->counts;
    int32_t bin[CHUNK];
    if (to->scale > 0) guess(x, n, edges[0], to->scale, (double)last, bin);
    for (int64_t i = 0; i < n; i++) {
        double a = x[i];
        int64_t k;
        if (to->scale > 0) {
            k = bin[i];
            while (k > 0 && a < edges[k]) k--;
            while (k < last && a >= edges[k + 1]) k++;
        } else {
            int64_t end = last;
            for (k = 0; k < end;) {
                int64_t middle = (k + end + 1) / 2;
                if (a >= edges[middle]) k = middle;
                else end = middle - 1;
            }
        }
        counts[k] += a >= edges[k] && a <= edges[k + 1];
    }
}

/* Takes the next chunk of reference, runtime and error to float64; without a reference of the runtime alone. */
static int64_t take(const void *r, int r_kind, const void *q, int q_kind, int64_t at, int64_t count,
                    double chunk[3][CHUNK]) {
    int64_t n = count - at < CHUNK ? count - at : CHUNK;
    load(q, q_kind, at, n, chunk[RUNTIME]);
    if (r) {
        load(r, r_kind, at, n, chunk[REFERENCE]);
        for (int64_t i = 0; i < n; i++) chunk[ERROR][i] = chunk[RUNTIME][i] - chunk[REFERENCE][i];
    }
    return n;
}

/* Adds what is in a pair to `out` (reference, runtime, error) and to the 4 × 4 `classes`; `r` may be NULL. */
EXPORTED void etviz_describe(const void *r, int r_kind, const void *q, int q_kind, int64_t n, series *out, int64_t *classes) {
    double chunk[3][CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = take(r, r_kind, q, q_kind, at, n, chunk);
        if (r) count_classes(chunk[REFERENCE], chunk[RUNTIME], m, classes);
        for (int part = r ? REFERENCE : RUNTIME; part <= (r ? ERROR : RUNTIME); part++)
            describe(chunk[part], keep_finite(chunk[part], m), out + part);
    }
}

/* Counts a pair into bins, and adds the squared distances from the means that `described` has to its spreads. */
EXPORTED void etviz_count(const void *r, int r_kind, const void *q, int q_kind, int64_t n, series *described,
                 const binned *to) {
    double chunk[3][CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = take(r, r_kind, q, q_kind, at, n, chunk);
        for (int part = r ? REFERENCE : RUNTIME; part <= (r ? ERROR : RUNTIME); part++) {
            int64_t kept = keep_finite(chunk[part], m);
            if (!kept) continue;
            series *about = described + part;
            about->spread += spread(chunk[part], kept, about->sum / (double)about->count);
            count(chunk[part], kept, to + part);
        }
    }
}
