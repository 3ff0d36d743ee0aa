/**
 * Compares two builds on the threads backend in one run: `node bench/threads-compare.mjs --before DIR --after DIR [options]`,
 * where each DIR is a dist/ folder (with a trailing slash or not). The builds take turns, the first of each round
 * changing, so that both see the same machine.
 *
 *   --ranks 2,8    --ops all_reduce    --sizes 64,1K,16K,256K,1M,4M,16M,64M    --mode wait|await
 *   --rounds 6     --repeats 11        --limit 3 (percent)
 *
 * One line per (ranks, op, size): microseconds per call before and after, medians over the rounds, and the change.
 * Exits 1 when a change is above the limit.
 */
import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";

const config = {
  options: {
    before: { type: "string" },
    after: { type: "string", default: fileURLToPath(new URL("../dist/", import.meta.url)) },
    ranks: { type: "string", default: "2,8" },
    ops: { type: "string", default: "all_reduce" },
    sizes: { type: "string", default: "64,1K,16K,256K,1M,4M,16M,64M" },
    mode: { type: "string", default: "wait" },
    rounds: { type: "string", default: "6" },
    repeats: { type: "string", default: "11" },
    limit: { type: "string", default: "3" },
  },
};
const micro = fileURLToPath(new URL("threads-micro.mjs", import.meta.url));
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Runs one build, and adds what it printed to `times`. */
function measure(dist, ranks, { ops, sizes, mode, repeats }, times) {
  const lib = pathToFileURL(`${resolve(dist)}/`).href;
  const args = [micro, "--lib", lib, "--ranks", String(ranks), "--ops", ops, "--sizes", sizes, "--mode", mode];
  const run = spawnSync(process.execPath, [...args, "--repeats", repeats], { encoding: "utf8" });
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
console.log("ranks op bytes before_us after_us change");
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
    const [was, is] = [median(old), median(times.after.get(key) ?? [])];
    const percent = (is / was - 1) * 100;
    worst = Math.max(worst, percent);
    console.log(`${key} ${was.toFixed(2)} ${is.toFixed(2)} ${percent >= 0 ? "+" : ""}${percent.toFixed(1)} %`);
  }
}
console.log(`largest change ${worst.toFixed(1)} %`);
if (worst > Number(limit)) process.exitCode = 1;
