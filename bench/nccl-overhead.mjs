/**
 * What the NCCL backend adds to NCCL: back to back, call and wait, call and await, and graph replay of f32 all-reduces,
 * beside the same calls from C++ (bench/peers/nccl). Run on a host with GPUs after `npm run build`:
 *   node bench/nccl-overhead.mjs RANKS [path of nccl-loop]
 */
import { execFileSync } from "node:child_process";
import { launch } from "chorale/world";

const ranks = Number(process.argv[2] ?? 4);
const peer = process.argv[3];
const sizes = [1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864];

const run = async (world, sizes) => {
  const { comm } = world;
  const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  const rows = [];
  const most = Math.max(...sizes);
  const input = world.tensor("f32", [most / 4]);
  const output = world.tensor("f32", [most / 4]);
  for (const sizeBytes of sizes) {
    const x = input.slice(0, sizeBytes / 4);
    const y = output.slice(0, sizeBytes / 4);
    const call = () => comm.allReduce(x, { output: y });
    const iterations = sizeBytes <= 1 << 20 ? 200 : 30;
    for (let k = 0; k < (sizeBytes === 1024 ? 3000 : 200); k++) call().wait();
    for (let k = 0; k < 100; k++) await call();
    const times = { backToBackUs: [], waitUs: [], awaitUs: [], graphUs: [] };
    const measure = async (name, calls, body) => {
      await comm.barrier();
      comm.barrier().wait();
      const start = performance.now();
      await body();
      times[name].push(((performance.now() - start) * 1000) / calls);
    };
    for (let repeat = 0; repeat < 9; repeat++) {
      await measure("backToBackUs", iterations, () => {
        for (let k = 0; k < iterations - 1; k++) call();
        call().wait();
      });
      await measure("waitUs", 50, () => {
        for (let k = 0; k < 50; k++) call().wait();
      });
      await measure("awaitUs", 50, async () => {
        for (let k = 0; k < 50; k++) await call();
      });
    }
    const graph = comm.capture((group) => {
      for (let k = 0; k < 20; k++) group.allReduce(x, { output: y });
    });
    comm.replay(graph).wait();
    for (let repeat = 0; repeat < 9; repeat++) {
      await measure("graphUs", 100, () => {
        for (let k = 0; k < 4; k++) comm.replay(graph);
        comm.replay(graph).wait();
      });
    }
    graph.close();
    rows.push({ sizeBytes, ...Object.fromEntries(Object.entries(times).map(([k, v]) => [k, median(v)])) });
  }
  return rows;
};

const [ours] = await launch({ ranks, backend: "nccl", run, data: sizes, timeoutMs: 300_000 });
const theirs =
  peer === undefined ? [] : JSON.parse(execFileSync(peer, [String(ranks), ...sizes.map(String)]).toString()).rows;
console.log(
  "bytes | C++ back | ours back | C++ wait | ours wait | ours await | C++ graph | ours graph   (us per call)",
);
for (const [i, row] of ours.entries()) {
  const c = theirs[i] ?? {};
  const cell = (value) => (value === undefined ? "-" : value.toFixed(2)).padStart(9);
  console.log(
    `${String(row.sizeBytes).padStart(9)} ${cell(c.backToBackUs)} ${cell(row.backToBackUs)} ${cell(c.waitUs)} ${cell(row.waitUs)} ${cell(row.awaitUs)} ${cell(c.graphUs)} ${cell(row.graphUs)}`,
  );
}
