/** The conformance suite as a command, for hosts that have only Node. */
import { oneOf } from "../../core/internal.ts";
import { backendKind, parseBackend, parseBackendOptions, parseIsolation } from "../../runtime/world/index.ts";
import { flagsOf, integer, integers } from "../bench/internal.ts";
import { type ConformanceOptions, runConformance } from "./run-conformance.ts";

const USAGE = `node dist/apps/conformance/conformance-command.js [--full] [--seed N] [--ranks 2,4] [--backend threads]
  [--isolation thread|process] [--only data|behaviour] [--filter TEXT] [--interleavings N]
  [--backend-option KEY=VALUE ...] [--times]
Ends with "N passed, N failed, N skipped"; exit code 1 when something failed.
--times tells on stderr which case runs, the milliseconds of each that ended, and at once what is wrong: a run that was
stopped shows how far it came, and in what it was.`;

const config = {
  options: {
    full: { type: "boolean", default: false },
    seed: { type: "string" },
    ranks: { type: "string" },
    backend: { type: "string", default: "threads" },
    isolation: { type: "string" },
    only: { type: "string" },
    filter: { type: "string" },
    interleavings: { type: "string" },
    "backend-option": { type: "string", multiple: true },
    times: { type: "boolean", default: false },
  },
} as const;
/** What the words say; `times` is of this script. */
const { times, ...chosen } = flagsOf({ name: "conformance-command.js", usage: USAGE }, config, ({ values }) => ({
  backend: parseBackend(values.backend, "--backend"),
  ...(values.isolation === undefined ? {} : { isolation: parseIsolation(values.isolation, "--isolation") }),
  backendOptions: parseBackendOptions(values["backend-option"] ?? []),
  full: values.full,
  times: values.times,
  ...(values.seed === undefined ? {} : { seed: integer(values.seed, "--seed", 0) }),
  ...(values.ranks === undefined ? {} : { ranks: integers(values.ranks, "--ranks") }),
  ...(values.only === undefined ? {} : { only: oneOf(values.only, "--only", ["data", "behaviour"]) }),
  ...(values.filter === undefined ? {} : { filter: values.filter }),
  ...(values.interleavings === undefined ? {} : { interleavings: integer(values.interleavings, "--interleavings", 0) }),
}));

const isolation = chosen.isolation ?? (await backendKind(chosen.backend)).isolations[0];

const tty = process.stderr.isTTY === true;
let lastPercent = -1;
/** The case whose line waits for its time. */
let open = 0;
function endLine(): void {
  if (open !== 0) process.stderr.write("\n");
  open = 0;
}
const options: ConformanceOptions = {
  ...chosen,
  ...(times
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
  onFailure: (name, problem) => {
    endLine();
    process.stderr.write(
      `${tty ? "\r" : ""}FAILED ${name}\n${times ? `    ${problem.replaceAll("\n", "\n    ")}\n` : ""}`,
    );
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
  `backend ${chosen.backend}, ranks as ${isolation === "process" ? "processes" : "threads"}, seed ${result.seed}, ${(result.tookMs / 1000).toFixed(1)} s`,
);
console.log(`${result.numPassed} passed, ${result.failed.length} failed, ${result.numSkipped} skipped`);
process.exitCode = result.failed.length > 0 ? 1 : 0;
