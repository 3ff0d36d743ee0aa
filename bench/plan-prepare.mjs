/**
 * What a rank pays once for a plan: its hash, and preparing it for a dtype, in processes that have compiled the plan and done
 * nothing else. Run after `npm run build`: node bench/plan-prepare.mjs [options]
 *
 *   --algorithm multi-ring-all-reduce   --ranks 8   --processes 7
 *   --lib DIR   another build to measure beside this one (its dist/ folder); may be repeated. They take turns
 *
 * One line for each build: milliseconds, median over the processes and (minimum), the first time and, after it, the least of
 * ten more; first the time that passed, then what of the processor the process took.
 */
import { execFileSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";

const config = {
  options: {
    algorithm: { type: "string", default: "multi-ring-all-reduce" },
    ranks: { type: "string", default: "8" },
    processes: { type: "string", default: "7" },
    lib: { type: "string", multiple: true, default: [] },
    child: { type: "string" },
  },
};
const { algorithm, ranks, processes, libs, child } = flagsOf(import.meta.url, config, ({ values }) => ({
  algorithm: values.algorithm,
  ranks: integer(values.ranks, "--ranks", 2),
  processes: integer(values.processes, "--processes"),
  libs: [
    new URL("../dist/", import.meta.url).href,
    ...values.lib.map((folder) => pathToFileURL(`${resolve(folder)}/`).href),
  ],
  child: values.child,
}));

/** Milliseconds that passed, and of the processor. */
function timed(work) {
  const [began, used] = [performance.now(), process.cpuUsage()];
  work();
  const { user, system } = process.cpuUsage(used);
  return { passed: performance.now() - began, used: (user + system) / 1000 };
}

async function measure(lib) {
  const room = (name) => import(new URL(name, lib).href);
  const { ALGORITHMS } = await room("authoring/algorithms/index.js");
  const { compile } = await room("authoring/compiler/index.js");
  const { hashPlan } = await room("authoring/plan/index.js");
  const { provePlan } = await room("authoring/verifier/index.js");
  const { buildExecutor, COUNTER_BYTES, instantiate, newSharedMemory, PreparedPlan, REACHES } =
    await room("runtime/executor/internal.js");
  const entry = ALGORITHMS.find(({ name }) => name === algorithm);
  if (entry === undefined) throw new Error(`no algorithm ${algorithm} in this build's library`);
  const memory = newSharedMemory(64, 16_384);
  const machine = instantiate(buildExecutor(), memory);
  let top = 1024;
  const heap = {
    words: () => new Int32Array(memory.buffer),
    allocate: (bytes) => {
      const at = top;
      top = Math.ceil((at + bytes) / 128 + 1) * 128;
      if (top > memory.buffer.byteLength) memory.grow(Math.ceil((top - memory.buffer.byteLength) / 65_536) + 64);
      return at;
    },
    free: () => {},
  };
  const plan = compile(entry.make({ numRanks: ranks }), { verify: false });
  const copy = () => structuredClone(plan);
  const hashed = [copy(), ...Array.from({ length: 10 }, copy)];
  const first = { hash: timed(() => hashPlan(hashed[0])) };
  const again = { hash: hashed.slice(1).map((one) => timed(() => hashPlan(one))) };
  // A rank prepares what is proved.
  provePlan(plan);
  const table = heap.allocate(16 * ranks);
  const stride = PreparedPlan.counterBytes(plan);
  const counters = heap.allocate(stride * ranks);
  const prepare = () => {
    const state = heap.allocate(PreparedPlan.stateBytes(plan));
    const transport = {
      map: (of, buffer) => table + 16 * of + 4 * REACHES.indexOf(buffer),
      signal: (of, counter) => counters + stride * of + COUNTER_BYTES * counter,
      wait: (counter) => counters + COUNTER_BYTES * counter,
      state,
    };
    new PreparedPlan({ plan, rank: 0, dtype: "f32", memory: heap, transport, machine }).bind(65_536);
  };
  first.prepare = timed(prepare);
  again.prepare = Array.from({ length: 10 }, () => timed(prepare));
  return { first, again };
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

if (child !== undefined) console.log(JSON.stringify(await measure(child)));
else {
  const runs = new Map(libs.map((lib) => [lib, []]));
  for (let i = 0; i < processes; i++) {
    for (const [lib, list] of runs) {
      const words = ["--algorithm", algorithm, "--ranks", String(ranks), "--child", lib];
      list.push(JSON.parse(execFileSync(process.execPath, [fileURLToPath(import.meta.url), ...words])));
    }
  }
  for (const [lib, list] of runs) {
    console.log(`${fileURLToPath(lib)}: ${algorithm}, ${ranks} ranks, ${processes} processes`);
    for (const what of ["hash", "prepare"]) {
      const row = (values) => `${median(values).toFixed(1)} (${Math.min(...values).toFixed(1)})`;
      const of = (field) => {
        const later = list.map(({ again }) => Math.min(...again[what].map((one) => one[field])));
        return `first ${row(list.map(({ first }) => first[what][field]))}, later ${row(later)}`;
      };
      console.log(`  ${what}: passed ${of("passed")}; of the processor ${of("used")}`);
    }
  }
}
