/**
 * Compares two builds on the threads backend in one run: `node bench/threads-compare.mjs --before DIR --after DIR [options]`,
 * where each DIR is a dist/ folder (with a trailing slash or not). The builds take turns, the first of each round
 * changing, so that both see the same machine.
 *
 *   --ranks 2,8    --ops all_reduce    --sizes 64,1K,16K,256K,1M,4M,16M,64M    --mode wait|await
 *   --rounds 12    --repeats 5         --limit 3 (percent)
 *   --calls 0.25   --warm-ms 300       (as of threads-micro.mjs)
 *   --lanes 0-2,3-5,6-8                cores (taskset's words) of rounds that run side by side; without it one after the other
 *
 * Processes differ more than repeats within one do, hence many short rounds: a hundred, in lanes of a large host's cores, show
 * a difference of 0.05 us. A lane needs a core more than there are ranks, for Node's main thread has work too. One line per
 * (ranks, op, size): microseconds per call before and after, medians over the rounds, and the change: the median over the rounds
 * of after/before, with the interval that holds it with 95 % (order statistics of the sign test, which assume no distribution).
 * Exits 1 when a whole interval is above the limit.
 */
import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { intervalOf, median } from "./sign-test.mjs";

const config = {
  options: {
    before: { type: "string" },
    after: { type: "string", default: fileURLToPath(new URL("../dist/", import.meta.url)) },
    ranks: { type: "string", default: "2,8" },
    ops: { type: "string", default: "all_reduce" },
    sizes: { type: "string", default: "64,1K,16K,256K,1M,4M,16M,64M" },
    mode: { type: "string", default: "wait" },
    rounds: { type: "string", default: "12" },
    repeats: { type: "string", default: "5" },
    calls: { type: "string", default: "0.25" },
    "warm-ms": { type: "string", default: "300" },
    limit: { type: "string", default: "3" },
    lanes: { type: "string" },
  },
};
const micro = fileURLToPath(new URL("threads-micro.mjs", import.meta.url));

/** Runs one build on a lane's cores. @returns microseconds by ranks, operation and bytes */
async function measure(dist, ranks, lane, { ops, sizes, mode, repeats, calls, "warm-ms": warmMs }) {
  const lib = pathToFileURL(`${resolve(dist)}/`).href;
  const args = [micro, "--lib", lib, "--ranks", String(ranks), "--ops", ops, "--sizes", sizes, "--mode", mode];
  args.push("--repeats", repeats, "--calls", calls, "--warm-ms", warmMs);
  const command = lane === undefined ? [process.execPath] : ["taskset", "-c", lane, process.execPath];
  const { stdout } = await promisify(execFile)(command[0], [...command.slice(1), ...args]);
  return stdout
    .trim()
    .split("\n")
    .map((line) => line.split(" "))
    .map(([world, op, , bytes, medianUs]) => [`${world} ${op} ${bytes}`, Number(medianUs)]);
}

const { worlds, rounds, limit, before, after, ...work } = flagsOf(import.meta.url, config, ({ values }) => {
  if (values.before === undefined) throw new Error("--before is missing: the dist/ folder of the older build");
  return { ...values, worlds: integers(values.ranks, "--ranks"), rounds: integer(values.rounds, "--rounds") };
});
let worst = Number.NEGATIVE_INFINITY;
console.log("ranks op bytes before_us after_us change (95 % interval)");
const percent = (value) => `${value >= 0 ? "+" : ""}${value.toFixed(1)}`;
for (const ranks of worlds) {
  /** By row: pairs of before and after, one a round. */
  const rows = new Map();
  let round = 0;
  const runRounds = async (lane) => {
    while (round < rounds) {
      const order = round++ % 2 === 0 ? ["before", "after"] : ["after", "before"];
      const times = {};
      for (const build of order) times[build] = await measure(build === "before" ? before : after, ranks, lane, work);
      for (const [i, [key, was]] of times.before.entries()) {
        rows.set(key, [...(rows.get(key) ?? []), [was, times.after[i][1]]]);
      }
    }
  };
  await Promise.all((work.lanes?.split(",") ?? [undefined]).map(runRounds));
  for (const [key, pairs] of rows) {
    const changes = pairs.map(([was, is]) => (is / was - 1) * 100).toSorted((a, b) => a - b);
    const at = intervalOf(changes.length);
    const [low, high] = [changes[at], changes.at(-1 - at)];
    worst = Math.max(worst, low);
    const [old, now] = [0, 1].map((build) => median(pairs.map((pair) => pair[build])).toFixed(2));
    const medians = `${old} ${now} ${percent(median(changes))} %`;
    console.log(`${key} ${medians} (${percent(low)} to ${percent(high)})`);
  }
}
console.log(`largest lower end of an interval: ${percent(worst)} %`);
if (worst > Number(limit)) process.exitCode = 1;
