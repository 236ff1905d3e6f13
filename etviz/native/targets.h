/* How the functions of this folder are compiled and found. */
#ifndef ETVIZ_TARGETS_H
#define ETVIZ_TARGETS_H
#include <stdint.h>
#include <string.h>

/* Compiles a function for several instruction sets; the processor runs the best of them. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(ETVIZ_ONE_TARGET)
#define EACH_TARGET __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_TARGET
#endif

/* Makes a function visible to ctypes. */
#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* The threads that a pass over many elements may use: those of torch, where both have one pool, else one. */
#ifdef _OPENMP
#include <omp.h>
#endif
int etviz_threads(void);

/* True for NaN too, in code that is compiled for finite numbers. */
static inline int is_infinite(double x) {
    int64_t u;
    memcpy(&u, &x, 8);
    return (u & 0x7ff0000000000000) == 0x7ff0000000000000;
}

/* Elements from which threads pay, as torch has it. */
enum { MANY = 32768 };

#endif
