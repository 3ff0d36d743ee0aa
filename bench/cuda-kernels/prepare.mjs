// Writes the generated kernels of several plans, and what their launches need at every size, for harness.cu.
// node bench/cuda-kernels/prepare.mjs FOLDER [dtypes] [filter] [ranks]   (after npm run build; bench/cuda-kernels/README.md)
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as algorithms from "../../dist/authoring/algorithms/index.js";
import { compile } from "../../dist/authoring/language/index.js";
import { chunkBytesOf, shapeOf } from "../../dist/authoring/plan/index.js";
import { verifyPlan } from "../../dist/authoring/verifier/index.js";
import { generateCuda, windowBytes } from "../../dist/runtime/executor/index.js";

const [folder = "cuda-kernels", dtypes = "f32,bf16", filter = "", ranks = "2"] = process.argv.slice(2);
const wanted = new RegExp(filter);
const NUM_RANKS = Number(ranks);
const KI = 1024;
const SIZES = Array.from({ length: 11 }, (_, i) => KI * 4 ** i);

/** Algorithm, how its packets lie, instances, threads, unroll, [smallest, largest] size. */
function variants() {
  const list = [];
  const add = (name, op, make, options) => list.push({ name, op, make, ...options });
  const library = (name) => (args) => algorithms.algorithm(name).make(args);
  for (const [op, name, perInstance, unit] of [
    ["all_reduce", "one-shot-packet-all-reduce", 2, 1],
    ["all_gather", "packet-all-gather", 1, 1],
    ["reduce_scatter", "packet-reduce-scatter", 1, 1],
  ]) {
    for (const blocks of [2, 4, 8, 16, 32, 64, 128]) {
      const instances = blocks / perInstance / unit;
      for (const threads of [256, 512]) {
        const most = blocks < 16 ? 64 * KI : blocks < 64 ? 1024 * KI : 4096 * KI;
        const least = blocks < 16 ? KI : blocks < 64 ? 4 * KI : 64 * KI;
        for (const packets of ["words", "lines"])
          add(name, op, library(name), {
            packets,
            instances,
            threads,
            unroll: 4,
            sizes: [least, packets === "lines" ? 4 * most : most],
          });
      }
    }
  }
  const MI = 1024 * KI;
  const streaming = (make, unitKi) => (args) => make({ ...args, unitBytes: unitKi * KI });
  for (const threads of [256, 512]) {
    for (const unroll of [4, 8]) {
      for (const instances of [16, 32, 64, 132]) {
        const sizes = [instances < 64 ? 256 * KI : MI, instances < 64 ? 16 * MI : 1024 * MI];
        for (const [op, name] of [
          ["all_reduce", "two-phase-all-reduce"],
          ["all_reduce", "two-shot-read-all-reduce"],
          ["reduce_scatter", "read-reduce-scatter"],
        ])
          add(name, op, library(name), { instances, threads, unroll, sizes });
      }
      for (const instances of [32, 48, 66, 96, 132])
        add("streaming-all-gather", "all_gather", library("streaming-all-gather"), {
          instances,
          threads,
          unroll,
          sizes: [4 * MI, 1024 * MI],
          perSm: 2 * instances > 132 ? 2 : 1,
        });
      for (const [instances, unit, least] of [
        [32, 16, MI],
        [66, 16, 4 * MI],
        [66, 32, 4 * MI],
        [66, 64, 16 * MI],
        [66, 128, 64 * MI],
        [66, 256, 64 * MI],
        [66, 512, 256 * MI],
        [100, 64, 16 * MI],
        [132, 32, 16 * MI],
        [132, 64, 16 * MI],
        [132, 128, 64 * MI],
      ]) {
        const more = {
          instances,
          threads,
          unroll,
          sizes: [least, 1024 * MI],
          note: `unit ${unit}K`,
          perSm: 2 * instances > 132 ? 2 : 1,
        };
        add("streaming-all-reduce", "all_reduce", streaming(algorithms.streamingAllReduce, unit), more);
        add("streaming-reduce-scatter", "reduce_scatter", streaming(algorithms.streamingReduceScatter, unit), more);
      }
    }
    for (const instances of [66, 132])
      add("streaming-packet-reduce-scatter", "reduce_scatter", library("streaming-packet-reduce-scatter"), {
        packets: "lines",
        instances,
        threads,
        unroll: 4,
        sizes: [MI, 64 * MI],
        perSm: 2,
      });
  }
  return list;
}

const proofs = new Map();
/** Of two instances: more do the same elsewhere. */
function promises(variant) {
  if (!proofs.has(variant.name)) {
    const plan = compile(variant.make({ numRanks: NUM_RANKS, instances: 2 }), { verify: false });
    const holds = (what) => verifyPlan(plan, { lint: false, promises: what }).ok;
    if (!holds({})) throw new Error(`${variant.name} is not right`);
    proofs.set(variant.name, {
      relaunches: holds({ relaunch: true }),
      endsAlone: holds({ outputAtRankEnd: true, reuseAtRankEnd: true }),
    });
  }
  return proofs.get(variant.name);
}

mkdirSync(folder, { recursive: true });
const lines = [];
let id = 0;
for (const dtype of dtypes.split(",")) {
  for (const variant of variants()) {
    const label = [
      variant.name,
      variant.packets,
      `${variant.instances}x${variant.threads}`,
      `u${variant.unroll}`,
      variant.note,
    ]
      .filter(Boolean)
      .join(" ");
    if (!wanted.test(label)) continue;
    // All-gather does not look at its elements.
    if (variant.op === "all_gather" && dtype !== dtypes.split(",")[0]) continue;
    const plan = compile(variant.make({ numRanks: NUM_RANKS, instances: variant.instances }), { verify: false });
    const kernel = generateCuda(plan, {
      dtype,
      threads: variant.threads,
      unroll: variant.unroll,
      blocksPerMultiprocessor: variant.perSm ?? 1,
      debugTurns: 3_000_000,
      ...(variant.packets === undefined ? {} : { packets: variant.packets }),
      ...promises(variant),
    });
    writeFileSync(join(folder, `k${id}.cu`), kernel.source);
    const { window, state } = kernel;
    lines.push(
      `kernel ${id} ${variant.op} ${dtype} ${kernel.threads} ${kernel.blocks[0]} ${window.bytes} ${state.words} ${state.report} ${label.replaceAll(" ", "_")}`,
    );
    for (const bytes of SIZES) {
      if (bytes < variant.sizes[0] || bytes > variant.sizes[1]) continue;
      const part = variant.op === "all_reduce" ? bytes : bytes / NUM_RANKS;
      const chunk = chunkBytesOf(shapeOf(plan), part);
      const w = windowBytes(kernel, chunk);
      lines.push(
        `size ${bytes} ${part} ${chunk} ${w.scratch} ${w.packets} ${w.scratchSlot} ${w.packetsSlot} ${w.slots} ${w.packetChunk} ${w.bytes}`,
      );
    }
    id++;
  }
}
writeFileSync(join(folder, "manifest"), `${lines.join("\n")}\n`);
console.log(`${id} kernels in ${folder}`);
