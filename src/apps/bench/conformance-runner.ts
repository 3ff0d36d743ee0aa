/**
 * The conformance suite for hosts that have only Node: `node dist/apps/bench/conformance-runner.js [--full]
 * [--seed N] [--ranks 2,4] [--backend threads] [--isolation thread|process] [--only data|behaviour] [--filter TEXT]
 * [--interleavings N] [--backend-option KEY=VALUE …] [--times]`. Ends with `N passed, N failed, N skipped`, exit code 1 when something failed.
 * `--times` tells on stderr which case runs, and the milliseconds of each that ended: a run that was stopped shows in
 * its last line how far it came and in what it was.
 */
import { parseArgs } from "node:util";
import { parseBackend, parseBackendOptions, parseIsolation } from "../../runtime/world/index.ts";
import { type ConformanceOptions, runConformance } from "./conformance/run.ts";

const { values } = parseArgs({
  options: {
    full: { type: "boolean", default: false },
    seed: { type: "string" },
    ranks: { type: "string" },
    backend: { type: "string", default: "threads" },
    isolation: { type: "string", default: "thread" },
    only: { type: "string" },
    filter: { type: "string" },
    interleavings: { type: "string" },
    "backend-option": { type: "string", multiple: true, default: [] },
    times: { type: "boolean", default: false },
  },
});

const tty = process.stderr.isTTY === true;
let lastPercent = -1;
/** The case whose line waits for its time. */
let open = 0;
function endLine(): void {
  if (open !== 0) process.stderr.write("\n");
  open = 0;
}
const options: ConformanceOptions = {
  backend: parseBackend(values.backend),
  isolation: parseIsolation(values.isolation),
  backendOptions: parseBackendOptions(values["backend-option"]),
  full: values.full,
  ...(values.seed === undefined ? {} : { seed: Number(values.seed) }),
  ...(values.ranks === undefined ? {} : { ranks: values.ranks.split(",").map(Number) }),
  ...(values.only === "data" || values.only === "behaviour" ? { only: values.only } : {}),
  ...(values.filter === undefined ? {} : { filter: values.filter }),
  ...(values.interleavings === undefined ? {} : { interleavings: Number(values.interleavings) }),
  ...(values.times
    ? {
        onCase: ({ place, total, name, ms }) => {
          if (place !== open) {
            endLine();
            process.stderr.write(`${place} of ${total}: ${name}: `);
            open = place;
          }
          if (ms === undefined) return;
          process.stderr.write(`${ms.toFixed(1)} ms\n`);
          open = 0;
        },
      }
    : {}),
  onFailure: (name) => {
    endLine();
    process.stderr.write(`${tty ? "\r" : ""}FAILED ${name}\n`);
  },
  onProgress: (done, total) => {
    endLine();
    const percent = Math.floor((100 * done) / total);
    if (tty) process.stderr.write(`\r${done} of ${total} cases`);
    else if (percent >= lastPercent + 10) {
      process.stderr.write(`${done} of ${total} cases after ${(performance.now() / 1000).toFixed(1)} s\n`);
      lastPercent = percent;
    }
  },
};

const result = await runConformance(options);
if (tty) process.stderr.write("\r");
for (const { name, problems } of result.failed) {
  console.log(`FAILED ${name}`);
  for (const problem of problems.slice(0, 6)) console.log(`    ${problem.replaceAll("\n", "\n    ")}`);
  if (problems.length > 6) console.log(`    and ${problems.length - 6} more`);
}
for (const { why, cases } of result.skipped) console.log(`skipped ${cases} cases: the backend has ${why}`);
console.log(
  `slowest: ${result.slowest
    .map(({ name, ms }) => `${name} ${ms} ms`)
    .slice(0, 3)
    .join("; ")}`,
);
console.log(
  `backend ${values.backend}, ranks as ${values.isolation === "process" ? "processes" : "threads"}, seed ${result.seed}, ${(result.tookMs / 1000).toFixed(1)} s`,
);
console.log(`${result.numPassed} passed, ${result.failed.length} failed, ${result.numSkipped} skipped`);
process.exitCode = result.failed.length > 0 ? 1 : 0;
