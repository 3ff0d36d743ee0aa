/**
 * What the NCCL backend adds to NCCL: back to back, call and wait, call and await, and graph replay of f32 all-reduces,
 * beside the same calls from C++ (bench/peers/nccl). The two programs run in turn, several rounds each, and every figure
 * is the median of its rounds. Run on a host with GPUs after `npm run build`:
 *   node bench/nccl-overhead.mjs RANKS [path of nccl-loop] [--rounds N] [--json FILE] [--sizes BYTES,…]
 * Both are at the mercy of where their threads run: in a virtual machine two of its processors may be one core, and a
 * thread on it issues calls half as fast. `taskset -c 0-63:4 node …` keeps both programs on every fourth of 64.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { launch } from "chorale/world";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";

const config = {
  allowPositionals: true,
  options: { rounds: { type: "string", default: "3" }, json: { type: "string" }, sizes: { type: "string" } },
};
const ALL_SIZES = "1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864";
const { ranks, peer, rounds, sizes, json } = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  ranks: integer(positionals[0] ?? "4", "RANKS"),
  peer: positionals[1],
  rounds: integer(values.rounds, "--rounds"),
  sizes: integers(values.sizes ?? ALL_SIZES, "--sizes", 4),
  json: values.json,
}));

const run = async (world, { sizes, order }) => {
  const { comm } = world;
  const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
  const rows = [];
  const most = Math.max(...sizes);
  const input = world.tensor("f32", [most / 4]);
  const output = world.tensor("f32", [most / 4]);
  /** The ranks meet without the engine: a rank that leaves a collective late starts late. */
  let turn = 0;
  const meet = () => {
    turn++;
    if (Atomics.add(order, 0, 1) + 1 === turn * world.size) Atomics.store(order, 1, turn);
    while (Atomics.load(order, 1) < turn);
  };
  /** @returns when the last call was issued */
  const calls = (x, y, count) => {
    for (let k = 0; k < count - 1; k++) comm.allReduce(x, { output: y });
    const last = comm.allReduce(x, { output: y });
    const issued = performance.now();
    last.wait();
    return issued;
  };
  const waits = (x, y, count) => {
    for (let k = 0; k < count; k++) comm.allReduce(x, { output: y }).wait();
  };
  const awaits = async (x, y, count) => {
    for (let k = 0; k < count; k++) await comm.allReduce(x, { output: y });
  };
  // V8 compiles the paths before anything is measured, and what recording a graph takes back of it again.
  const [small, into] = [input.slice(0, 16), output.slice(0, 16)];
  for (let k = 0; k < 4; k++) {
    calls(small, into, 400);
    waits(small, into, 1500);
    await awaits(small, into, 1500);
    const graph = comm.capture((group) => {
      for (let i = 0; i < 20; i++) group.allReduce(small, { output: into });
    });
    comm.replay(graph).wait();
    graph.close();
  }
  // The first size twice: once for the compiler, which is not counted.
  for (const sizeBytes of [sizes[0], ...sizes]) {
    const x = input.slice(0, sizeBytes / 4);
    const y = output.slice(0, sizeBytes / 4);
    const iterations = sizeBytes <= 1 << 20 ? 200 : 30;
    const times = { backToBackUs: [], issueUs: [], waitUs: [], awaitUs: [], graphUs: [] };
    const measure = async (name, count, body) => {
      meet();
      const start = performance.now();
      const issued = await body();
      times[name].push(((performance.now() - start) * 1000) / count);
      if (issued !== undefined) times.issueUs.push(((issued - start) * 1000) / count);
    };
    // As many as the C++ loop makes. V8 may take compiled code back when the size before has recorded a graph.
    for (let k = 0; k < 10; k++) calls(x, y, iterations);
    for (let k = 0; k < 9; k++) {
      await measure("backToBackUs", iterations, () => calls(x, y, iterations));
      await measure("waitUs", 50, () => waits(x, y, 50));
      await measure("awaitUs", 50, () => awaits(x, y, 50));
    }
    const graph = comm.capture((group) => {
      for (let k = 0; k < 20; k++) group.allReduce(x, { output: y });
    });
    comm.replay(graph).wait();
    for (let k = 0; k < 9; k++) {
      await measure("graphUs", 100, () => {
        for (let i = 0; i < 4; i++) comm.replay(graph);
        comm.replay(graph).wait();
      });
    }
    graph.close();
    rows.push({ sizeBytes, ...Object.fromEntries(Object.entries(times).map(([k, v]) => [k, median(v)])) });
  }
  return rows.slice(1);
};

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const theirs = [];
const ours = [];
for (let round = 0; round < rounds; round++) {
  if (peer !== undefined) {
    theirs.push(JSON.parse(execFileSync(peer, [String(ranks), ...sizes.map(String)]).toString()).rows);
  }
  const data = { sizes, order: new Int32Array(new SharedArrayBuffer(8)) };
  ours.push((await launch({ ranks, backend: "nccl", run, data, timeoutMs: 300_000 }))[0]);
}
const rows = sizes.map((sizeBytes, i) => {
  const of = (tables, name) => {
    const list = tables.flatMap((table) => table[i]?.[name] ?? []);
    return list.length === 0 ? undefined : median(list);
  };
  const names = ["backToBackUs", "issueUs", "waitUs", "awaitUs", "graphUs"];
  const side = (tables) => Object.fromEntries(names.map((name) => [name, of(tables, name)]));
  return { sizeBytes, peer: side(theirs), ours: side(ours) };
});
if (json !== undefined) writeFileSync(json, JSON.stringify({ ranks, rounds, rows, theirs, ours }));
console.log(
  "| bytes | C++ back to back | ours | C++ until all is issued | ours | C++ call and wait | ours `wait()` | ours `await` | C++ graph replay | ours |",
);
console.log("|---|---|---|---|---|---|---|---|---|---|");
for (const { sizeBytes, peer: c, ours: o } of rows) {
  const cells = [
    c.backToBackUs,
    o.backToBackUs,
    c.issueUs,
    o.issueUs,
    c.waitUs,
    o.waitUs,
    o.awaitUs,
    c.graphUs,
    o.graphUs,
  ];
  console.log(`| ${sizeBytes} | ${cells.map((us) => (us === undefined ? "-" : us.toFixed(2))).join(" | ")} |`);
}
