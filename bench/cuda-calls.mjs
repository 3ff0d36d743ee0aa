/**
 * All-reduces from JavaScript, call by call, by what serves them: awaited, waited for, and back to back, in turns. V8 compiles what ranks
 * run for some ten thousand calls, so the first nine turns (of 1,000 calls, behind 200) are told apart from the last fifteen. On two GPUs
 * or more, after `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/cuda-calls.mjs [thread|process] [--ranks 2] [--bytes 1024] [--turns 40] [--floor]
 *     [--choices FILE.json] [--json]
 * --floor: beside them what an empty kernel takes without calls of ours: launched, as a graph of one launch, and until this thread sees
 * the word that it writes. Microseconds a call, medians; `heapBytes` is what a call takes of the heap.
 */
import { readFileSync } from "node:fs";
import { launch } from "chorale/world";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const FIRST_TURNS = 9;
const LAST_TURNS = 15;
const config = {
  allowPositionals: true,
  options: {
    ranks: { type: "string", default: "2" },
    bytes: { type: "string", default: "1024" },
    turns: { type: "string", default: "40" },
    choices: { type: "string" },
    floor: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  isolation: oneOf(positionals[0] ?? "thread", "the isolation", ["thread", "process"]),
  ranks: integer(values.ranks, "--ranks", 1),
  data: {
    bytes: integer(values.bytes, "--bytes", 4),
    turns: integer(values.turns, "--turns", FIRST_TURNS + LAST_TURNS),
    floor: values.floor,
    firstTurns: FIRST_TURNS,
    lastTurns: LAST_TURNS,
  },
  choices: values.choices,
  json: values.json,
}));

const run = async (world, { bytes, turns, floor, firstTurns, lastTurns }) => {
  const { getHeapStatistics } = await import("node:v8");
  const { CudaModule, KernelArguments, requireNvrtc } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { comm } = world;
  const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
  const [x, output] = [world.tensor("f32", [bytes >> 2]), world.tensor("f32", [bytes >> 2])];
  const options = { output };
  const ways = {
    await: async (count) => {
      for (let k = 0; k < count; k++) await comm.allReduce(x, options);
    },
    wait: (count) => {
      for (let k = 0; k < count; k++) comm.allReduce(x, options).wait();
    },
    "back to back": (count) => {
      for (let k = 1; k < count; k++) comm.allReduce(x, options);
      comm.allReduce(x, options).wait();
    },
  };
  const heap = () => getHeapStatistics().used_heap_size;
  const taken = Object.fromEntries(Object.keys(ways).map((way) => [way, { us: [], heapBytes: [] }]));
  await ways.await(200);
  for (let turn = 0; turn < turns; turn++)
    for (const [way, body] of Object.entries(ways)) {
      const count = way === "back to back" ? 400 : 300;
      await comm.barrier();
      const [before, begin] = [heap(), performance.now()];
      await body(count);
      taken[way].us.push(((performance.now() - begin) * 1000) / count);
      taken[way].heapBytes.push((heap() - before) / count);
    }
  const rows = Object.entries(taken).map(([way, { us, heapBytes }]) => ({
    way,
    firstUs: median(us.slice(0, firstTurns)),
    lastUs: median(us.slice(-lastTurns)),
    heapBytes: median(heapBytes),
  }));
  const { choices } = comm.stats();
  await comm.barrier();
  if (!floor || world.rank !== 0) return { rows, choices };
  const { device, main, pinned } = deviceOf(world);
  const source = 'extern "C" __global__ void touch(volatile unsigned* word, unsigned value) { *word = value; }';
  const kernel = CudaModule.compile(device, requireNvrtc(), source).kernel("touch");
  const word = pinned.take(4);
  const seen = new Int32Array(word.buffer, 0, 1);
  const args = new KernelArguments(device, [
    { type: "u64", value: word.deviceAddress },
    { type: "u32", value: 1 },
  ]);
  const shape = { grid: [1], block: [32] };
  const plain = () => kernel.launch(main, shape, args);
  const graph = main.capture(plain);
  const untilSeen = (put) => () => {
    Atomics.store(seen, 0, 0);
    put();
    while (Atomics.load(seen, 0) !== 1);
  };
  const usOf = (body) => {
    const us = Array.from({ length: 30 }, () => {
      const begin = performance.now();
      for (let k = 0; k < 300; k++) body();
      const end = performance.now();
      main.synchronize();
      return ((end - begin) * 1000) / 300;
    });
    return median(us.slice(10));
  };
  const again = () => graph.launch(main);
  const floors = {
    "launch of an empty kernel": usOf(plain),
    "graph of one launch": usOf(again),
    "launch until its word is seen": usOf(untilSeen(plain)),
    "graph until its word is seen": usOf(untilSeen(again)),
  };
  graph.close();
  pinned.giveBack(word);
  return { rows, choices, floors };
};

const [{ rows, choices, floors = {} }] = await launch({
  ranks: flags.ranks,
  backend: "cuda",
  isolation: flags.isolation,
  ...(flags.choices && { backendOptions: { choices: JSON.parse(readFileSync(flags.choices, "utf8")) } }),
  run,
  data: flags.data,
  timeoutMs: 100_000,
});
if (flags.json) console.log(JSON.stringify({ isolation: flags.isolation, rows, choices, floors }));
else {
  console.log(
    `ranks as ${flags.isolation === "process" ? "processes" : "threads"}: ${Object.keys(choices).join(", ")}`,
  );
  for (const { way, firstUs, lastUs, heapBytes } of rows)
    console.log(`${way}: ${lastUs.toFixed(2)} us, first ${firstUs.toFixed(2)}, ${heapBytes.toFixed(0)} bytes of heap`);
  for (const [what, us] of Object.entries(floors)) console.log(`${what}: ${us.toFixed(2)} us`);
}
