/**
 * What one call of the threads backend costs, or of shm, whose ranks are processes, through its public API:
 * `node bench/threads-micro.mjs [options]` after `npm run build`. For profiling and tuning; comparisons with other
 * libraries are bench/peers.
 *
 *   --ranks 2,4,8    --ops all_reduce,broadcast,…   --sizes 1K,4K,16K,…,64M   --mode wait|await   --repeats 11
 *   --calls 1        so many times the usual calls of a repeat; below 1 for a first look
 *   --warm 20000     calls of each operation before it is measured, at each size: the compilers' time
 *   --warm-ms 1000   no longer than this: with 16 ranks, so many calls of all operations and sizes took minutes
 *   --backend threads|shm
 *   --cores 32       wait as on a host of so many cores, whatever this one has: to try a larger host's way of waiting here
 *   --choices plans  algorithms alone serve what they can; `shipped` (default) is what serves it otherwise
 *   --lib DIR        another build to measure (default ../dist/)
 *
 * One line per (ranks, op, size): microseconds per call, the slowest rank's, median (and minimum) over the repeats.
 */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const config = {
  options: {
    backend: { type: "string", default: "threads" },
    ranks: { type: "string", default: "2" },
    ops: { type: "string", default: "all_reduce" },
    sizes: { type: "string", default: "1K,4K,16K,64K,256K,1M,4M,16M,64M" },
    mode: { type: "string", default: "wait" },
    repeats: { type: "string", default: "11" },
    calls: { type: "string", default: "1" },
    warm: { type: "string", default: "20000" },
    "warm-ms": { type: "string", default: "1000" },
    cores: { type: "string" },
    choices: { type: "string", default: "shipped" },
    lib: { type: "string", default: new URL("../dist/", import.meta.url).href },
  },
};

/** `64K` -> 65536. */
const bytesOf = (text) => {
  const unit = { K: 1024, M: 1024 ** 2 }[text.at(-1)];
  return integer(unit === undefined ? text : text.slice(0, -1), "--sizes") * (unit ?? 1);
};
const iterationsOf = (bytes) => Math.max(3, Math.min(2000, Math.round((64 * 1024 * 1024) / bytes)));

/** Calls of each operation on f32 tensors whose larger buffer has `bytes` bytes. */
function caller(op, comm, { whole, other, part }) {
  const root = comm.rank === 0;
  const counts = Array.from({ length: comm.size }, () => part.size);
  return {
    all_reduce: () => comm.allReduce(whole, { output: other }),
    broadcast: () => comm.broadcast(whole),
    reduce: () => comm.reduce(whole, root ? { output: other } : undefined),
    all_gather: () => comm.allGather(part, { output: other }),
    reduce_scatter: () => comm.reduceScatter(whole, { output: part }),
    all_gather_v: () => comm.allGatherV(part, { counts, output: other }),
    reduce_scatter_v: () => comm.reduceScatterV(whole, { counts, output: part }),
    all_to_all_v: () => comm.allToAllV(whole, { sendCounts: counts, recvCounts: counts, output: other }),
    all_to_all: () => comm.allToAll(whole, { output: other }),
    gather: () => comm.gather(part, root ? { output: other } : undefined),
    scatter: () => (root ? comm.scatter(whole, { output: part }) : comm.scatter(part)),
    barrier: () => comm.barrier(),
    sendrecv: () => {
      const sent = comm.send(whole, (comm.rank + 1) % comm.size);
      comm.recv(other, (comm.rank + comm.size - 1) % comm.size).wait();
      return sent;
    },
  }[op];
}

/** Calls and waits, for warm-up and measurement: a loop that only the measurement ran would be measured while it is compiled. */
function callAll(call, times) {
  for (let i = 0; i < times; i++) call().wait();
}

/** Calls of one thing, until there were `most` or the slowest rank has spent `ms`: all ranks stop at the same call. */
function warmUp(comm, call, clock, most, ms, step) {
  const began = performance.now();
  for (let done = 0; done < most; done += step) {
    callAll(call, Math.min(step, most - done));
    clock.data[0] = performance.now() - began;
    comm.allReduce(clock, { op: "max" }).wait();
    if (clock.data[0] >= ms) return;
  }
}

