/**
 * What the cuda backend serves beside NCCL, on two GPUs or more: every size by replay of captured calls, in turn, results checked on
 * fresh inputs; then call by call. After `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/cuda-backend.mjs [thread|process] [--ops all_reduce,...] [--dtypes f32,bf16]
 *     [--ranks 2] [--from BYTES] [--to BYTES] [--candidates FILE.json] [--choices FILE.json] [--rows FILE] [--calls] [--json]
 * --candidates: by operation, [{ use, from, to }]: labels of `algorithm:` and the sizes to try them at, to find what a table
 *   should say. --choices: a table in the place of this machine's own. A call that no plan serves counts as NCCL's.
 * --rows: each size's rows are appended there as soon as they are measured, one JSON object a line, with the rank that saw them.
 * --calls: call by call from JavaScript too, whose ends are told by the kernels or asked of the stream, in turn, after some 15,000 calls
 * by which V8 has compiled what ranks run: `first` is what calls that are awaited took among the first 1,500. --ops none: that alone.
 * What served is told of captured calls.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { launch } from "chorale/world";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const config = {
  allowPositionals: true,
  options: {
    ops: { type: "string", default: "all_reduce,all_gather,reduce_scatter" },
    dtypes: { type: "string", default: "f32" },
    ranks: { type: "string", default: "2" },
    from: { type: "string", default: "1024" },
    to: { type: "string", default: String(256 << 20) },
    candidates: { type: "string" },
    choices: { type: "string" },
    rows: { type: "string" },
    calls: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
};
const { values, isolation, ranks } = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  values,
  ranks: integer(values.ranks, "--ranks", 2),
  isolation: oneOf(positionals[0] ?? "thread", "the isolation", ["thread", "process"]),
}));
const sizes = [];
for (let bytes = Number(values.from); bytes <= Number(values.to); bytes *= 4) sizes.push(bytes);
/** By operation: labels, each with the sizes that it is tried at. */
const candidates = values.candidates === undefined ? {} : JSON.parse(readFileSync(values.candidates, "utf8"));

