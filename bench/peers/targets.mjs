/** What is asked of chorale's speed, by size, ranks and cores, and whether medians meet it. */

const KI = 1024;

/**
 * The checks of one size. `t` has medians in us: wait, await, mpi, gloo (undefined when absent).
 * @returns a list of { text, ok, ratio }
 */
export function checksOf(op, ranks, cores, bytes, t) {
  const checks = [];
  const add = (text, ok) => checks.push({ text, ok });
  const times = (peer) => peer / t.wait;
  if (op !== "all_reduce") {
    if (t.mpi !== undefined && bytes >= 16 * KI) add(">= 1.5x Open MPI", times(t.mpi) >= 1.5);
    return checks;
  }
  if (t.mpi !== undefined) {
    if (cores >= 16 && ranks <= 8) {
      if (bytes >= 16 * KI) add(">= 3x Open MPI", times(t.mpi) >= 3);
      else if (bytes >= 4 * KI) add(">= 1.5x Open MPI", times(t.mpi) >= 1.5);
      else if (bytes >= KI) add(">= 1x Open MPI", times(t.mpi) >= 1);
    } else if (ranks === 2 && cores >= 2) {
      if (bytes <= 4 * KI) {
        const limit = Math.max(1, 1.5 * t.mpi);
        add(`wait <= ${limit.toFixed(2)} us`, t.wait <= limit);
        if (t.await !== undefined) add("await <= wait + 0.5 us", t.await <= t.wait + 0.5);
      } else if (bytes >= 16 * KI) add(">= 2.5x Open MPI", times(t.mpi) >= 2.5);
    }
  }
  if (t.gloo !== undefined && ranks <= cores) {
    if (bytes <= 64 * KI) add(">= 20x Gloo", times(t.gloo) >= 20);
    else add(">= 2.5x Gloo", times(t.gloo) >= 2.5);
  }
  return checks;
}
