/**
 * What a size costs that a plan was not run with before: 10,000 random sizes of one plan in turn with as many calls of one
 * size, in one world of threads. Prints the 50th and 99th percentile of both on rank 0, and what the shared memory grew by.
 * Run after `npm run build`: node bench/plan-sizes.mjs [--ranks 2] [--calls 10000]
 */
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { launch } from "../dist/index.js";

const config = { options: { ranks: { type: "string", default: "2" }, calls: { type: "string", default: "10000" } } };
const { ranks, calls } = flagsOf(import.meta.url, config, ({ values }) => ({
  ranks: integer(values.ranks, "--ranks", 2),
  calls: integer(values.calls, "--calls"),
}));

const [result] = await launch({
  ranks,
  data: { calls },
  run: async (world, data) => {
    const { ringAllReduce } = await import("chorale/algorithms");
    const { comm } = world;
    const plan = ringAllReduce({ numRanks: comm.size }).plan();
    const [from, to] = [world.tensor("f32", [8192]), world.tensor("f32", [8192])];
    const time = (count) => {
      const buffers = { input: from.slice(0, count), output: to.slice(0, count) };
      const began = performance.now();
      comm.run(plan, buffers).wait();
      return (performance.now() - began) * 1e3;
    };
    // Numerical Recipes' generator: all ranks draw the same sizes.
    let state = 7;
    const random = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return 1 + (state >>> 19);
    };
    for (let i = 0; i < 2000; i++) time(4096);
    const before = comm.stats().memory.usedBytes;
    const [fixed, varied] = [[], []];
    for (let i = 0; i < data.calls; i++) {
      fixed.push(time(4096));
      varied.push(time(random()));
    }
    const at = (list, share) => list.sort((a, b) => a - b)[Math.floor(list.length * share)].toFixed(1);
    const row = (list) => ({ p50Us: at(list, 0.5), p99Us: at(list, 0.99) });
    return { fixed: row(fixed), random: row(varied), grownBytes: comm.stats().memory.usedBytes - before };
  },
});
console.log(
  `${ranks} ranks, ${calls} calls of 4096 elements: ${result.fixed.p50Us} us, 99th percentile ${result.fixed.p99Us}`,
);
console.log(`${calls} calls of 1 to 8192 elements: ${result.random.p50Us} us, 99th percentile ${result.random.p99Us}`);
console.log(`shared memory grew by ${result.grownBytes} bytes`);
