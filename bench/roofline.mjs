/**
 * What share of the memory roofline collectives of the threads backend reach, of one build or of several side by side: `node
 * bench/roofline.mjs [options]` after `npm run build`. As `chorale bench` counts it (docs/bench.md), but with ranks on cores of
 * their own, and with copies and calls by turns, so that both see the same machine.
 *
 *   --builds DIR[,DIR]  dist/ folders (default ../dist)   --ranks 2
 *   --ops all_reduce,…  --sizes 64K,…,16M
 *   --cores 8-15        the ranks take these cores, from the first one on (default from 0 on)   --nice N   of the ranks' threads
 *   --repeats 11        --block-us 1500   --warm-ms 200
 *   --in-use            after each call every rank copies its output onto its input, as far as it reaches: calls then find lines that
 *                       other cores have, as programs' calls do. The copy is in the time
 *
 * One line per operation: by size the copy's us, then for each build the call's us (medians) and the share.
 */
import { execFileSync } from "node:child_process";
import { readlinkSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { memoryTraffic } from "../dist/apps/bench/index.js";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { median } from "./sign-test.mjs";

const config = {
  options: {
    builds: { type: "string", default: fileURLToPath(new URL("../dist/", import.meta.url)) },
    ranks: { type: "string", default: "2" },
    ops: { type: "string", default: "all_reduce,all_gather,all_to_all,broadcast,reduce_scatter" },
    sizes: { type: "string", default: "64K,256K,1M,4M,16M" },
    cores: { type: "string", default: "" },
    nice: { type: "string" },
    repeats: { type: "string", default: "11" },
    "block-us": { type: "string", default: "1500" },
    "warm-ms": { type: "string", default: "200" },
    "in-use": { type: "boolean", default: false },
  },
};
const bytesOf = (text) => {
  const unit = { K: 1024, M: 1024 ** 2 }[text.at(-1)];
  return integer(unit === undefined ? text : text.slice(0, -1), "--sizes") * (unit ?? 1);
};
const threadsOf = (dist) =>
  import(new URL("runtime/backends/threads/index.js", pathToFileURL(`${resolve(dist)}/`)).href);
const bytesIn = ({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

/** A call on f32 tensors whose larger buffer has `bytes` bytes, and what it reads and writes. */
function caller(op, { world: comm, tensor }, bytes) {
  const count = Math.ceil(bytes / 4 / comm.size) * comm.size;
  const made = (length) => {
    const one = tensor("f32", [length]);
    one.data.fill(1);
    return one;
  };
  const [whole, other, part] = [made(count), made(count), made(count / comm.size)];
  const root = comm.rank === 0;
  const [input, output, call] = {
    all_reduce: [whole, other, () => comm.allReduce(whole, { output: other })],
    broadcast: [whole, other, () => comm.broadcast(whole, { output: other })],
    reduce: [whole, other, () => comm.reduce(whole, root ? { output: other } : {})],
    all_gather: [part, other, () => comm.allGather(part, { output: other })],
    reduce_scatter: [whole, part, () => comm.reduceScatter(whole, { output: part })],
    all_to_all: [whole, other, () => comm.allToAll(whole, { output: other })],
    gather: [part, other, () => comm.gather(part, root ? { output: other } : {})],
    scatter: [whole, part, () => (root ? comm.scatter(whole, { output: part }) : comm.scatter(part))],
  }[op];
  return { input, output, call, tensors: [whole, other, part] };
}

async function rank({ handles, builds, index, ops, sizes, core, nice, repeats, blockUs, warmMs, inUse }) {
  const backends = [];
  for (const [i, handle] of handles.entries()) {
    const backend = (await threadsOf(builds[i])).attachThreads(handle, index, {});
    backends.push({ backend, world: backend.world, tensor: (...shape) => backend.tensor(...shape) });
  }
  const thread = readlinkSync("/proc/thread-self").split("/")[2];
  execFileSync("taskset", ["-cp", String(core), thread]);
  if (nice !== undefined) execFileSync("renice", ["-n", nice, "-p", thread]);
  const sync = backends[0].world;
  const clock = backends[0].tensor("f64", [1]);
  /** Microseconds per call of the slowest rank. */
  const time = (run, calls) => {
    sync.barrier().wait();
    const began = performance.now();
    for (let i = 0; i < calls; i++) run();
    clock.data[0] = ((performance.now() - began) * 1e3) / calls;
    sync.allReduce(clock, { op: "max" }).wait();
    return clock.data[0];
  };
  const usual = (run) => {
    let [calls, last, spent] = [1, time(run, 1), 0];
    for (; spent < warmMs * 1e3; calls = Math.max(1, Math.min(2 * calls, Math.ceil(2000 / last)))) {
      last = time(run, calls);
      spent += Math.max(1, calls * last);
    }
    return Math.max(1, Math.round(blockUs / last));
  };
  for (const op of ops) {
    const cells = [];
    for (const bytes of sizes) {
      const [from, to] = [new Uint8Array(bytes).fill(1), new Uint8Array(bytes).fill(2)];
      const sides = backends.map((one) => caller(op, one, bytes));
      const calls = sides.map(({ input, output, call }) => {
        if (!inUse) return () => call().wait();
        const [into, results] = [bytesIn(input), bytesIn(output)];
        const used = results.subarray(0, into.length);
        return () => {
          call().wait();
          into.fill(used, 0, used.length);
        };
      });
      const ways = [() => to.set(from), ...calls];
      const counts = ways.map(usual);
      const times = ways.map(() => []);
      for (let repeat = 0; repeat < repeats; repeat++) {
        for (const k of ways.keys()) {
          const i = (k + repeat) % ways.length;
          times[i].push(time(ways[i], counts[i]));
        }
      }
      for (const [i, { tensors }] of sides.entries()) for (const one of tensors) backends[i].backend.free(one);
      const [copyUs, ...callUs] = times.map(median);
      const share = (us) => ((memoryTraffic(op, sync.size, bytes) / (2 * sync.size * bytes)) * copyUs) / us;
      cells.push(
        `${bytes / 1024}K ${copyUs.toFixed(1)}: ${callUs.map((us) => `${us.toFixed(1)}=${share(us).toFixed(2)}`).join(" ")}`,
      );
    }
    if (index === 0) parentPort.postMessage(`${sync.size} ${op} | ${cells.join(" | ")}`);
  }
  for (const { backend } of backends) await backend.close();
}

if (isMainThread) {
  const { ranks, cores, ...work } = flagsOf(import.meta.url, config, ({ values }) => ({
    ranks: integer(values.ranks, "--ranks"),
    builds: values.builds.split(","),
    ops: values.ops.split(","),
    sizes: values.sizes.split(",").map(bytesOf),
    cores: values.cores.split("-").map((core) => (core === "" ? 0 : integer(core, "--cores", 0))),
    nice: values.nice,
    repeats: integer(values.repeats, "--repeats"),
    blockUs: integer(values["block-us"], "--block-us"),
    warmMs: integer(values["warm-ms"], "--warm-ms"),
    inUse: values["in-use"],
  }));
  console.log("ranks op | size copy_us: call_us=share, per build");
  const handles = [];
  for (const build of work.builds) handles.push((await threadsOf(build)).createThreadsHost({ ranks }));
  for (let index = 0; index < ranks; index++) {
    const worker = new Worker(new URL(import.meta.url), {
      workerData: { handles, index, core: cores[0] + index, ...work },
    });
    worker.on("message", (line) => console.log(line));
  }
} else {
  await rank(workerData);
}
