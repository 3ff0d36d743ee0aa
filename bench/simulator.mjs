/**
 * What the simulator takes and says: at scale, against the measurements on 4x H200, and beside ASTRA-sim. Prints the
 * tables of bench/results/simulator.md.
 *   npm run build && node bench/simulator.mjs [--astra AstraSim_Analytical_Congestion_Aware]
 * CHORALE_DIST names another build. Without --astra the comparison with ASTRA-sim is left out, and says so.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { flagsOf } from "../dist/apps/bench/script-flags.js";

const astraBinary = flagsOf(import.meta.url, { options: { astra: { type: "string" } } }, ({ values }) => values.astra);
const dist = new URL(process.env.CHORALE_DIST ?? "../dist/", import.meta.url);
const S = await import(new URL("authoring/simulator/index.js", dist).href);
const T = await import(new URL("machine/topology/index.js", dist).href);
// Its name before 2026-11-22, for comparisons with older builds.
const SimulatedMachine = S.SimulatedMachine ?? S.Machine;
const { compile } = await import(new URL("authoring/language/index.js", dist).href);
const { ALGORITHMS } = await import(new URL("authoring/algorithms/index.js", dist).href);

const cpu = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};
const SIZE = 2 ** 30;
const print = (...cells) => console.log(`| ${cells.join(" | ")} |`);
const header = (...cells) => {
  print(...cells);
  print(...cells.map(() => "---"));
};

function scale(system, parameters, rows) {
  const inventory = T.parseSystem(system);
  const devices = S.simulatedDevices(inventory);
  for (const [name, make, numRanks, useSymmetry = true] of rows) {
    const before = cpu();
    const machine = new SimulatedMachine(inventory, devices.slice(0, numRanks), S.SYSTEMS[parameters]);
    const run = S.runSketch(make(numRanks), machine, S.SYSTEMS[parameters], useSymmetry);
    const seconds = cpu() - before;
    print(
      system,
      name + (useSymmetry ? "" : ", every rank simulated"),
      numRanks,
      run.messages,
      run.simulatedRanks,
      (run.timeUs / 1000).toFixed(2),
      (SIZE / run.timeUs / 1000).toFixed(1),
      seconds.toFixed(2),
    );
  }
}
header("system", "1 GiB", "ranks", "messages", "simulated ranks", "time ms", "algbw GB/s", "CPU s");
const ring = (n) => S.ringAllReduceSketch(n, SIZE, 8);
const hierarchical = (n) => S.hierarchicalSketch(n, SIZE, 8);
scale("128x hgx-h100-8", "h100", [
  ["ring all-reduce", ring, 1024],
  ["ring all-reduce", ring, 1024, false],
  ["double binary tree all-reduce, 64 chunks", (n) => S.doubleTreeSketch(n, SIZE, 8, 64), 1024],
  ["hierarchical all-reduce", hierarchical, 1024],
  ["hierarchical all-reduce", hierarchical, 1024, false],
  ["hierarchical all-reduce", hierarchical, 128],
]);
scale("1024x hgx-h100-8", "h100", [["hierarchical all-reduce", hierarchical, 8192]]);
scale("gb200-nvl72", "b200", [
  ["two-shot all-reduce", (n) => S.twoShotSketch(n, SIZE), 72],
  ["direct all-gather", (n) => S.directSketch("all-gather", n, SIZE, false), 72],
  ["direct reduce-scatter", (n) => S.directSketch("reduce-scatter", n, SIZE, true), 72],
  ["direct all-to-all", (n) => S.directSketch("all-to-all", n, SIZE, false), 72],
]);

// Against what was measured.
const fixture = new URL("../test/fixtures/simulator/h200-4-2026-11-20.json", import.meta.url);
const { rows } = JSON.parse(readFileSync(fixture, "utf8"));
const inventory = T.presetInventory("hgx-h200-8");
const plans = new Map();
function simulated(name, instances, inPlace, sizeBytes) {
  const key = `${name} ${instances} ${inPlace}`;
  if (!plans.has(key)) {
    const algorithm = ALGORITHMS.find((candidate) => candidate.name === name);
    plans.set(key, compile(algorithm.make({ numRanks: 4, instances, inPlace }), { verify: false }));
  }
  return S.simulate(plans.get(key), { inventory, sizeBytes }).timeUs;
}
const fastest = (name, sizeBytes) =>
  rows.filter((row) => row.plan === name && row.sizeBytes === sizeBytes).sort((a, b) => a.timeUs - b.timeUs)[0];
const beside = (timeUs, measured) =>
  `${measured.toFixed(1)} / ${timeUs.toFixed(1)} (${timeUs >= measured ? "+" : ""}${(100 * (timeUs / measured - 1)).toFixed(0)} %)`;
const PLANS = [
  "one-shot-packet-all-reduce",
  "two-shot-read-all-reduce",
  "two-shot-fused-read-all-reduce",
  "direct-all-gather",
];
console.log("\nMeasured / simulated, microseconds, at the grid that was fastest (blocks of a chunk):\n");
header("bytes", ...PLANS);
for (const sizeBytes of S.H200_4.sizesBytes) {
  print(
    sizeBytes,
    ...PLANS.map((name) => {
      const row = fastest(name, sizeBytes);
      if (row === undefined) return "-";
      return `${beside(simulated(name, row.instances, row.inPlace === true, sizeBytes), row.timeUs)} x${row.instances}`;
    }),
  );
}
console.log("\nThe prototypes of the same day, measured / simulated:\n");
header("bytes", "one-shot packets", "two-shot, in place");
S.H200_4.sizesBytes.forEach((sizeBytes, i) => {
  const one = S.H200_4.oneShotPacketsUs[i];
  const grid = (name) => fastest(name, sizeBytes).instances;
  print(
    sizeBytes,
    one === undefined ? "-" : beside(simulated(PLANS[0], grid(PLANS[0]), false, sizeBytes), one),
    beside(simulated(PLANS[2], grid(PLANS[2]), true, sizeBytes), S.H200_4.twoShotUs[i]),
  );
});
console.log(
  "\nNCCL all-reduce, measured / its own model with LL's rate fitted (and as NCCL has it, against the re-measurement):\n",
);
header("bytes", "re-measured", "beside the prototypes", "nccl-tests", "model unfitted");
const nccl = S.ncclMachineOf(inventory, 4, S.SYSTEMS.h200);
const { llGBps: _fitted, ...unfitted } = nccl;
S.H200_4.sizesBytes.forEach((sizeBytes, i) => {
  const { timeUs } = S.ncclEstimate("all_reduce", sizeBytes, nccl);
  const again = rows.find((row) => row.backend === "nccl" && row.op === "all_reduce" && row.sizeBytes === sizeBytes);
  print(
    sizeBytes,
    beside(timeUs, again.timeUs),
    beside(timeUs, S.H200_4.ncclAllReduceUs[i]),
    beside(timeUs, S.H200_4.ncclTestsAllReduceUs[i]),
    beside(S.ncclEstimate("all_reduce", sizeBytes, unfitted).timeUs, again.timeUs),
  );
});

// Beside ASTRA-sim: a ring all-reduce of 64 MiB, one chunk, on its ring network; CPU seconds of whole processes.
if (astraBinary === undefined) {
  console.log("\nASTRA-sim: skipped, for no --astra BINARY was given.");
  process.exit();
}
console.log("\nASTRA-sim's analytical congestion-aware backend, ring all-reduce of 64 MiB, one chunk:\n");
header(
  "ranks",
  "ASTRA-sim us",
  "ours us",
  "ASTRA-sim CPU s",
  "ours, every rank, CPU s",
  "with proven symmetry",
  "Node.js and imports",
);
const folder = mkdtempSync(join(tmpdir(), "chorale-astra-"));
/** CPU seconds that a command's process took, by the shell's `times`. */
function timed(command, ...args) {
  const { stdout } = spawnSync("bash", ["-c", '"$0" "$@" 2>&1; times', command, ...args], {
    encoding: "utf8",
    maxBuffer: 2 ** 28,
  });
  const children = stdout.trimEnd().split("\n").at(-1);
  const seconds = [...children.matchAll(/(\d+)m([\d.]+)s/g)].reduce(
    (sum, m) => sum + 60 * Number(m[1]) + Number(m[2]),
    0,
  );
  return { stdout, seconds };
}
const varint = (value) => {
  const out = [];
  for (let rest = value; ; rest >>>= 7) {
    if (rest < 128) return [...out, rest];
    out.push((rest & 127) | 128);
  }
};
const field = (number, value) =>
  typeof value === "number"
    ? [...varint(number << 3), ...varint(value)]
    : [...varint((number << 3) | 2), ...varint(value.length), ...value];
