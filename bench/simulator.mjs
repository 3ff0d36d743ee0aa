/**
 * What the simulator takes and says at scale: `npm run build && node bench/simulator.mjs`. CHORALE_DIST names another
 * build. Prints the tables of bench/results/simulator.md.
 */
const dist = new URL(process.env.CHORALE_DIST ?? "../dist/", import.meta.url);
const S = await import(new URL("authoring/simulator/index.js", dist).href);
const T = await import(new URL("machine/topology/index.js", dist).href);
const { compile } = await import(new URL("authoring/language/index.js", dist).href);
const A = await import(new URL("authoring/algorithms/index.js", dist).href);

const cpu = () => process.cpuUsage().user / 1e6;
const SIZE = 2 ** 30;

function scale(system, parameters, rows) {
  const inventory = T.parseSystem(system);
  const devices = S.simulatedDevices(inventory);
  for (const [name, make, numRanks] of rows) {
    const t0 = cpu();
    const machine = new S.Machine(inventory, devices.slice(0, numRanks), S.SYSTEMS[parameters]);
    const run = S.runSketch(make(numRanks), machine, S.SYSTEMS[parameters]);
    const seconds = cpu() - t0;
    console.log(
      `| ${system} | ${name} | ${numRanks} | ${run.messages} | ${run.simulatedRanks} | ${(run.timeUs / 1000).toFixed(2)} | ${(SIZE / run.timeUs / 1000).toFixed(1)} | ${seconds.toFixed(2)} |`,
    );
  }
}
console.log(
  "| system | 1 GiB | ranks | messages | simulated ranks | time ms | algbw GB/s | CPU s |\n|---|---|---|---|---|---|---|---|",
);
scale("128x hgx-h100-8", "h100", [
  ["ring all-reduce", (n) => S.ringAllReduceSketch(n, SIZE, 8), 1024],
  ["double binary tree all-reduce, 64 chunks", (n) => S.doubleTreeSketch(n, SIZE, 8, 64), 1024],
  ["hierarchical all-reduce", (n) => S.hierarchicalSketch(n, SIZE, 8), 1024],
  ["hierarchical all-reduce", (n) => S.hierarchicalSketch(n, SIZE, 8), 512],
  ["hierarchical all-reduce", (n) => S.hierarchicalSketch(n, SIZE, 8), 128],
]);
scale("gb200-nvl72", "b200", [
  ["two-shot all-reduce", (n) => S.twoShotSketch(n, SIZE), 72],
  ["direct all-gather", (n) => S.directSketch("all-gather", n, SIZE, false), 72],
  ["direct reduce-scatter", (n) => S.directSketch("reduce-scatter", n, SIZE, true), 72],
  ["direct all-to-all", (n) => S.directSketch("all-to-all", n, SIZE, false), 72],
]);

console.log(
  "\n| bytes | one-shot measured | simulated | two-shot measured | simulated | NCCL measured | nccl-tests | NCCL's model |\n|---|---|---|---|---|---|---|---|",
);
const inventory = T.presetInventory("hgx-h200-8");
const oneShot = compile(A.oneShotPacketAllReduce({ numRanks: 4, instances: 16 }), { verify: false });
const twoShot = new Map(
  [8, 24, 64].map((i) => [
    i,
    compile(A.twoShotReadAllReduce({ numRanks: 4, instances: i, inPlace: true }), { verify: false }),
  ]),
);
const nccl = {
  numRanks: 4,
  numNodes: 1,
  intraGBps: 18 * 20.6,
  interGBps: 0,
  llMaxGBps: 141,
  nvlink: true,
  nvls: false,
};
const off = (simulated, measured) =>
  `${simulated.toFixed(2)} (${simulated >= measured ? "+" : ""}${(100 * (simulated / measured - 1)).toFixed(0)} %)`;
S.H200_4.sizesBytes.forEach((sizeBytes, i) => {
  const measured = S.H200_4.oneShotPacketsUs[i];
  const one =
    measured === undefined
      ? ["-", "-"]
      : [measured, off(S.simulate(oneShot, { inventory, sizeBytes }).timeUs, measured)];
  const instances = sizeBytes <= 2 ** 18 ? 8 : sizeBytes <= 2 ** 22 ? 24 : 64;
  const two = S.simulate(twoShot.get(instances), { inventory, sizeBytes }).timeUs;
  const model = S.ncclEstimate("all_reduce", sizeBytes, nccl);
  console.log(
    `| ${sizeBytes} | ${one[0]} | ${one[1]} | ${S.H200_4.twoShotUs[i]} | ${off(two, S.H200_4.twoShotUs[i])} | ${S.H200_4.ncclAllReduceUs[i]} | ${S.H200_4.ncclTestsAllReduceUs[i]} | ${off(model.timeUs, S.H200_4.ncclAllReduceUs[i])}, ${model.algorithm} ${model.protocol} |`,
  );
});