const run = async (world, { ops, dtypes, sizes, candidates, calls, told }) => {
  const { appendFileSync } = await import("node:fs");
  const { upload, download } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { comm } = world;
  const at = deviceOf(world);
  const n = comm.size;
  const rows = [];
  const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
  const bits = { f32: 4, bf16: 2 };
  const WARM_REPLAYS = 50;
  // Calls of a graph, by size. To replay two and to hear of their end takes 20 to 90 us: of graphs of 100 small calls, a tenth.
  const CALLS = [
    [256 << 10, 1000],
    [4 << 20, 300],
    [64 << 20, 50],
  ];
  // Of both buffers, in parts, what a rank has; what element `i` of its output is: element `at` of whose input, or a sum.
  const root = 0;
  const isRoot = world.rank === root;
  const shapes = {
    all_reduce: { method: "allReduce", parts: [1, 1], sums: true },
    all_gather: { method: "allGather", parts: [1, n], from: (i, part) => [Math.floor(i / part), i % part] },
    reduce_scatter: { method: "reduceScatter", parts: [n, 1], sums: true },
    all_to_all: {
      method: "allToAll",
      parts: [n, n],
      from: (i, part) => [Math.floor(i / part), world.rank * part + (i % part)],
    },
    broadcast: { method: "broadcast", parts: [1, 1], from: (i) => [root, i], rooted: true },
    reduce: { method: "reduce", parts: [1, isRoot ? 1 : 0], sums: true, rooted: true },
    gather: {
      method: "gather",
      parts: [1, isRoot ? n : 0],
      from: (i, part) => [Math.floor(i / part), i % part],
      rooted: true,
    },
    scatter: {
      method: "scatter",
      parts: [isRoot ? n : 0, 1],
      from: (i, part) => [root, world.rank * part + i],
      rooted: true,
    },
  };
  const round = (dtype, value) => {
    if (dtype === "f32") return Math.fround(value);
    const words = new Uint32Array(new Float32Array([value]).buffer);
    words[0] = (words[0] + 0x7fff + ((words[0] >>> 16) & 1)) & 0xffff0000;
    return new Float32Array(words.buffer)[0];
  };
  for (const op of ops)
    for (const dtype of dtypes)
      for (const bytes of sizes) {
        const total = bytes / bits[dtype];
        const { method, parts, from, sums, rooted } = shapes[op];
        const whole = op === "all_reduce" || op === "broadcast" || op === "reduce";
        const part = whole ? total : total / n;
        const [inCount, outCount] = parts.map((count) => count * part);
        const [x, y] = [inCount, outCount].map((count) => (count > 0 ? world.tensor(dtype, [count]) : undefined));
        // A period that no unit of the kernels divides; values of few bits, so that sums are exact.
        const value = (i, rank, turn) => ((i * 7 + rank * 3 + turn) % 61) - 30;
        // Values repeat after 61 elements.
        const pack = (count, of) => {
          const period = Float32Array.from({ length: 61 }, (_, i) => of(i));
          const all = dtype === "f32" ? new Float32Array(count) : new Uint16Array(count);
          const bitsOf = new Uint32Array(period.buffer).map((word) => word >>> 16);
          all.set((dtype === "f32" ? period : bitsOf).subarray(0, Math.min(61, count)));
          for (let done = 61; done < count; done *= 2) all.copyWithin(done, 0, Math.min(done, count - done));
          return all;
        };
        const wanted = (i, turn) => {
          if (!sums) {
            const [rank, at] = from(i, part);
            return value(at, rank, turn);
          }
          const at = op === "reduce_scatter" ? i + world.rank * outCount : i;
          let sum = 0;
          for (let rank = 0; rank < n; rank++) sum += value(at, rank, turn);
          return round(dtype, sum);
        };
        const check = (turn) => {
          if (y === undefined) return 0;
          const got = download(y, at);
          let wrong = 0;
          const step = outCount > 1 << 20 ? 37 : 1;
          const scratch = new Uint32Array(1);
          const asFloat = new Float32Array(scratch.buffer);
          for (let i = 0; i < outCount; i += step) {
            if (dtype === "f32") asFloat[0] = got[i];
            else scratch[0] = got[i] << 16;
            if (asFloat[0] !== wanted(i, turn)) wrong++;
          }
          return wrong;
        };
        const labels = [
          "nccl",
          "choice",
          ...(candidates[op] ?? []).filter(({ from, to }) => bytes >= from && bytes <= to).map(({ use }) => use),
        ];
        const contenders = [];
        const poison = pack(outCount, () => Number.NaN);
        for (const [turn, label] of labels.entries()) {
          const options = {
            ...(x !== undefined && y !== undefined && { output: y }),
            ...(rooted && { root }),
            ...(label === "choice" ? {} : { algorithm: label }),
          };
          const call = (group) => group[method](x ?? y, options);
          try {
            const values = pack(inCount, (i) => value(i, world.rank, turn));
            if (x !== undefined) upload(x, values, at);
            if (y !== undefined) upload(y, poison, at);
            await comm.barrier();
            const before = { ...comm.stats().choices };
            await call(comm);
            let wrong = check(turn);
            const between = { ...comm.stats().choices };
            const [, repeat] = CALLS.find(([most]) => bytes <= most) ?? [0, 5];
            const graph = comm.capture((group) => {
              for (let k = 0; k < repeat; k++) call(group);
            });
            const after = comm.stats().choices;
            const grown = (than, to) => Object.keys(to).find((key) => key.startsWith(op) && to[key] !== than[key]);
            const served = grown(between, after);
            if (served !== grown(before, between)) {
              // Another algorithm serves captured calls.
              if (y !== undefined) upload(y, poison, at);
              await comm.replay(graph);
              wrong += check(turn);
            }
            contenders.push({ label, served: served?.slice(op.length + 1) ?? "nccl", wrong, graph, repeat, times: [] });
          } catch (error) {
            contenders.push({ label, refused: error.message });
          }
        }
        // An idle device is slow at first.
        if (rows.length === 0) for (let k = 0; k < WARM_REPLAYS; k++) comm.replay(contenders[0].graph).wait();
        for (let turn = 0; turn < 7; turn++)
          for (const one of contenders) {
            if (one.graph === undefined) continue;
            await comm.barrier();
            const begin = performance.now();
            comm.replay(one.graph);
            comm.replay(one.graph).wait();
            one.times.push(((performance.now() - begin) * 1000) / (2 * one.repeat));
          }
        const [nccl] = contenders;
        const first = rows.length;
        for (const { label, served, wrong, times, refused, graph } of contenders) {
          graph?.close();
          rows.push(
            refused === undefined
              ? { op, dtype, bytes, label, served, wrong, us: median(times), ratio: median(nccl.times) / median(times) }
              : { op, dtype, bytes, label, refused },
          );
        }
        if (told !== undefined) {
          const lines = rows.slice(first).map((row) => `${JSON.stringify({ ...row, rank: world.rank })}\n`);
          appendFileSync(told, lines.join(""));
        }
        for (const tensor of [x, y]) if (tensor !== undefined) world.free(tensor);
      }
  if (calls)
    for (const bytes of [1024, 65536])
      for (const label of ["nccl", "choice"]) {
        const [x, y] = [world.tensor("f32", [bytes / 4]), world.tensor("f32", [bytes / 4])];
        const options = { output: y, ...(label === "choice" ? {} : { algorithm: label }) };
        const us = async (count, body) => {
          await comm.barrier();
          const begin = performance.now();
          await body(count);
          return ((performance.now() - begin) * 1000) / count;
        };
        const awaited = async (count) => {
          for (let k = 0; k < count; k++) await comm.allReduce(x, options);
        };
        const waited = (count) => {
          for (let k = 0; k < count; k++) comm.allReduce(x, options).wait();
        };
        const backToBack = (count) => {
          for (let k = 1; k < count; k++) comm.allReduce(x, options);
          comm.allReduce(x, options).wait();
        };
        const firstUs = await us(1500, awaited);
        // NCCL's calls go a longer way, of which theirs is little.
        for (let k = 0; k < (label === "nccl" ? 1 : 4); k++) {
          waited(1500);
          await awaited(1500);
          backToBack(400);
        }
        const [awaits, waits, back] = [[], [], []];
        for (let turn = 0; turn < 9; turn++) {
          awaits.push(await us(300, awaited));
          waits.push(await us(300, waited));
          back.push(await us(400, backToBack));
        }
        rows.push({
          op: "calls",
          bytes,
          label,
          ends: calls,
          firstUs,
          awaitUs: median(awaits),
          waitUs: median(waits),
          backToBackUs: median(back),
        });
      }
  return rows;
};