/** What the launcher and its ranks call of a backend; that of threads as the oldest builds have it. */
async function kindOf(name, lib) {
  const load = (file) => import(new URL(`runtime/backends/${name}/${file}.js`, lib).href);
  if (name === "shm") return (await load("internal")).SHM_KIND;
  const { attachThreads, createThreadsHost } = await load("index");
  return {
    createHost: ({ ranks }, { choices }) => createThreadsHost({ ranks, choices }),
    attach: attachThreads,
    releaseHost: () => {},
  };
}

async function rank(job, report) {
  const { handle, index, ops, sizes, mode, repeats, lib, calls, warm, warmMs, cores } = job;
  const backend = await (await kindOf(job.backend, lib)).attach(handle, index, cores === undefined ? {} : { cores });
  const comm = backend.world;
  for (const op of ops) {
    for (const bytes of sizes) {
      const count = Math.ceil(bytes / 4 / comm.size) * comm.size;
      const tensors = {
        whole: backend.tensor("f32", [count]),
        other: backend.tensor("f32", [count]),
        part: backend.tensor("f32", [count / comm.size]),
      };
      // Unwritten pages are all one page of zeros, which stays in the cache. Whether inputs lay on it, or on freed blocks that
      // were zeroed, was a matter of chance, and of 10 % and more from 1 MiB with 8 ranks.
      for (const tensor of Object.values(tensors)) tensor.data.fill(1);
      const call = caller(op, comm, tensors);
      const iterations = Math.max(3, Math.round(iterationsOf(bytes) * calls));
      const times = backend.tensor("f64", [repeats]);
      warmUp(comm, call, times.slice(0, 1), warm, warmMs, Math.min(500, iterationsOf(bytes)));
      for (let repeat = bytes <= 65536 ? -3 : -1; repeat < repeats; repeat++) {
        comm.barrier().wait();
        const start = performance.now();
        if (mode === "wait") callAll(call, iterations);
        else for (let i = 0; i < iterations; i++) await call();
        if (repeat >= 0) times.data[repeat] = ((performance.now() - start) * 1000) / iterations;
      }
      comm.allReduce(times, { op: "max" }).wait();
      const sorted = Array.from(times.data).sort((a, b) => a - b);
      if (index === 0) report({ op, bytes, medianUs: sorted[repeats >> 1], minUs: sorted[0] });
      for (const tensor of [...Object.values(tensors), times]) backend.free(tensor);
    }
  }
  await backend.close();
}

if (process.send !== undefined && isMainThread) {
  process.once("message", async (job) => {
    await rank(job, (row) => process.send(row));
    process.disconnect();
  });
} else if (isMainThread) {
  const { worlds, ...work } = flagsOf(import.meta.url, config, ({ values }) => ({
    worlds: integers(values.ranks, "--ranks"),
    backend: oneOf(values.backend, "--backend", ["threads", "shm"]),
    ops: values.ops.split(","),
    sizes: values.sizes.split(",").map(bytesOf),
    mode: oneOf(values.mode, "--mode", ["wait", "await"]),
    repeats: integer(values.repeats, "--repeats"),
    lib: values.lib,
    choices: oneOf(values.choices, "--choices", ["shipped", "plans"]),
    cores: values.cores === undefined ? undefined : integer(values.cores, "--cores"),
    calls: Number(values.calls),
    warm: integer(values.warm, "--warm", 0),
    warmMs: integer(values["warm-ms"], "--warm-ms", 0),
  }));
  const kind = await kindOf(work.backend, work.lib);
  const start = (job) => {
    if (work.backend === "threads") return new Worker(new URL(import.meta.url), { workerData: job });
    const child = fork(fileURLToPath(import.meta.url), { serialization: "advanced" });
    child.send(job);
    return child;
  };
  for (const ranks of worlds) {
    const handle = kind.createHost(
      { ranks, generation: 1 },
      { choices: work.choices, ...(work.cores === undefined ? {} : { cores: work.cores }) },
    );
    const job = { handle, ...work };
    await Promise.all(
      Array.from({ length: ranks }, (_, index) => {
        const worker = start({ ...job, index });
        worker.on("message", ({ op, bytes, medianUs, minUs }) => {
          console.log(`${ranks} ${op} ${work.mode} ${bytes} ${medianUs.toFixed(2)} ${minUs.toFixed(2)}`);
        });
        return new Promise((resolve, reject) => worker.on("error", reject).on("exit", resolve));
      }),
    );
    kind.releaseHost(handle);
  }
} else {
  await rank(workerData, (row) => parentPort.postMessage(row));
}
