/**
 * What a collective of the threads backend costs served by kernels and by plans, side by side: `node bench/plans-micro.mjs
 * [options]` after `npm run build`. Worlds that differ in their choices alone share the worker threads and take turns call
 * by call block, so that all see the same machine.
 *
 *   --ranks 2,4,8   --ops all_reduce,…   --sizes 1K,…,16M   --repeats 15   --block-us 400   --warm-ms 150
 *   --use NAME[,NAME]  plans of which each serves a world, or a word that the option `choices` takes: `plans` (the default) and
 *                   `shipped`, which differs from kernels from the sizes on that its tables name
 *   --run NAME[,NAME]  in place of worlds of plans, `comm.run` of these plans in the one world, on the tensors of the kernel's
 *                   calls: tensors of worlds lie in other places, which alone can make a tenth. Not in place
 *   --by NAME[,NAME]  calls that name these with `algorithm:`, in the one world and on the same tensors as the kernel's calls
 *   --against DIR   in place of plans another build (its dist/ folder), by its shipped choices; may be repeated
 *   --pin=NICE      Linux: each rank's thread on a core of its own with this nice value, for machines that are not quiet. Compilers
 *                   then need --warm-ms 500 and more
 *   --lib DIR       another build to measure (default ../dist/)
 *
 * One line per (ranks, op, size, plan): microseconds per call of the slowest rank, kernel and plan, median and minimum
 * over the repeats, then plan / kernel: the median of the repeats' ratios, and the ratio of the minima.
 */
import { execFileSync } from "node:child_process";
import { readlinkSync } from "node:fs";
import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";

const config = {
  options: {
    ranks: { type: "string", default: "2" },
    ops: { type: "string", default: "all_reduce" },
    sizes: { type: "string", default: "1K,16K,256K,1M,4M,16M" },
    use: { type: "string", default: "" },
    run: { type: "string", default: "" },
    by: { type: "string", default: "" },
    repeats: { type: "string", default: "15" },
    "block-us": { type: "string", default: "400" },
    "warm-ms": { type: "string", default: "150" },
    against: { type: "string", multiple: true, default: [] },
    pin: { type: "string" },
    lib: { type: "string", default: new URL("../dist/", import.meta.url).href },
  },
};

const bytesOf = (text) => {
  const unit = { K: 1024, M: 1024 ** 2 }[text.at(-1)];
  return integer(unit === undefined ? text : text.slice(0, -1), "--sizes") * (unit ?? 1);
};
const WORDS = ["plans", "shipped"];
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** A call of an operation on f32 tensors whose larger buffer has `bytes` bytes. */
function caller(op, comm, { whole, other, part }, isApart, algorithm) {
  const root = comm.rank === 0;
  const by = algorithm === undefined ? {} : { algorithm };
  const [toOther, toPart] = [other, part].map((output) => ({ output, ...by }));
  return {
    all_reduce: () => comm.allReduce(whole, toOther),
    broadcast: () => comm.broadcast(whole, isApart ? toOther : by),
    reduce: () => comm.reduce(whole, root ? toOther : by),
    all_gather: () => comm.allGather(part, toOther),
    reduce_scatter: () => comm.reduceScatter(whole, toPart),
    all_to_all: () => comm.allToAll(whole, toOther),
    gather: () => comm.gather(part, root ? toOther : by),
    scatter: () => (root ? comm.scatter(whole, toPart) : comm.scatter(part, by)),
  }[op];
}

/** A run of an algorithm's plan on the same tensors, out of place. */
function runner(comm, { whole, other, part }, entry) {
  const plan = entry.make({ numRanks: comm.size }).plan();
  const root = comm.rank === 0;
  const inRoot = (tensor) => (root ? tensor : undefined);
  const [input, output] = {
    all_reduce: [whole, other],
    broadcast: [inRoot(whole), other],
    reduce: [whole, inRoot(other)],
    all_gather: [part, other],
    reduce_scatter: [whole, part],
    all_to_all: [whole, other],
    gather: [part, inRoot(other)],
    scatter: [inRoot(whole), part],
  }[entry.collective];
  const buffers = { ...(input === undefined ? {} : { input }), ...(output === undefined ? {} : { output }) };
  return () => comm.run(plan, buffers);
}

/** One way to serve the calls: a world of its own; and more on its tensors, one for each of `entries` and of `by`. */
function way(backend, op, bytes, entries, by) {
  const comm = backend.world;
  const count = Math.ceil(bytes / 4 / comm.size) * comm.size;
  const tensors = {
    whole: backend.tensor("f32", [count]),
    other: backend.tensor("f32", [count]),
    part: backend.tensor("f32", [count / comm.size]),
    clock: backend.tensor("f64", [1]),
  };
  // Unwritten pages are all one page of zeros: a way whose tensors lie on it would read from the cache.
  for (const tensor of Object.values(tensors)) tensor.data.fill(1);
  const free = () => {
    for (const tensor of Object.values(tensors)) backend.free(tensor);
  };
  const calls = [
    caller(op, comm, tensors, entries.length > 0),
    ...entries.map((entry) => runner(comm, tensors, entry)),
    ...by.map((name) => caller(op, comm, tensors, entries.length > 0, name)),
  ];
  return calls.map((call, i) => ({
    free: i === 0 ? free : () => {},
    /** Microseconds per call of the slowest rank. */
    time: (iterations) => {
      comm.barrier().wait();
      const start = performance.now();
      for (let i = 0; i < iterations; i++) call().wait();
      tensors.clock.data[0] = ((performance.now() - start) * 1000) / iterations;
      comm.allReduce(tensors.clock, { op: "max" }).wait();
      return tensors.clock.data[0];
    },
  }));
}

