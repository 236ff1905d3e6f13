/* Sums of squared errors in rows whose equal terms repeat an error: the errors of equal keys are added first. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "targets.h"

static const uint64_t SPREAD = 0x9E3779B97F4A7C15u;

/* The exponent as `frexp` gives it. */
static inline int64_t exponent(double x) {
    uint64_t u;
    if (x == 0) return 0;
    memcpy(&u, &x, 8);
    int64_t e = (int64_t)(u >> 52 & 0x7ff);
    if (e) return e - 1022;
    x *= 0x1p64;
    memcpy(&u, &x, 8);
    return (int64_t)(u >> 52 & 0x7ff) - 1022 - 64;
}

/* For each row of `count` terms the sum over groups of (sum of errors)², in a hash of 2^bits places. With `partial` an
 * error is the size of the sum up to a term other than 0, and terms that are equal while the sum keeps its exponent are
 * a group; else an error is the term, and equal ones are a group. Returns 0 without memory. */
EXPORTED int etviz_repeated(const double *terms, int64_t rows, int64_t count, int bits, int partial, double *out) {
    int64_t places = (int64_t)1 << bits;
    double *table = malloc((size_t)places * sizeof *table);
    if (!table) return 0;
    for (int64_t row = 0; row < rows; row++, terms += count) {
        memset(table, 0, (size_t)places * sizeof *table);
        double sum = 0;
        for (int64_t i = 0; i < count; i++) {
            double error = terms[i];
            uint64_t key;
            memcpy(&key, terms + i, 8);
            if (partial) {
                sum += terms[i];
                key ^= (uint64_t)exponent(sum);
                error = terms[i] == 0 ? 0 : sum < 0 ? -sum : sum;
            }
            table[key * SPREAD >> (64 - bits)] += error;
        }
        double found = 0;
        for (int64_t i = 0; i < places; i++) found += table[i] * table[i];
        out[row] = found;
    }
    free(table);
    return 1;
}
