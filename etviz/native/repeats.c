/* Errors of sums: those of equal keys are added before they are squared, since equal terms repeat an error. */
#include <math.h>
#include <stdlib.h>

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

/* 2^e, or 0 if that is no normal number. */
static inline double power(int64_t e) {
    uint64_t u = e < -1022 || e > 1023 ? 0 : (uint64_t)(e + 1023) << 52;
    double x;
    memcpy(&x, &u, 8);
    return x;
}

/* For each row of `count` terms four numbers. The first is the sum over groups of (sum of errors)², in a hash of 2^bits
 * places. With a `unit` an error is the size of the sum up to a term other than 0, and terms that are equal while the sum
 * keeps its exponent are a group; else an error is the term, and equal ones are a group. The second is what the terms
 * change together, if each is rounded to the spacing `unit` of numbers at that sum. The others are the sums of the terms
 * and of their squares. Returns 0 without memory, or if a square is not finite. */
EACH_TARGET
static int errors_of_sums(const double *terms, int64_t rows, int64_t count, int bits, double unit, double *out) {
    int64_t places = (int64_t)1 << bits;
    double *table = malloc((size_t)places * sizeof *table);
    int bad = 0;
    if (!table) return 0;
    for (int64_t row = 0; row < rows; row++, terms += count) {
        memset(table, 0, (size_t)places * sizeof *table);
        double sum = 0, drift = 0, step = 0, per_step = 0;
        for (int64_t i = 0; i < count; i++) {
            double error = terms[i];
            uint64_t key;
            memcpy(&key, terms + i, 8);
            if (unit > 0) {
                sum += terms[i];
                int64_t e = exponent(sum);
                step = unit * power(e - 1);
                per_step = power(1 - e) / unit;
                double steps = terms[i] * per_step;
                if (sum != 0) drift += (rint(steps) - steps) * step;
                key ^= (uint64_t)e;
                error = terms[i] == 0 ? 0 : sum < 0 ? -sum : sum;
            }
            table[key * SPREAD >> (64 - bits)] += error;
        }
        double found = 0, total = 0, squares = 0;
        for (int64_t i = 0; i < places; i++) found += table[i] * table[i];
        for (int64_t i = 0; i < count; i++) total += terms[i], squares += terms[i] * terms[i];
        bad |= is_infinite(squares);
        memcpy(out + 4 * row, (double[]){found, drift, total, squares}, 4 * sizeof *out);
    }
    free(table);
    return !bad;
}

EXPORTED int etviz_errors_of_sums(const double *terms, int64_t rows, int64_t count, int bits, double unit, double *out) {
    const int64_t part = rows / etviz_threads() + 1;
    int bad = 0;
#pragma omp parallel for num_threads(etviz_threads()) if (rows * count >= MANY) reduction(| : bad)
    for (int64_t row = 0; row < rows; row += part)
        bad |= !errors_of_sums(terms + row * count, rows - row < part ? rows - row : part, count, bits, unit, out + 4 * row);
    return !bad;
}
