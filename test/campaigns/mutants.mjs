/**
 * Mutants of every file option of the command line, on all cores; the suite makes a few of each (mutants.test.ts):
 *   node test/campaigns/mutants.mjs [--mutants N] [--slow N] [--seed S] [--only REGEX] [--jobs N] [--minutes M] [--logs DIR]
 * `--mutants`: of each option (10,000); `--slow`: of those whose calls start ranks or programs (a third of that).
 * `--minutes`: begins no mutants later; SIGTERM and SIGINT do the same. A fault is tried again, alone in a new process.
 * `--logs`: a file per option in DIR, of what was made of it; the same command goes on where they end, with the same seed,
 * and `--minutes 0` prints the table of what they hold. Exits 1 when a call ended otherwise than with exit code 0, 1, 2 or 3
 * and a sentence, took 20 s, refused the file before it was changed, or when a process needed 1 GB.
 */
import { fork } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { bundleTests } from "../../scripts/bundle-tests.mjs";
import { transpileSources } from "../../scripts/transpile.mjs";
import { appendResult, firstSeedOf, readResults, uncovered } from "./mutants-logs.mjs";

const option = { type: "string" };
const { values } = parseArgs({
  options: { mutants: option, slow: option, seed: option, only: option, jobs: option, minutes: option, logs: option },
});
const mutants = Number(values.mutants ?? 10_000);
const slow = Number(values.slow ?? Math.ceil(mutants / 3));
const { logs } = values;
const seed = Number(values.seed ?? Date.now() % 1_000_000_000);
const firstSeed = logs === undefined ? seed : firstSeedOf(logs, seed);
const only = new RegExp(values.only ?? "");
const jobs = Number(values.jobs ?? availableParallelism());
let endsAt = Date.now() + 60_000 * Number(values.minutes ?? 1e6);
for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => {
    endsAt = 0;
  });

/** Mutants of one order, and of one process: what calls leave behind is not counted as one call's memory for ever. */
const [ORDER, SLOW_ORDER, PROCESS] = [100, 20, 1500];
/** A process whose mutant does not end is killed, ms. */
const HANG_MS = 60_000;
const MAX_MB = 1000;

const root = fileURLToPath(new URL("../..", import.meta.url));
const temporary = mkdtempSync(join(tmpdir(), "chorale-mutants-"));
const dev = await transpileSources();
const worker = join(root, `.cache/mutants-${process.pid}.mjs`);
await bundleTests("test/support/mutants-worker.ts", worker, [
  {
    name: "sources as they are run",
    setup({ onResolve, onLoad }) {
      // The command line starts threads and processes from its own files: they are not bundled.
      onResolve({ filter: /\/src\// }, ({ path, resolveDir }) => {
        const file = relative(join(root, "src"), resolve(resolveDir, path));
        return { path: pathToFileURL(join(dev, file.replace(/\.ts$/, ".js"))).href, external: true };
      });
      onLoad({ filter: /test\/support\/.*\.ts$/ }, ({ path }) => ({
        contents: readFileSync(path, "utf8").replaceAll("import.meta.url", JSON.stringify(pathToFileURL(path).href)),
        loader: "ts",
        resolveDir: dirname(path),
      }));
    },
  },
]);

let numProcesses = 0;
/** Starts a process, and gives what it says first: the options. */
function start() {
  const folder = join(temporary, String(numProcesses++));
  mkdirSync(folder);
  const child = fork(worker, [folder], { stdio: ["ignore", "ignore", "pipe", "ipc"] });
  let said = "";
  child.stderr.on("data", (text) => {
    said = (said + text).slice(-2000);
  });
  const options = new Promise((resolve, reject) => {
    child.once("message", (message) => resolve(message.options));
    child.once("exit", () => reject(new Error(`the process did not start: ${said}`)));
  });
  options.catch(() => {});
  return { child, folder, options, made: 0, said: () => said };
}

function end({ child, folder }) {
  child.removeAllListeners("exit");
  child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}

/** Has a process make the mutants of an order. A process that hangs or ends is a fault of the mutant that it was at. */
async function obey(process, order, mayLeave) {
  await process.options;
  const { child } = process;
  process.made += order.count;
  return new Promise((resolve) => {
    let at = order.seed;
    const lose = (problem) =>
      finish({ codes: {}, faults: [{ seed: at, problem }], totalMs: 0, worstMs: 0, mostMb: 0, lost: true, at });
    const late = () => lose(`did not end within ${HANG_MS / 1000} s`);
    let timer = setTimeout(late, HANG_MS);
    const finish = (result) => {
      clearTimeout(timer);
      child.off("message", hear);
      child.off("exit", ended);
      resolve(result);
    };
    const hear = (message) => {
      if (message.done !== undefined) finish(message.done);
      else if (message.at !== undefined) {
        at = message.at;
        clearTimeout(timer);
        timer = setTimeout(late, HANG_MS);
      }
    };
    const ended = (code, signal) => {
      const said = process.said().trim();
      if (mayLeave && signal === null && code <= 3 && said === "")
        finish({ codes: {}, faults: [], totalMs: 0, worstMs: 0, mostMb: 0, lost: true, at });
      else lose(`the process ended with ${signal ?? code}: ${said.slice(-300)}`);
    };
    child.on("message", hear);
    child.once("exit", ended);
    child.send(order);
  });
}

