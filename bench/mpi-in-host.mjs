/**
 * The exchange inside a host beside MPI alone, in turn in one world: the first four groups of a world have room for the exchange,
 * so a fifth is MPI's. Figures of two worlds would be apart by where the machine put their processes. Prints the lower quartile of
 * the rounds, us per call of f32 through `wait()`; how many times as fast as MPI alone the exchange is; and the median over the
 * rounds of its time over MPI's, with the interval that holds it with 95 % (sign test): SLOWER where all of that is above 1.03.
 * The size is that of the larger of a rank's two buffers. Needs Open MPI or MPICH; after `npm run build`:
 *   node bench/mpi-in-host.mjs [--ranks N] [--rounds N] [--mpi openmpi|mpich] [--sizes BYTES,…] [--ops OP,…] [--choices exchange|measured]
 * `--choices measured`: what is chosen by measurement beside MPI alone, in place of the exchange.
 */
import { launch } from "chorale/world";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";
import { intervalOf, median } from "./sign-test.mjs";

const OPS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"];

const config = {
  options: {
    ranks: { type: "string", default: "2" },
    rounds: { type: "string", default: "100" },
    mpi: { type: "string", default: "openmpi" },
    sizes: { type: "string", default: "1024,4096,16384,65536,262144" },
    ops: { type: "string", default: OPS.join() },
    choices: { type: "string", default: "exchange" },
  },
};
const { ranks, rounds, mpi, sizes, ops, choices } = flagsOf(import.meta.url, config, ({ values }) => ({
  ranks: integer(values.ranks, "--ranks"),
  rounds: integer(values.rounds, "--rounds"),
  mpi: oneOf(values.mpi, "--mpi", ["openmpi", "mpich"]),
  sizes: integers(values.sizes, "--sizes", 4),
  ops: values.ops.split(",").map((op) => oneOf(op, "--ops", OPS)),
  choices: oneOf(values.choices, "--choices", ["exchange", "measured"]),
}));

/** Runs on each rank. @returns rows of operation, bytes, and the times of all rounds by the exchange, and by MPI alone */
const measure = async (world, { sizes, rounds, ops }) => {
  const { comm } = world;
  let alone;
  for (let i = 0; i < 5; i++) alone = await comm.split(0, world.rank);
  const rows = [];
  // The first size twice: in a world that has just begun, the engine compiles yet.
  for (const [nth, bytes] of [sizes[0], ...sizes].entries()) {
    const [whole, other] = [1, 2].map(() => world.tensor("f32", [bytes / 4]));
    const part = world.tensor("f32", [Math.max(1, Math.floor(bytes / 4 / world.size))]);
    const [toOther, toWhole, toPart] = [other, whole, part].map((output) => ({ output }));
    const operations = {
      all_reduce: (group) => group.allReduce(whole, toOther).wait(),
      all_gather: (group) => group.allGather(part, toWhole).wait(),
      reduce_scatter: (group) => group.reduceScatter(whole, toPart).wait(),
      all_to_all: (group) => group.allToAll(whole, toOther).wait(),
    };
    for (const op of ops) {
      const call = operations[op];
      const numCalls = bytes > 2 ** 22 ? 2 : bytes > 100_000 ? 10 : 40;
      const numWarm = bytes > 2 ** 22 ? 3 : bytes > 2 ** 19 ? 30 : 500;
      for (let i = 0; i < numWarm; i++) for (const group of [comm, alone]) call(group);
      const times = [[], []];
      for (let round = 0; round < rounds; round++) {
        for (const way of round % 2 === 0 ? [0, 1] : [1, 0]) {
          const group = [comm, alone][way];
          group.barrier().wait();
          call(group);
          const start = performance.now();
          for (let i = 0; i < numCalls; i++) call(group);
          times[way].push(((performance.now() - start) / numCalls) * 1000);
        }
      }
      if (nth > 0) rows.push([op, bytes, ...times]);
    }
  }
  return { rows, choices: comm.stats().choices, byMpi: alone.stats().choices === undefined };
};

const env = { CHORALE_MPI_LIBRARY: mpi === "mpich" ? "libmpich.so.12" : "libmpi.so.40" };
const options = { ranks, backend: "mpi", env, backendOptions: { choices } };
const [{ rows, byMpi, choices: served }] = await launch({ ...options, run: measure, data: { sizes, rounds, ops } });
if (!byMpi) throw new Error("the fifth group was not MPI's alone");
console.log(
  `${mpi}, ${ranks} ranks: operation, bytes, ${choices} us, MPI alone us, times as fast, its time over MPI's (95 %)`,
);
const quartile = (all) => all.toSorted((a, b) => a - b)[all.length >> 2];
for (const [op, bytes, ours, theirs] of rows) {
  const [us, alone] = [ours, theirs].map(quartile);
  const figures = [us, alone, alone / us].map((value) => value.toFixed(2).padStart(9));
  const over = ours.map((one, round) => one / theirs[round]).toSorted((a, b) => a - b);
  const at = intervalOf(over.length);
  const [low, high] = [over[at], over.at(-1 - at)];
  const interval = `${median(over).toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})${low > 1.03 ? " SLOWER" : ""}`;
  console.log(`${op.padEnd(14)} ${String(bytes).padStart(8)} ${figures.join(" ")} ${interval}`);
}
console.log(`served: ${JSON.stringify(served)}`);
