/**
 * The exchange inside a host beside MPI alone, in turn in one world: the first four groups of a world have room for the exchange,
 * so a fifth is MPI's. Figures of two worlds would be apart by where the machine put their processes. Prints the lower quartile of
 * the rounds, us per call of f32 through `wait()`, and how many times as fast the exchange is. The size is that of the larger of a
 * rank's two buffers. Needs Open MPI or MPICH; after `npm run build`:
 *   node bench/mpi-in-host.mjs [--ranks N] [--rounds N] [--mpi openmpi|mpich] [--sizes BYTES,…]
 */
import { launch } from "chorale/world";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const config = {
  options: {
    ranks: { type: "string", default: "2" },
    rounds: { type: "string", default: "100" },
    mpi: { type: "string", default: "openmpi" },
    sizes: { type: "string", default: "1024,4096,16384,65536,262144" },
  },
};
const { ranks, rounds, mpi, sizes } = flagsOf(import.meta.url, config, ({ values }) => ({
  ranks: integer(values.ranks, "--ranks"),
  rounds: integer(values.rounds, "--rounds"),
  mpi: oneOf(values.mpi, "--mpi", ["openmpi", "mpich"]),
  sizes: integers(values.sizes, "--sizes", 4),
}));

/** Runs on each rank. @returns rows of operation, bytes, by the exchange, by MPI alone */
const measure = async (world, { sizes, rounds }) => {
  const { comm } = world;
  let alone;
  for (let i = 0; i < 5; i++) alone = await comm.split(0, world.rank);
  const rows = [];
  for (const bytes of sizes) {
    const [whole, other] = [1, 2].map(() => world.tensor("f32", [bytes / 4]));
    const part = world.tensor("f32", [Math.max(1, Math.floor(bytes / 4 / world.size))]);
    const [toOther, toWhole, toPart] = [other, whole, part].map((output) => ({ output }));
    const operations = {
      all_reduce: (group) => group.allReduce(whole, toOther).wait(),
      all_gather: (group) => group.allGather(part, toWhole).wait(),
      reduce_scatter: (group) => group.reduceScatter(whole, toPart).wait(),
      all_to_all: (group) => group.allToAll(whole, toOther).wait(),
    };
    for (const [op, call] of Object.entries(operations)) {
      const numCalls = bytes > 100_000 ? 10 : 40;
      for (let i = 0; i < 500; i++) for (const group of [comm, alone]) call(group);
      const times = [[], []];
      for (let round = 0; round < rounds; round++) {
        for (const [way, group] of [comm, alone].entries()) {
          group.barrier().wait();
          call(group);
          const start = performance.now();
          for (let i = 0; i < numCalls; i++) call(group);
          times[way].push(((performance.now() - start) / numCalls) * 1000);
        }
      }
      rows.push([op, bytes, ...times.map((all) => all.sort((a, b) => a - b)[rounds >> 2])]);
    }
  }
  return { rows, byMpi: alone.stats().choices === undefined };
};

const env = { CHORALE_MPI_LIBRARY: mpi === "mpich" ? "libmpich.so.12" : "libmpi.so.40" };
const options = { ranks, backend: "mpi", env, backendOptions: { choices: "exchange" } };
const [{ rows, byMpi }] = await launch({ ...options, run: measure, data: { sizes, rounds } });
if (!byMpi) throw new Error("the fifth group was not MPI's alone");
console.log(`${mpi}, ${ranks} ranks: operation, bytes, exchange us, MPI alone us, times as fast`);
for (const [op, bytes, exchange, alone] of rows) {
  const figures = [exchange, alone, alone / exchange].map((value) => value.toFixed(2).padStart(9));
  console.log(`${op.padEnd(14)} ${String(bytes).padStart(8)} ${figures.join(" ")}`);
}
