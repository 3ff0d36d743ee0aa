/**
 * Compares two builds on the threads backend in one run: `node bench/threads-compare.mjs --before DIR --after DIR [options]`,
 * where each DIR is a dist/ folder (with a trailing slash or not). The builds take turns, the first of each round
 * changing, so that both see the same machine.
 *
 *   --ranks 2,8    --ops all_reduce    --sizes 64,1K,16K,256K,1M,4M,16M,64M    --mode wait|await
 *   --rounds 12    --repeats 5         --limit 3 (percent)
 *   --calls 0.25   --warm-ms 300       (as of threads-micro.mjs)
 *
 * Processes differ more than repeats within one do, hence many short rounds. One line per (ranks, op, size): microseconds per
 * call before and after, medians over the rounds, and the change: the median over the rounds of after/before, with the interval
 * that holds it with 95 % (order statistics of the sign test, which assume no distribution). Exits 1 when a whole interval is
 * above the limit.
 */
import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
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
  },
};
const micro = fileURLToPath(new URL("threads-micro.mjs", import.meta.url));

/** Runs one build, and adds what it printed to `times`. */
function measure(dist, ranks, { ops, sizes, mode, repeats, calls, "warm-ms": warmMs }, times) {
  const lib = pathToFileURL(`${resolve(dist)}/`).href;
  const args = [micro, "--lib", lib, "--ranks", String(ranks), "--ops", ops, "--sizes", sizes, "--mode", mode];
  args.push("--repeats", repeats, "--calls", calls, "--warm-ms", warmMs);
  const run = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (run.status !== 0) throw new Error(`${dist}: ${run.stderr}`);
  for (const line of run.stdout.trim().split("\n")) {
    const [world, op, , bytes, medianUs] = line.split(" ");
    const key = `${world} ${op} ${bytes}`;
    times.set(key, [...(times.get(key) ?? []), Number(medianUs)]);
  }
}

const { worlds, rounds, limit, before, after, ...work } = flagsOf(import.meta.url, config, ({ values }) => {
  if (values.before === undefined) throw new Error("--before is missing: the dist/ folder of the older build");
  return { ...values, worlds: integers(values.ranks, "--ranks"), rounds: integer(values.rounds, "--rounds") };
});
let worst = Number.NEGATIVE_INFINITY;
console.log("ranks op bytes before_us after_us change (95 % interval)");
const percent = (value) => `${value >= 0 ? "+" : ""}${value.toFixed(1)}`;
for (const ranks of worlds) {
  const times = { before: new Map(), after: new Map() };
  const builds = [
    [before, times.before],
    [after, times.after],
  ];
  for (let round = 0; round < rounds; round++) {
    for (const [dist, into] of round % 2 === 0 ? builds : builds.toReversed()) measure(dist, ranks, work, into);
  }
  for (const [key, old] of times.before) {
    const now = times.after.get(key) ?? [];
    const changes = old.map((was, round) => ((now[round] ?? Number.NaN) / was - 1) * 100).toSorted((a, b) => a - b);
    const at = intervalOf(changes.length);
    const [low, high] = [changes[at], changes.at(-1 - at)];
    worst = Math.max(worst, low);
    const medians = `${median(old).toFixed(2)} ${median(now).toFixed(2)} ${percent(median(changes))} %`;
    console.log(`${key} ${medians} (${percent(low)} to ${percent(high)})`);
  }
}
console.log(`largest lower end of an interval: ${percent(worst)} %`);
if (worst > Number(limit)) process.exitCode = 1;
