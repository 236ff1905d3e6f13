/* EACH_TARGET compiles a function for several instruction sets, of which the processor's best one runs. */
#ifndef ETVIZ_TARGETS_H
#define ETVIZ_TARGETS_H

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(ETVIZ_ONE_TARGET)
#define EACH_TARGET __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_TARGET
#endif

#endif