const first = start();
const all = await first.options;
const rows = all.map(({ name, isSlow, mayLeave }, index) => {
  const asked = only.test(name) ? (isSlow ? slow : mutants) : 0;
  return {
    name,
    index,
    isSlow,
    mayLeave,
    asked,
    made: 0,
    codes: {},
    faults: [],
    totalMs: 0,
    worstMs: 0,
    worstSeed: 0,
    mostMb: 0,
  };
});

if (rows.every(({ asked }) => asked === 0)) {
  end(first);
  rmSync(worker);
  rmSync(temporary, { recursive: true, force: true });
  console.error(`no option's name matches ${only}, or no mutants were asked for`);
  process.exit(2);
}

/** Adds what an order made to its option's row. */
function count(row, { seed, count: made, codes, faults, totalMs, worstMs, worstSeed, mostMb }) {
  row.made += made;
  row.totalMs += totalMs;
  for (const [code, times] of Object.entries(codes)) row.codes[code] = (row.codes[code] ?? 0) + times;
  const order = { option: row.index, seed, count: made };
  row.faults.push(...faults.map((fault) => ({ ...fault, order })));
  if (worstMs > row.worstMs) [row.worstMs, row.worstSeed] = [worstMs, worstSeed];
  // Of the process, which may have made other options' mutants before: no more than that.
  row.mostMb = Math.max(row.mostMb, mostMb);
}

// All options advance alike, so that a run that is cut short has something of each.
const orders = rows
  .flatMap((row) => {
    const { name, index, isSlow, asked } = row;
    const before = logs === undefined || asked === 0 ? [] : readResults(logs, name);
    for (const result of before) count(row, result);
    return uncovered(before, firstSeed, asked, isSlow ? SLOW_ORDER : ORDER).map((order) => ({
      ...order,
      option: index,
      share: (order.seed - firstSeed) / asked,
    }));
  })
  .toSorted((a, b) => a.share - b.share);

async function work(process) {
  for (let order = orders.shift(); order !== undefined && Date.now() < endsAt; order = orders.shift()) {
    const row = rows[order.option];
    const before = process.most ?? 0;
    const { lost, at, ...said } = await obey(process, order, row.mayLeave);
    const made = lost ? at - order.seed + 1 : order.count;
    const isLarge = said.mostMb > MAX_MB;
    const large = { seed: order.seed, problem: `the process held ${said.mostMb.toFixed(0)} MB`, whole: true };
    const faults = isLarge && before <= MAX_MB ? [...said.faults, large] : said.faults;
    const result = { seed: order.seed, count: made, ...said, faults };
    count(row, result);
    if (logs !== undefined) appendResult(logs, row.name, result);
    process.most = said.mostMb;
    if (made < order.count) orders.unshift({ ...order, seed: order.seed + made, count: order.count - made });
    if (lost || row.mayLeave || process.made >= PROCESS || isLarge) {
      end(process);
      process = start();
    }
  }
  end(process);
}
const began = Date.now();
await Promise.all(Array.from({ length: jobs }, (_, i) => work(i === 0 ? first : start())));

/** Tries faults again, each alone in a new process. */
for (const row of rows) {
  for (const fault of row.faults.slice(0, 5)) {
    if (Date.now() > endsAt + 30_000) break;
    const process = start();
    const order = fault.whole ? fault.order : { ...fault.order, seed: fault.seed, count: 1 };
    const again = await obey(process, order, row.mayLeave);
    const most = again.mostMb > MAX_MB ? `${again.mostMb.toFixed(0)} MB` : undefined;
    fault.alone = again.faults[0]?.problem ?? most ?? "nothing wrong";
    end(process);
  }
}
rmSync(worker);
rmSync(temporary, { recursive: true, force: true });

const tried = rows.filter(({ asked }) => asked > 0);
const cut = (text) => text.replaceAll(/\s+/g, " ").slice(0, 400);
for (const { name, faults } of tried)
  for (const { seed, problem, alone, whole } of faults.slice(0, 5))
    console.log(
      `FAULT ${name}: seed ${seed}${whole ? " and on" : ""}: ${cut(problem)}; alone: ${cut(alone ?? "not tried")}`,
    );
console.log("option | mutants | exit 0/1/2/3 | faults | mean ms | worst s (seed) | most MB");
for (const { name, made, codes, faults, totalMs, worstMs, worstSeed, mostMb } of tried) {
  const ends = [0, 1, 2, 3].map((code) => codes[code] ?? 0).join("/");
  console.log(
    `${name} | ${made} | ${ends} | ${faults.length} | ${(totalMs / Math.max(1, made)).toFixed(1)} | ` +
      `${(worstMs / 1000).toFixed(2)} (${worstSeed}) | ${mostMb.toFixed(0)}`,
  );
}
const sum = (of) => tried.reduce((total, row) => total + of(row), 0);
const numFaults = sum(({ faults }) => faults.length);
const short = tried.filter(({ made, asked }) => made < asked).length;
const ends = [0, 1, 2, 3].map((code) => sum(({ codes }) => codes[code] ?? 0)).join("/");
console.log(
  `${tried.length} options, ${sum(({ made }) => made)} mutants from seed ${firstSeed}, exit 0/1/2/3 ${ends}, ${numFaults} faults, ` +
    `at most ${Math.max(...tried.map(({ mostMb }) => mostMb)).toFixed(0)} MB, ${short} options cut short, ` +
    `${((Date.now() - began) / 1000).toFixed(0)} s on ${jobs} processes`,
);
process.exitCode = numFaults > 0 ? 1 : 0;
