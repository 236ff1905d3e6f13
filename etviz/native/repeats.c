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

/* Of a row of `count` terms four numbers. The first is the sum over groups of (sum of errors)², in a hash of 2^bits
 * places. With a `unit` an error is the size of the sum up to a term other than 0, and terms that are equal while the sum
 * keeps its exponent are a group; else an error is the term, and equal ones are a group. The second is what the terms
 * change together, if each is rounded to the spacing `unit` of numbers at that sum. The others are the sums of the terms
 * and of their squares. Returns 0 if a square is not finite. */
static inline int errors_of_row(const double *terms, int64_t count, double *table, int bits, double unit, double *out) {
    int64_t places = (int64_t)1 << bits;
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
    memcpy(out, (double[]){found, drift, total, squares}, 4 * sizeof *out);
    return !is_infinite(squares);
}

EACH_TARGET
static int errors_of_sums(const double *terms, int64_t rows, int64_t count, int bits, double unit, double *out) {
    double *table = malloc(((size_t)1 << bits) * sizeof *table);
    int good = table != 0;
    for (int64_t row = 0; good && row < rows; row++)
        good = errors_of_row(terms + row * count, count, table, bits, unit, out + 4 * row);
    free(table);
    return good;
}

/* Of each row; returns 0 without memory, too. */
EXPORTED int etviz_errors_of_sums(const double *terms, int64_t rows, int64_t count, int bits, double unit, double *out) {
    const int64_t part = rows / etviz_threads() + 1;
    int bad = 0;
#pragma omp parallel for num_threads(etviz_threads()) if (rows * count >= MANY) reduction(| : bad)
    for (int64_t row = 0; row < rows; row += part)
        bad |= !errors_of_sums(terms + row * count, rows - row < part ? rows - row : part, count, bits, unit, out + 4 * row);
    return !bad;
}

/* What the law of noise takes of normalized rows: of sums in any order (by squares and by total) and in pairs, the ε of
 * the sums, what is added to the variance, the size of the square of an error of 1, and whether the mean is taken off. */
typedef struct {
    double any_squares, any_total, pair_squares, pair_total, unit, eps, squared, centred;
} norm;

static inline double in_order(const double errors[4], const norm *n) {
    const double square = errors[2] * errors[2], drift = errors[1] * 2 / n->unit;
    const double any = n->any_squares * errors[3] + n->any_total * square;
    const double standing = errors[0] / 3 + n->pair_squares * errors[3] + n->pair_total * square;
    return fmax(fmax(any, standing), drift * drift);
}

EACH_TARGET
static int normalized(const float *x, const float *v, const double *weight, int64_t rows, int64_t total, int64_t count,
                      int bits, const norm *n, float *out, double *statistics) {
    double *table = malloc((((size_t)1 << bits) + (size_t)count) * sizeof *table), errors[4], again[4];
    double *row = table + ((size_t)1 << bits), all = 0;
    int good = table != 0;
    for (; good && rows > 0; rows--, x += count, v += count, out += count, statistics++) {
        double middle = 0, of_mean = 0, variance = 0;
        for (int64_t i = 0; i < count; i++) row[i] = x[i];
        if (n->centred) {
            good &= errors_of_row(row, count, table, bits, n->unit, errors);
            middle = errors[2] / count;
            of_mean = in_order(errors, n) / count / count + middle * middle;
        }
        for (int64_t i = 0; i < count; i++) {
            row[i] = (row[i] - middle) * (row[i] - middle);
            variance += row[i] / count;
        }
        good &= errors_of_row(row, count, table, bits, n->unit, errors);
        good &= errors_of_row(row, count, table, bits, 0, again);
        double of_variance = (in_order(errors, n) + again[0] * 5 / 3) / count / count;
        of_variance += variance * variance + 4 * middle * middle * variance / (3.0 * count);
        of_variance += n->squared * of_mean * n->squared * of_mean;
        const double inverse = 1 / (variance + n->eps), steps = 1 + of_variance * inverse * inverse / 4;
        for (int64_t i = 0; i < count; i++) {
            const double w = weight ? weight[i] : 1;
            const double square = (row[i] * inverse * steps + of_mean * inverse) * w * w + (double)v[i] * v[i];
            out[i] = (float)sqrt(square);
            all += out[i];
        }
        statistics[0] = sqrt(of_mean), statistics[total] = sqrt(inverse * steps);
    }
    free(table);
    return good && !is_infinite(all);
}

/* Sizes of normalized rows, and two of each row: of its mean, and of 1 over its deviation. Returns 0 as above. */
EXPORTED int etviz_normalized(const float *x, const float *v, const double *weight, int64_t rows, int64_t count, int bits,
                              const norm *n, float *out, double *statistics) {
    const int64_t part = rows / etviz_threads() + 1;
    int bad = 0;
#pragma omp parallel for num_threads(etviz_threads()) if (rows * count >= MANY) reduction(| : bad)
    for (int64_t row = 0; row < rows; row += part)
        bad |= !normalized(x + row * count, v + row * count, weight, rows - row < part ? rows - row : part, rows, count, bits,
                           n, out + row * count, statistics + row);
    return !bad;
}
