/**
 * Calls of random sizes on two GPUs beside calls of one size: how long each takes, issued and waited for, and whether any of them
 * compiles. Sizes are uniform in their logarithm; a first pass over all classes of sizes opens their plans. After `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/cuda-random-sizes.mjs [thread|process] [--op all_reduce|all_gather|broadcast] [--calls 10000]
 *     [--from 4] [--to 262144] [--rounds 5] [--seed 1] [--choices FILE.json] [--json]
 * Each round times random sizes, the median one and the largest, and in another order than the round before: V8 compiles what
 * ranks run for some ten thousand calls, and once more when a barrier comes that it has not seen. So the first two rounds are warm-up;
 * `first` has what random sizes took in the first. Every 50th result of a second pass is compared. Microseconds: medians over the other
 * rounds of each percentile; `heapBytes` is what a call takes of the heap, and `compiled` counts the cubins that were made meanwhile.
 */
import { readFileSync } from "node:fs";
import { launch } from "chorale/world";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const WARM_UP = 2;
const config = {
  allowPositionals: true,
  options: {
    op: { type: "string", default: "all_reduce" },
    calls: { type: "string", default: "10000" },
    from: { type: "string", default: "4" },
    to: { type: "string", default: String(256 << 10) },
    rounds: { type: "string", default: "5" },
    seed: { type: "string", default: "1" },
    choices: { type: "string" },
    json: { type: "boolean", default: false },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  isolation: oneOf(positionals[0] ?? "thread", "the isolation", ["thread", "process"]),
  data: {
    op: oneOf(values.op, "--op", ["all_reduce", "all_gather", "broadcast"]),
    calls: integer(values.calls, "--calls", 1),
    from: integer(values.from, "--from", 4),
    to: integer(values.to, "--to", 4),
    rounds: integer(values.rounds, "--rounds", WARM_UP + 1),
    warmUp: WARM_UP,
    seed: integer(values.seed, "--seed", 0),
  },
  choices: values.choices,
  json: values.json,
}));

const run = async (world, { op, calls, from, to, rounds, warmUp, seed }) => {
  const { readdirSync } = await import("node:fs");
  const { getHeapStatistics } = await import("node:v8");
  const { download, upload } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { homedir } = await import("node:os");
  const { comm, rank } = world;
  const at = deviceOf(world);
  const cache = `${process.env.XDG_CACHE_HOME ?? `${homedir()}/.cache`}/chorale`;
  const cubins = () => {
    try {
      return readdirSync(cache, { recursive: true }).length;
    } catch {
      return 0;
    }
  };
  let state = seed >>> 0;
  const random = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const n = comm.size;
  const gathers = op === "all_gather";
  const most = to / 4;
  const tensor = (count) => world.tensor("f32", [count]);
  const [x, y] = [tensor(most), tensor(gathers ? n * most : most)];
  upload(
    x,
    Float32Array.from({ length: most }, (_, i) => (i % 97) + 100 * rank),
    at,
  );
  const views = new Map();
  const of = (count) => {
    let found = views.get(count);
    if (found === undefined) {
      found = [x.slice(0, count), y.slice(0, gathers ? n * count : count)];
      views.set(count, found);
    }
    return found;
  };
  const method = { all_reduce: "allReduce", all_gather: "allGather", broadcast: "broadcast" }[op];
  const call = (count) => {
    const [input, output] = of(count);
    return comm[method](input, op === "broadcast" ? { output, root: 0 } : { output });
  };
  const wanted = (count, i) => {
    if (op === "broadcast") return i % 97;
    if (gathers) return ((i % count) % 97) + 100 * Math.floor(i / count);
    return n * (i % 97) + 50 * n * (n - 1);
  };
  const counts = Array.from({ length: calls }, () =>
    Math.max(1, Math.floor(Math.exp(Math.log(from / 4) + random() * Math.log(to / from)))),
  );
  for (let bytes = to; bytes >= 4; bytes = Math.floor(bytes / 2)) await call(Math.floor(bytes / 4));
  // Before anything is timed: a rank that makes tensors comes late, and the other one's call waits for it.
  for (const count of counts) of(count);
  const middle = (list) => list.sort((a, b) => a - b)[list.length >> 1];
  let wrong = 0;
  const timed = (list) => {
    const us = list.map((count) => {
      const start = performance.now();
      call(count).wait();
      return (performance.now() - start) * 1000;
    });
    us.sort((a, b) => a - b);
    const part = (share) => us[Math.min(us.length - 1, Math.floor(share * us.length))];
    return { p50: part(0.5), p90: part(0.9), p99: part(0.99), p999: part(0.999) };
  };
  /** Bytes of heap that a call takes: the median over windows, of which few see a collection. */
  const heapOf = (list) => {
    const used = () => getHeapStatistics().used_heap_size;
    const windows = Array.from({ length: Math.ceil(list.length / 250) }, (_, i) => list.slice(250 * i, 250 * i + 250));
    const taken = windows.map((window) => {
      const start = used();
      for (const count of window) call(count).wait();
      return (used() - start) / window.length;
    });
    return middle(taken);
  };
  // Apart from what is timed: ranks come from a check at different moments, and the first one's next call waits for the other.
  const check = async (list) => {
    for (const [i, count] of list.entries()) {
      call(count).wait();
      if (i % 50 !== 0) continue;
      const got = download(of(count)[1], at);
      for (let k = 0; k < got.length; k++) if (got[k] !== wanted(count, k)) wrong++;
      await comm.barrier();
    }
  };
  const sorted = [...counts].sort((a, b) => a - b);
  const same = (count) => Array.from({ length: calls }, () => count);
  const lists = { random: counts, medianSize: same(sorted[calls >> 1]), largestSize: same(sorted[calls - 1]) };
  const before = cubins();
  const taken = { random: [], medianSize: [], largestSize: [] };
  for (let round = 0; round < rounds; round++) {
    const names = Object.keys(taken);
    for (const name of round % 2 === 0 ? names : names.reverse()) {
      await comm.barrier();
      taken[name].push(timed(lists[name]));
      await check(lists[name]);
    }
  }
  const rows = {};
  for (const [name, all] of Object.entries(taken)) {
    const kept = all.slice(warmUp);
    rows[name] = Object.fromEntries(Object.keys(all[0]).map((key) => [key, middle(kept.map((one) => one[key]))]));
    rows[name].heapBytes = heapOf(lists[name]);
  }
  rows.first = taken.random[0];
  return { op, calls, sizes: new Set(counts).size, ...rows, compiled: cubins() - before, wrong };
};

const all = await launch({
  ranks: 2,
  backend: "cuda",
  isolation: flags.isolation,
  ...(flags.choices && { backendOptions: { choices: JSON.parse(readFileSync(flags.choices, "utf8")) } }),
  run,
  data: flags.data,
  timeoutMs: 100_000,
});
const wrong = all.reduce((sum, one) => sum + one.wrong, 0);
const row = { isolation: flags.isolation, ...all[0], wrong };
if (flags.json) console.log(JSON.stringify(row));
else
  for (const [name, value] of Object.entries(row)) {
    const text = (us) => Object.entries(us).map(([key, us]) => `${key} ${us.toFixed(1)}`);
    console.log(name, typeof value === "object" ? `${text(value).join(", ")}` : value);
  }
if (wrong > 0) process.exitCode = 1;