const text = (value) => [...Buffer.from(value)];
const attribute = (name, number, value) => field(10, [...field(1, text(name)), ...field(number, value)]);
// A Chakra node of one collective: COMM_COLL_NODE (7), ALL_REDUCE (0).
const node = [
  ...field(1, 0),
  ...field(2, text("all_reduce")),
  ...field(3, 7),
  ...attribute("is_cpu_op", 27, 0),
  ...attribute("comm_type", 9, 0),
  ...attribute("comm_size", 9, 2 ** 26),
];
const metadata = field(1, text("0.0.4"));
const workload = Buffer.from([...varint(metadata.length), ...metadata, ...varint(node.length), ...node]);
const inner = `
const S = await import(process.argv[1]);
const [, , numRanks, how, network] = process.argv;
if (how !== "none") {
  const inventory = S.readAstraNetwork((await import("node:fs")).readFileSync(network, "utf8"));
  const machine = new (S.SimulatedMachine ?? S.Machine)(inventory, S.simulatedDevices(inventory), S.SYSTEMS.ideal);
  console.log(S.runSketch(S.ringAllReduceSketch(+numRanks, 2 ** 26, 1), machine, S.SYSTEMS.ideal, how === "symmetry").timeUs);
}`;
for (const numRanks of [64, 128, 256, 512, 1024]) {
  const here = join(folder, String(numRanks));
  mkdirSync(here);
  for (let rank = 0; rank < numRanks; rank++) writeFileSync(join(here, `all_reduce.${rank}.et`), workload);
  const network = join(here, "network.yml");
  writeFileSync(network, `topology: [ Ring ]\nnpus_count: [ ${numRanks} ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n`);
  const one = ["ring"];
  writeFileSync(
    join(here, "system.json"),
    JSON.stringify({
      "scheduling-policy": "LIFO",
      "endpoint-delay": 1,
      "active-chunks-per-dimension": 1,
      "preferred-dataset-splits": 1,
      "all-reduce-implementation": one,
      "all-gather-implementation": one,
      "reduce-scatter-implementation": one,
      "all-to-all-implementation": one,
      "collective-optimization": "localBWAware",
      "local-mem-bw": 1000000,
      "boost-mode": 0,
      "roofline-enabled": 0,
      "peak-perf": 900,
    }),
  );
  writeFileSync(join(here, "memory.json"), JSON.stringify({ "memory-type": "NO_MEMORY_EXPANSION" }));
  const astra = timed(
    astraBinary,
    `--workload-configuration=${join(here, "all_reduce")}`,
    `--system-configuration=${join(here, "system.json")}`,
    `--remote-memory-configuration=${join(here, "memory.json")}`,
    `--network-configuration=${network}`,
  );
  const nanoseconds = /sys\[0\], Wall time: (\d+)/.exec(astra.stdout)?.[1];
  const ours = (how) =>
    timed(
      process.execPath,
      "--input-type=module",
      "-e",
      inner,
      new URL("authoring/simulator/index.js", dist).href,
      String(numRanks),
      how,
      network,
    );
  const every = ours("every");
  print(
    numRanks,
    (Number(nanoseconds) / 1000).toFixed(1),
    Number(every.stdout.split("\n")[0]).toFixed(1),
    astra.seconds.toFixed(2),
    every.seconds.toFixed(2),
    ours("symmetry").seconds.toFixed(2),
    ours("none").seconds.toFixed(2),
  );
}
rmSync(folder, { recursive: true });
