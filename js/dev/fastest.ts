// For the tests: a busy machine is slow now and then, not each time.

/** The least of the milliseconds that some runs take. */
export function fastest(run: () => unknown, runs = 5): number {
  const took = Array.from({ length: runs }, () => {
    const start = performance.now();
    run();
    return performance.now() - start;
  });
  return Math.min(...took);
}