/** Gives this thread a core of its own. After the backend has counted the cores. */
function pinTo(core, nice) {
  const thread = readlinkSync("/proc/thread-self").split("/")[2];
  execFileSync("taskset", ["-cp", String(core), thread]);
  execFileSync("renice", ["-n", nice, "-p", thread]);
}

const threadsOf = (lib) => import(new URL("runtime/backends/threads/index.js", lib).href);

async function rank({ handles, libs, names, index, ops, sizes, run, by, repeats, blockUs, warmMs, pin }) {
  const backends = [];
  for (const [i, handle] of handles.entries()) {
    backends.push((await threadsOf(libs[i])).attachThreads(handle, index, {}));
  }
  const library =
    run.length === 0 ? [] : (await import(new URL("authoring/algorithms/index.js", libs[0]).href)).ALGORITHMS;
  if (pin !== undefined) pinTo(index % availableParallelism(), pin);
  for (const op of ops) {
    for (const bytes of sizes) {
      const entries = library.filter(({ name, collective }) => run.includes(name) && collective === op);
      const named = by.filter((name) => name.endsWith("kernel") || name.endsWith(op.replaceAll("_", "-")));
      const ways = backends.flatMap((backend, i) =>
        i === 0 ? way(backend, op, bytes, entries, named) : way(backend, op, bytes, [], []),
      );
      const more = [...entries.map(({ name }) => `run:${name}`), ...named.map((name) => `by:${name}`)];
      const labels = [...names.slice(0, 1), ...more, ...names.slice(1)];
      // All ranks see the same times, so they warm up as long and choose the same number of calls.
      const usual = ways.map((one) => {
        let [spent, last] = [0, one.time(1)];
        for (let n = 1; spent < warmMs * 1000; n = Math.max(1, Math.min(2 * n, Math.ceil(2000 / last)))) {
          last = one.time(n);
          spent += Math.max(1, n * last);
        }
        return last;
      });
      const iterations = Math.max(1, Math.round(blockUs / Math.min(...usual)));
      const times = ways.map(() => []);
      for (let repeat = 0; repeat < repeats; repeat++) {
        const order = ways.map((_, i) => (i + repeat) % ways.length);
        for (const i of order) times[i].push(ways[i].time(iterations));
      }
      for (const one of ways) one.free();
      if (index === 0) parentPort.postMessage({ op, bytes, names: labels, times });
    }
  }
  for (const backend of backends) await backend.close();
}

if (isMainThread) {
  const { worlds, use, lib, against, ...work } = flagsOf(import.meta.url, config, ({ values }) => ({
    worlds: integers(values.ranks, "--ranks"),
    ops: values.ops.split(","),
    sizes: values.sizes.split(",").map(bytesOf),
    use: values.use === "" ? [] : values.use.split(","),
    run: values.run === "" ? [] : values.run.split(","),
    by: values.by === "" ? [] : values.by.split(","),
    repeats: integer(values.repeats, "--repeats"),
    blockUs: integer(values["block-us"], "--block-us"),
    warmMs: integer(values["warm-ms"], "--warm-ms"),
    lib: values.lib,
    against: values.against.map((folder) => pathToFileURL(`${resolve(folder)}/`).href),
    pin: values.pin,
  }));
  const byName = (source, nameOf) => ({
    schemaVersion: 1,
    source,
    date: "2026-01-01",
    tables: work.ops.map((collective) => ({
      backend: "threads",
      collective,
      ranks: [2, 1024],
      rows: [{ fromBytes: 0, use: nameOf(collective) }],
    })),
  });
  const only = (name) => byName(name, () => name);
  const kernels = byName("kernels", (op) => (op === "all_reduce" ? "two-shot-kernel" : "direct-kernel"));
  console.log("ranks op bytes plan kernel_us (min) plan_us (min) ratio ratio_of_minima");
  for (const ranks of worlds) {
    const plans = use.length > 0 ? use : against.length + work.run.length + work.by.length > 0 ? [] : ["plans"];
    const ways = [
      { name: "kernel", from: lib, choices: kernels },
      ...plans.map((name) => ({ name, from: lib, choices: WORDS.includes(name) ? name : only(name) })),
      ...against.map((from) => ({ name: fileURLToPath(from), from, choices: "shipped" })),
    ];
    const names = ways.map(({ name }) => name);
    const libs = ways.map(({ from }) => from);
    const handles = [];
    for (const { from, choices } of ways) {
      handles.push((await threadsOf(from)).createThreadsHost({ ranks, choices }));
    }
    await Promise.all(
      Array.from({ length: ranks }, (_, index) => {
        const worker = new Worker(new URL(import.meta.url), { workerData: { handles, libs, names, index, ...work } });
        worker.on("message", ({ op, bytes, names, times }) => {
          const [kernel, ...plans] = times;
          plans.forEach((plan, i) => {
            const ratio = median(plan.map((us, k) => us / kernel[k]));
            const [a, b] = [kernel, plan].map((list) => [median(list).toFixed(2), Math.min(...list).toFixed(2)]);
            const minima = Math.min(...plan) / Math.min(...kernel);
            console.log(
              `${ranks} ${op} ${bytes} ${names[i + 1]} ${a[0]} (${a[1]}) ${b[0]} (${b[1]}) ${ratio.toFixed(3)} ${minima.toFixed(3)}`,
            );
          });
        });
        return new Promise((resolve, reject) => worker.on("error", reject).on("exit", resolve));
      }),
    );
  }
} else {
  await rank(workerData);
}
