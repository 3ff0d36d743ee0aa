/**
 * `npm run bench:peers -- -n 2 [--op all_reduce,...|all] [--repeats 7] [--max 64M] [--without gloo] [--out FILE.md]`:
 * the same sizes and ranks on chorale (wait and await), Open MPI and Gloo, interleaved repeat by repeat in one run.
 * `--prefix "taskset -c 2,3"` starts every measured program so, `--pause MS` waits after each.
 * Prints medians, spreads (least to most), ratios, and whether the project's targets are met; exit code 1 when not.
 */
import { appendFileSync, readFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { setTimeout } from "node:timers/promises";
import { flagsOf, integer } from "../../dist/apps/bench/script-flags.js";
import { oneOf } from "../../dist/core/internal.js";
import { findContenders } from "./contenders.mjs";
import { OPERATIONS } from "./operations.mjs";
import { checksOf } from "./targets.mjs";

const config = {
  options: {
    ranks: { type: "string", short: "n", default: "2" },
    op: { type: "string", default: "all_reduce" },
    repeats: { type: "string", default: "7" },
    min: { type: "string", default: "64" },
    max: { type: "string", default: "64M" },
    without: { type: "string", default: "" },
    prefix: { type: "string", default: "" },
    pause: { type: "string", default: "0" },
    out: { type: "string" },
    json: { type: "boolean", default: false },
  },
};

/** `64M` -> bytes. */
const size = (text, flag) => {
  const unit = { K: 1024, M: 1024 ** 2, G: 1024 ** 3 }[text.at(-1)?.toUpperCase()];
  return integer(unit === undefined ? text : text.slice(0, -1), flag) * (unit ?? 1);
};
const values = flagsOf(import.meta.url, config, ({ values: words }) => ({
  ...words,
  ranks: integer(words.ranks, "--ranks"),
  repeats: integer(words.repeats, "--repeats"),
  ops: words.op === "all" ? OPERATIONS : words.op.split(",").map((op) => oneOf(op, "--op", [...OPERATIONS, "all"])),
  min: size(words.min, "--min"),
  max: size(words.max, "--max"),
  pause: integer(words.pause, "--pause", 0),
}));
const { ranks, repeats, ops } = values;
const cores = availableParallelism();

/**
 * Calls per size, the same for chorale and MPI: enough that a compiler's or a scheduler's moment does not count. Gloo,
 * a hundred times slower at small sizes, does a hundredth of them.
 */
function iterationsOf(bytes) {
  const oversubscribed = ranks > cores ? 50 : 1;
  const calls = bytes <= 4096 ? 100_000 : bytes <= 65536 ? 20_000 : bytes <= 2 ** 20 ? 1000 : bytes <= 2 ** 24 ? 40 : 8;
  return Math.max(4, Math.round(calls / oversubscribed));
}

const sizes = [64, 1024, 4096, 16384, 65536, 2 ** 18, 2 ** 20, 2 ** 22, 2 ** 24, 2 ** 26]
  .filter((bytes) => bytes >= values.min && bytes <= values.max)
  .map((bytes) => ({ bytes, iterations: iterationsOf(bytes) }));

const { contenders, skipped } = findContenders(
  ranks,
  ["mpi", "gloo"].filter((key) => !values.without.split(",").includes(key)),
  values.prefix.split(" ").filter((word) => word !== ""),
);
for (const text of skipped) console.error(`skipped ${text}`);

const median = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};
const us = (t) => (t >= 100 ? t.toFixed(0) : t >= 10 ? t.toFixed(1) : t.toFixed(2));
const human = (bytes) =>
  bytes >= 2 ** 20 ? `${bytes / 2 ** 20} MiB` : bytes >= 1024 ? `${bytes / 1024} KiB` : `${bytes} B`;

const loadBefore = loadavg()[0];
if (loadBefore > 0.5) console.error(`the machine is not idle (load ${loadBefore.toFixed(1)}): expect noise`);
const engines = new Map();
let failures = 0;
let wrong = 0;
const documents = [];
const lines = [];
const print = (line) => {
  lines.push(line);
  if (!values.json) console.log(line);
};

for (const op of ops) {
  const samples = new Map(contenders.map(({ key }) => [key, new Map(sizes.map(({ bytes }) => [bytes, []]))]));
  const absent = new Set();
  for (let repeat = 0; repeat < repeats; repeat++) {
    for (let i = 0; i < contenders.length; i++) {
      // Everybody goes first in turn.
      const contender = contenders[(i + repeat) % contenders.length];
      if (absent.has(contender.key)) continue;
      if (process.stderr.isTTY)
        process.stderr.write(`\r\u001b[2K${op}: repeat ${repeat + 1} of ${repeats}, ${contender.name}`);
      const result = await contender.run(op, sizes);
      await setTimeout(values.pause);
      if (result.engine !== undefined) engines.set(contender.key, result.engine);
      if (result.skipped !== undefined) {
        absent.add(contender.key);
        console.error(`skipped ${contender.name}: ${result.skipped}`);
      }
      for (const row of result.rows) {
        samples.get(contender.key).get(row.sizeBytes)?.push(row.timeUs);
        wrong += row.wrong ?? 0;
      }
    }
  }
  if (process.stderr.isTTY) process.stderr.write("\r\u001b[2K");
  const present = contenders.filter(({ key }) => !absent.has(key));
  print(`\n### ${op}, f32, ${ranks} ranks (us per call: median, least-most of ${repeats})\n`);
  print(`| size | ${present.map(({ name }) => name).join(" | ")} | MPI/wait | Gloo/wait | targets |`);
  print(`|---|${present.map(() => "---|").join("")}---|---|---|`);
  for (const { bytes } of sizes) {
    const medians = {};
    const cells = present.map(({ key }) => {
      const list = samples.get(key).get(bytes);
      if (list.length === 0) return "-";
      medians[key] = median(list);
      return `${us(medians[key])} (${us(Math.min(...list))}-${us(Math.max(...list))})`;
    });
    const checks = medians.wait === undefined ? [] : checksOf(op, ranks, cores, bytes, medians);
    failures += checks.filter(({ ok }) => !ok).length;
    const ratio = (peer) => (peer === undefined ? "-" : `${(peer / medians.wait).toFixed(2)}x`);
    const verdict = checks.map(({ text, ok }) => `${ok ? "pass" : "FAIL"} ${text}`).join("; ");
    print(
      `| ${human(bytes)} | ${cells.join(" | ")} | ${ratio(medians.mpi)} | ${ratio(medians.gloo)} | ${verdict || "-"} |`,
    );
    documents.push({ op, ranks, sizeBytes: bytes, medians, checks });
  }
}

const cpu = /model name\s*:\s*(.*)/.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1] ?? "unknown CPU";
const summary = [
  "",
  `${new Date().toISOString().slice(0, 10)}, ${cpu}, ${cores} cores, load average ${loadBefore.toFixed(1)} before the run. ${[...new Set(engines.values())].join("; ")}.`,
  `Command: \`npm run bench:peers -- ${process.argv.slice(2).join(" ")}\`. Wrong elements: ${wrong}. Targets missed: ${failures}.`,
  ...skipped.map((text) => `Skipped: ${text}.`),
];
for (const line of summary) print(line);
if (values.json)
  console.log(JSON.stringify({ ranks, cores, cpu, rows: documents, wrong, targetsMissed: failures }, null, 2));
if (values.out !== undefined) appendFileSync(values.out, `${lines.join("\n")}\n`);
process.exitCode = failures > 0 || wrong > 0 ? 1 : 0;
