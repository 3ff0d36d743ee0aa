// One rank of bench/mpi-hosts.mjs: `node mpi-hosts-rank.mjs OPS SIZES MS`. Rank 0 prints one line of JSON.
import { joinWorld } from "chorale";

const [, , ops, sizes, ms] = process.argv;
const world = await joinWorld({ timeoutMs: 60_000 });
const { comm, rank, size } = world;
const rows = [];
for (const op of ops.split(",")) {
  for (const bytes of sizes.split(",").map(Number)) {
    // The larger of a rank's two buffers has so many bytes, as everywhere.
    const whole = bytes / 4;
    const part = Math.max(1, Math.floor(whole / size));
    const large = world.tensor("f32", [op === "all_gather" || op === "reduce_scatter" ? part * size : whole]);
    const other = world.tensor("f32", [op === "all_gather" || op === "reduce_scatter" ? part : whole]);
    const call = {
      all_reduce: () => comm.allReduce(large, { output: other }),
      broadcast: () => comm.broadcast(large),
      reduce: () => comm.reduce(large, { output: other }),
      all_gather: () => comm.allGather(other, { output: large }),
      reduce_scatter: () => comm.reduceScatter(large, { output: other }),
    }[op];
    const timed = (calls) => {
      comm.barrier().wait();
      const start = performance.now();
      for (let i = 0; i < calls; i++) call().wait();
      // A broadcast's root and a reduction's givers end before the others: all wait for the last.
      comm.barrier().wait();
      return ((performance.now() - start) / calls) * 1000;
    };
    // The first may measure.
    call().wait();
    const took = Float64Array.of(timed(2));
    comm.broadcast(took).wait();
    const calls = Math.max(1, Math.min(200, Math.floor((Number(ms) * 1000) / 8 / took[0])));
    rows.push({ op, bytes, us: Array.from({ length: 8 }, () => timed(calls)) });
  }
}
if (rank === 0) process.stdout.write(`${JSON.stringify({ rows, choices: comm.stats().choices })}\n`);
await world.close();
