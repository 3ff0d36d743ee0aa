/**
 * What small collectives of two ranks take, by whether something outside this system slows their cores: `node
 * bench/slowed-cores.mjs [options]` on Linux, after `npm run build`. A virtual machine's core may be one of a pair that
 * share one core's units. When the other one of the pair is busy, no counter of this system shows it, and calls take longer.
 *
 *   --builds DIR[,DIR]   dist/ folders (default ../dist), by turns window for window
 *   --ops all_reduce     --sizes 64      --windows 6000   --calls 600 (of a window)
 *
 * Each rank has a core of its own (0 and 1). Before and after each window both time a loop of independent additions; a core
 * is its own where that takes at most 6 % longer than the least of all, and slowed where it takes 20 % longer. Other windows count as neither.
 * One line per (operation, size, build): for 0, 1 and 2 slowed cores the number of windows, and the tenth part and the median
 * of microseconds per call of the slower rank. bench/peers/exchange.c does the same in C.
 */
import { execFileSync } from "node:child_process";
import { readlinkSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { ModuleBuilder } from "../dist/runtime/executor/internal.js";

const config = {
  options: {
    builds: { type: "string", default: fileURLToPath(new URL("../dist/", import.meta.url)) },
    ops: { type: "string", default: "all_reduce" },
    sizes: { type: "string", default: "64" },
    windows: { type: "string", default: "6000" },
    calls: { type: "string", default: "600" },
  },
};
const RANKS = 2;
const PROBE_ROUNDS = 10_000;
const threadsOf = (dist) =>
  import(new URL("runtime/backends/threads/index.js", pathToFileURL(`${resolve(dist)}/`)).href);
const quantile = (values, part) => values.toSorted((a, b) => a - b)[Math.floor(values.length * part)];

/** Calls of an operation, as the text of a function: each build has its own copy, or the compiler would see both in one. */
const CALLS = {
  all_reduce: "comm.allReduce(whole, { output: other })",
  broadcast: "comm.broadcast(whole)",
  reduce: "comm.reduce(whole, root ? { output: other } : undefined)",
  all_gather: "comm.allGather(part, { output: other })",
  reduce_scatter: "comm.reduceScatter(whole, { output: part })",
  all_to_all: "comm.allToAll(whole, { output: other })",
  gather: "comm.gather(part, root ? { output: other } : undefined)",
  scatter: "root ? comm.scatter(whole, { output: part }) : comm.scatter(part)",
};

function loopOf(backend, op, bytes, build) {
  const comm = backend.world;
  const tensors = [bytes / 4, bytes / 4, bytes / 4 / RANKS].map((count) => backend.tensor("f32", [count]));
  for (const { data } of tensors) data.fill(1);
  const names = ["comm", "whole", "other", "part", "root"];
  const text = `/* ${build} ${op} ${bytes} */ return (times) => { for (let i = 0; i < times; i++) (${CALLS[op]}).wait(); };`;
  const run = new Function(...names, text)(comm, ...tensors, comm.rank === 0);
  return { run, comm, free: () => tensors.forEach((tensor) => void backend.free(tensor)) };
}

/**
 * Additions that do not wait for each other, as many at a time as the core can do: `add(rounds)`. In WebAssembly, as there is one
 * way to compile it: of a loop of JavaScript there were two, one half as long again as the other.
 */
function additions() {
  const module = new ModuleBuilder();
  const body = (f) => {
    const left = f.param(0);
    const sums = f.locals("i32", "i32", "i32", "i32");
    f.loop(() => {
      for (const op of ["i32.add", "i32.xor"]) {
        for (const [i, sum] of sums.entries())
          f.get(sum)
            .i32(2 * i + 1)
            .op(op)
            .set(sum);
      }
      f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
    });
    f.get(...sums).op("i32.xor", "i32.xor", "i32.xor");
  };
  module.function({ params: ["i32"], results: ["i32"] }, body, "add");
  const memory = new WebAssembly.Memory({ initial: 0, maximum: 65_536, shared: true });
  return new WebAssembly.Instance(new WebAssembly.Module(module.encode()), { env: { memory } }).exports.add;
}

async function rank({ handles, index, builds, ops, sizes, windows, calls }) {
  const backends = [];
  for (const [i, handle] of handles.entries()) {
    backends.push((await threadsOf(builds[i])).attachThreads(handle, index, {}));
  }
  execFileSync("taskset", ["-cp", String(index), readlinkSync("/proc/thread-self").split("/")[2]]);
  const timed = (body) => {
    const began = performance.now();
    body();
    return (performance.now() - began) * 1e3;
  };
  const add = additions();
  for (const op of ops) {
    for (const bytes of sizes) {
      const loops = backends.map((backend, i) => loopOf(backend, op, bytes, i));
      for (let i = 0; i < 250; i++) {
        for (const { run } of loops) run(400);
        add(PROBE_ROUNDS);
      }
      const [times, probes] = [[], []];
      const probe = () => probes.push(timed(() => add(PROBE_ROUNDS)));
      probe();
      for (let window = 0; window < windows; window++) {
        const { run, comm } = loops[window % loops.length];
        comm.barrier().wait();
        run(20);
        times.push(timed(() => run(calls)) / calls);
        probe();
      }
      parentPort.postMessage({ name: `${op} ${bytes}`, times, probes });
      for (const loop of loops) loop.free();
    }
  }
  for (const backend of backends) await backend.close();
}

/** @returns by the number of slowed cores, the windows' times of each build */
function sort(rows, numBuilds) {
  const least = Math.min(...rows.flatMap(({ probes }) => probes));
  const sorted = Array.from({ length: numBuilds }, () => Array.from({ length: RANKS + 1 }, () => []));
  for (let window = 0; window < rows[0].times.length; window++) {
    const around = rows.map(({ probes }) => [probes[window] / least, probes[window + 1] / least]);
    const slowed = around.filter((pair) => pair.every((ratio) => ratio > 1.2)).length;
    const own = around.filter((pair) => pair.every((ratio) => ratio < 1.06)).length;
    if (slowed + own < RANKS) continue;
    sorted[window % numBuilds][slowed].push(Math.max(...rows.map(({ times }) => times[window])));
  }
  return sorted;
}

if (isMainThread) {
  const work = flagsOf(import.meta.url, config, ({ values }) => ({
    builds: values.builds.split(","),
    ops: values.ops.split(","),
    sizes: integers(values.sizes, "--sizes"),
    windows: integer(values.windows, "--windows"),
    calls: integer(values.calls, "--calls"),
  }));
  const handles = [];
  for (const build of work.builds) handles.push((await threadsOf(build)).createThreadsHost({ ranks: RANKS }));
  const rows = [[], []];
  const ends = rows.map((list, index) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: { handles, index, ...work } });
    worker.on("message", (row) => list.push(row));
    return new Promise((done, fail) => worker.on("error", fail).on("exit", done));
  });
  await Promise.all(ends);
  console.log("op bytes build | slowed cores: windows, tenth part and median in us");
  for (const [i, { name }] of rows[0].entries()) {
    for (const [build, lists] of sort([rows[0][i], rows[1][i]], work.builds.length).entries()) {
      const cells = lists.map((times, slowed) =>
        times.length === 0
          ? `${slowed}: 0`
          : `${slowed}: ${times.length} ${quantile(times, 0.1).toFixed(3)} ${quantile(times, 0.5).toFixed(3)}`,
      );
      console.log(`${name} ${work.builds[build]} | ${cells.join(" | ")}`);
    }
  }
} else {
  await rank(workerData);
}
