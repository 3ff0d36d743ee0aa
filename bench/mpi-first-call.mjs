/**
 * How long the first awaited all-reduce of a new group keeps the event loop on the core, beside the ones after it: the first makes
 * MPI's communicator, measures what serves it, and touches memory. Time in which others hold the core does not count; the kernel
 * counts in ticks of 1 to 4 ms. Prints the longest turn of the calls 1 to 3 on the slowest rank, ms, for each way to serve them.
 * Needs Linux and Open MPI or MPICH; after `npm run build`:
 *   node bench/mpi-first-call.mjs [--ranks N] [--mpi openmpi|mpich] [--bytes N]
 */
import { launch } from "chorale/world";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const config = {
  options: {
    ranks: { type: "string", default: "2" },
    mpi: { type: "string", default: "openmpi" },
    bytes: { type: "string", default: String(2 ** 26) },
  },
};
const { ranks, mpi, bytes } = flagsOf(import.meta.url, config, ({ values }) => ({
  ranks: integer(values.ranks, "--ranks"),
  mpi: oneOf(values.mpi, "--mpi", ["openmpi", "mpich"]),
  bytes: integer(values.bytes, "--bytes"),
}));

/** Runs on each rank. @returns the longest turn of each call, ms */
const measure = async (world, bytes) => {
  const { readFileSync } = await import("node:fs");
  const ranMs = () => Number.parseInt(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8"), 10) / 1e6;
  const x = world.tensor("f32", [bytes / 4]);
  const group = await world.comm.split(0);
  const found = [];
  for (let i = 0; i < 3; i++) {
    let [last, going, longestMs] = [ranMs(), true, 0];
    const tick = () => {
      const now = ranMs();
      longestMs = Math.max(longestMs, now - last);
      last = now;
      if (going) setImmediate(tick);
    };
    setImmediate(tick);
    await group.allReduce(x);
    going = false;
    await new Promise((resolve) => setImmediate(resolve));
    found.push(longestMs);
  }
  return found;
};

const env = { CHORALE_MPI_LIBRARY: mpi === "mpich" ? "libmpich.so.12" : "libmpi.so.40" };
for (const choices of ["measured", "exchange", "mpi"]) {
  const all = await launch({ ranks, backend: "mpi", env, backendOptions: { choices }, run: measure, data: bytes });
  const worst = [0, 1, 2].map((call) => Math.max(...all.map((of) => of[call])).toFixed(1));
  console.log(`${mpi}, ${ranks} ranks, ${choices}: longest turn on the core in calls 1 to 3: ${worst.join(", ")} ms`);
}