const choices = values.choices === undefined ? {} : { choices: JSON.parse(readFileSync(values.choices, "utf8")) };
const runIn = (data) =>
  launch({ ranks, backend: "cuda", backendOptions: choices, isolation, run, data, timeoutMs: 400_000 });
const shapes = {
  ops: values.ops === "none" ? [] : values.ops.split(","),
  dtypes: values.dtypes.split(","),
  sizes,
  candidates,
  told: values.rows === undefined ? undefined : resolve(values.rows),
};
const all = await runIn(shapes);
// How the end of a call is learnt: from what kernels write, or by asking the driver; twice in turn, in worlds of their own.
for (const ends of values.calls ? ["kernel", "stream", "kernel", "stream"] : []) {
  process.env.CHORALE_CUDA_COMPLETION = ends;
  const rows = await runIn({ ...shapes, ops: [], calls: ends });
  for (const [rank, own] of rows.entries()) all[rank].push(...own);
}
// What one rank found wrong is wrong.
const rows = all[0].map((row, i) =>
  row.wrong === undefined ? row : { ...row, wrong: all.reduce((sum, own) => sum + own[i].wrong, 0) },
);
if (values.json) console.log(JSON.stringify(rows));
else {
  console.log(`ranks as ${isolation === "process" ? "processes" : "threads"}`);
  for (const row of rows)
    console.log(
      row.op === "calls"
        ? `calls ${row.bytes} ${row.label}, ends told by ${row.ends}: await ${row.awaitUs.toFixed(2)} us, wait ${row.waitUs.toFixed(2)}, back to back ${row.backToBackUs.toFixed(2)}, first ${row.firstUs.toFixed(2)}`
        : `${row.op} ${row.dtype} ${row.bytes} ${row.label} ${row.refused ?? `${row.served} ${row.us.toFixed(2)} us ${row.ratio.toFixed(2)}x wrong ${row.wrong}`}`,
    );
}
if (rows.some((row) => (row.wrong ?? 0) > 0)) process.exitCode = 1;
