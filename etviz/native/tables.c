/* Row and column sums of tables of 256 x 256 words of 64 bits, read from a file one after another.
 *
 * The file is read, not mapped: each page is looked at once, and mapping it takes longer than copying it.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "targets.h"

enum { SIDE = 256 };

EACH_TARGET
static void add_table(const uint64_t *restrict table, uint64_t *restrict rows, uint64_t *restrict columns) {
    memset(columns, 0, SIDE * sizeof *columns);
    for (int i = 0; i < SIDE; i++) {
        uint64_t sum = 0;
        for (int j = 0; j < SIDE; j++) {
            sum += table[i * SIDE + j];
            columns[j] += table[i * SIDE + j];
        }
        rows[i] = sum;
    }
}

/* Reads a whole table; returns 0 if the file ends before, or can't be read. */
static int read_table(int file, char *table, size_t size) {
    for (size_t have = 0; have < size;) {
        ssize_t got = read(file, table + have, size - have);
        if (got <= 0) return 0;
        have += (size_t)got;
    }
    return 1;
}

/* Writes 256 row sums, then 256 column sums of each table to `out`; returns the number of tables that were read. */
int64_t etviz_table_sums(int file, int64_t tables, uint64_t *out) {
    const size_t size = SIDE * SIDE * sizeof(uint64_t);
    uint64_t *table = aligned_alloc(64, size);
    int64_t done = 0;
    for (; table != NULL && done < tables && read_table(file, (char *)table, size); done++, out += 2 * SIDE)
        add_table(table, out, out + SIDE);
    free(table);
    return done;
}
