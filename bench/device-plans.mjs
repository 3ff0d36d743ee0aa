/**
 * Plans as generated kernels, driven from JavaScript on two GPUs: NVRTC, windows told to the peers, launches on a rank's
 * stream, graph replay beside NCCL's. Every result is compared with sums in float64 on fresh inputs and poisoned outputs.
 * node bench/device-plans.mjs [thread|process]   (after npm run build)
 */
import { launch } from "chorale/world";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const isolation = flagsOf(import.meta.url, { allowPositionals: true }, ({ positionals }) =>
  oneOf(positionals[0] ?? "thread", "the isolation", ["thread", "process"]),
);
const KI = 1024;
const cases = [
  { name: "one-shot-packet-all-reduce", packets: "lines", instances: 1, bytes: [4 * KI] },
  { name: "one-shot-packet-all-reduce", packets: "lines", instances: 16, bytes: [16 * KI, 64 * KI, 12_344] },
  { name: "one-shot-packet-all-reduce", packets: "words", instances: 8, bytes: [1 * KI, 16 * KI, 1236] },
  { name: "one-shot-packet-all-reduce", packets: "lines", instances: 64, threads: 512, bytes: [1024 * KI, 256 * KI] },
  { name: "two-phase-all-reduce", instances: 64, bytes: [16 * 1024 * KI, 4 * 1024 * KI, 1_000_004] },
  { name: "streaming-all-reduce", instances: 66, threads: 512, bytes: [64 * 1024 * KI, 3_000_004] },
];

const run = async (world, { cases, isolation }) => {
  const { deviceOf } = await import("chorale/world");
  const { upload, download } = await import("chorale/device");
  const { DevicePlan } = await import("chorale/executor");
  const { algorithm } = await import("chorale/algorithms");
  const { compile } = await import("chorale/language");
  const { provePlan } = await import("chorale/verifier");
  const { comm } = world;
  const at = deviceOf(world);
  const rows = [];
  for (const { name, instances, packets, threads = 256, bytes: sizes } of cases) {
    const label = `${name} ${packets ?? ""} ${instances}x${threads}`;
    const plan = compile(algorithm(name).make({ numRanks: 2, instances }), { verify: false });
    let start = performance.now();
    const { ok } = provePlan(plan);
    const proveMs = performance.now() - start;
    if (!ok) throw new Error(`${label} is not right`);
    start = performance.now();
    let kernel;
    try {
      const shape = { dtype: "f32", threads, maxBytes: Math.max(...sizes), interprocess: isolation === "process" };
      kernel = await DevicePlan.open(comm, at, plan, { ...shape, ...(packets && { packets }) });
    } catch (error) {
      rows.push({ label, refused: error.message });
      continue;
    }
    const openMs = performance.now() - start;
    for (const bytes of sizes) {
      const count = bytes / 4;
      const [x, y] = [world.tensor("f32", [count]), world.tensor("f32", [count])];
      let wrong = 0;
      for (let round = 0; round < 3; round++) {
        const mine = Float32Array.from({ length: count }, (_, i) =>
          Math.fround(Math.sin(i * 0.37 + world.rank + 10 * round)),
        );
        upload(x, mine, at);
        upload(y, new Float32Array(count).fill(Number.NaN), at);
        await comm.barrier();
        for (let k = 0; k < 3; k++) kernel.launch(x, y);
        at.main.synchronize();
        const got = download(y, at);
        for (let i = 0; i < count; i++) {
          const other = Math.fround(Math.sin(i * 0.37 + (1 - world.rank) + 10 * round));
          const want = mine[i] + other;
          if (!(Math.abs(got[i] - want) <= 1.2e-7 * (Math.abs(mine[i]) + Math.abs(other)))) wrong++;
        }
      }
      const calls = bytes <= 1 << 20 ? 100 : 20;
      const graph = at.main.capture(() => {
        for (let k = 0; k < calls; k++) kernel.launch(x, y);
      });
      const time = async (once) => {
        const times = [];
        for (let k = 0; k < 7; k++) {
          await comm.barrier();
          const begin = performance.now();
          once();
          at.main.synchronize();
          times.push(performance.now() - begin);
        }
        return times.sort((a, b) => a - b)[3] * 1000;
      };
      const graphUs =
        (await time(() => {
          graph.launch(at.main);
          graph.launch(at.main);
          graph.launch(at.main);
        })) /
        (3 * calls);
      const backToBackUs =
        (await time(() => {
          for (let k = 0; k < 200; k++) kernel.launch(x, y);
        })) / 200;
      comm.allReduce(x, { output: y }).wait(); // NCCL sets up outside of graphs
      const theirs = comm.capture((group) => {
        for (let k = 0; k < calls; k++) group.allReduce(x, { output: y });
      });
      comm.replay(theirs).wait();
      const times = [];
      for (let k = 0; k < 7; k++) {
        await comm.barrier();
        const begin = performance.now();
        comm.replay(theirs);
        comm.replay(theirs);
        comm.replay(theirs).wait();
        times.push(performance.now() - begin);
      }
      const ncclUs = (times.sort((a, b) => a - b)[3] * 1000) / (3 * calls);
      theirs.close();
      graph.close();
      rows.push({ label, bytes, wrong, graphUs, ncclUs, backToBackUs, proveMs, openMs });
    }
    await comm.barrier();
    kernel.close();
  }
  return rows;
};

const [rows] = await launch({
  ranks: 2,
  backend: "nccl",
  isolation,
  run,
  data: { cases, isolation },
  timeoutMs: 200_000,
});
console.log(`ranks as ${isolation === "process" ? "processes" : "threads"}`);
console.log(
  "| plan | bytes | wrong | graph replay, us | NCCL's, us | call by call, us | proof, ms | open, ms |\n|---|---|---|---|---|---|---|---|",
);
for (const row of rows) {
  if (row.refused) console.log(`| ${row.label} | refused: ${row.refused} |`);
  else
    console.log(
      `| ${row.label} | ${row.bytes} | ${row.wrong} | ${row.graphUs.toFixed(2)} | ${row.ncclUs.toFixed(2)} | ${row.backToBackUs.toFixed(2)} | ${row.proveMs.toFixed(0)} | ${row.openMs.toFixed(0)} |`,
    );
}
if (rows.some((row) => row.wrong > 0)) process.exitCode = 1;
