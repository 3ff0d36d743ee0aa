/**
 * Synthesised schedules beside published ones, and on machines with a dead link; everything computed or simulated, nothing
 * measured. Prints the tables of bench/results/synthesis.md.
 * Run after `npm run build`: node bench/synthesis.mjs [--only published|degraded] [--most-ranks 40]
 */
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { checkCertificate } from "../dist/authoring/certificate/index.js";
import {
  collectiveMachineOf,
  parametersFor,
  placeRanks,
  predictCollective,
  simulatedDevices,
} from "../dist/authoring/simulator/index.js";
import { certify, envelope, lowerBound, networkOf, synthesize } from "../dist/authoring/synthesis/index.js";
import { resolveHardware } from "../dist/machine/hardware/index.js";

const config = {
  options: { only: { type: "string", default: "all" }, "most-ranks": { type: "string", default: "40" } },
};
const { only, mostRanks } = flagsOf(import.meta.url, config, ({ values }) => ({
  only: values.only,
  mostRanks: integer(values["most-ranks"], "--most-ranks", 2),
}));

const both = (from, to, capacity) => [
  { from, to, capacity },
  { from: to, to: from, capacity },
];

/** A grid of any dimensions; GiB/s along each, with a link round where `wraps` and the side is longer than two. */
function grid(sides, rates, wraps = false) {
  const strides = sides.map((_, d) => sides.slice(0, d).reduce((a, b) => a * b, 1));
  const count = sides.reduce((a, b) => a * b, 1);
  const edges = [];
  for (let node = 0; node < count; node++) {
    for (const [d, side] of sides.entries()) {
      const at = Math.floor(node / strides[d]) % side;
      if (at + 1 < side) edges.push(...both(`n${node}`, `n${node + strides[d]}`, String(rates[d])));
      else if (wraps && side > 2) edges.push(...both(`n${node}`, `n${node - at * strides[d]}`, String(rates[d])));
    }
  }
  return { nodes: Array.from({ length: count }, (_, i) => ({ id: `n${i}`, kind: "rank" })), edges };
}

/** Boxes of eight V100 (DGX-1's links), one NIC of 12.5 GB/s each behind the box's host, one switch. */
function ndv2(boxes) {
  const doubles = [
    [0, 1],
    [0, 4],
    [1, 3],
    [2, 3],
    [2, 6],
    [4, 5],
    [5, 7],
    [6, 7],
  ];
  const singles = [
    [0, 2],
    [0, 3],
    [1, 2],
    [1, 5],
    [3, 7],
    [4, 6],
    [4, 7],
    [5, 6],
  ];
  const nodes = [{ id: "switch", kind: "relay" }];
  const edges = [];
  for (let box = 0; box < boxes; box++) {
    const gpu = (i) => `b${box}g${i}`;
    nodes.push(...Array.from({ length: 8 }, (_, i) => ({ id: gpu(i), kind: "rank" })), {
      id: `b${box}nic`,
      kind: "relay",
    });
    for (const [a, b] of doubles) edges.push(...both(gpu(a), gpu(b), "50"));
    for (const [a, b] of singles) edges.push(...both(gpu(a), gpu(b), "25"));
    for (let i = 0; i < 8; i++) edges.push(...both(gpu(i), `b${box}nic`, "12.5"));
    edges.push(...both(`b${box}nic`, "switch", "12.5"));
  }
  return { nodes, edges };
}

/** Two DGX-2 as TE-CCL has them: sixteen V100 on a switch at 125 GB/s; odd GPUs of a box send to the other's even ones, 12.5. */
function dgx2x2() {
  const nodes = [0, 1].flatMap((box) => [
    ...Array.from({ length: 16 }, (_, i) => ({ id: `b${box}g${i}`, kind: "rank" })),
    { id: `b${box}switch`, kind: "relay" },
  ]);
  const inside = [0, 1].flatMap((box) =>
    Array.from({ length: 16 }, (_, i) => both(`b${box}g${i}`, `b${box}switch`, "125")).flat(),
  );
  const across = [0, 1].flatMap((box) =>
    Array.from({ length: 8 }, (_, i) => ({
      from: `b${box}g${2 * i + 1}`,
      to: `b${1 - box}g${2 * i}`,
      capacity: "12.5",
    })),
  );
  return { nodes, edges: [...inside, ...across] };
}

/** The bound, and what a schedule reaches: certified, or with the gap. */
async function reached(network, collective) {
  const numRanks = network.nodes.filter(({ kind }) => kind === "rank").length;
  if (numRanks > mostRanks) {
    const { bound } = await lowerBound(network, collective);
    return { bound: bound.toNumber(), time: Number.NaN, proof: `bound only (${numRanks} ranks)` };
  }
  const result = await synthesize(network, collective);
  const proof = result.isOptimal && checkCertificate(certify(result)).ok ? "certificate holds" : "above the bound";
  return { bound: result.bound.toNumber(), time: result.time.toNumber(), proof };
}

async function published() {
  console.log("## Published cases\n\n| case | published | synthesised | bound | |\n|---|---|---|---|---|");
  const rates = [
    ["NDv2 x2 all-gather", ndv2(2), "TACCL 18.6-20.5 GB/s"],
    ["NDv2 x4 all-gather", ndv2(4), "TE-CCL 15.09 GB/s after 8.6 h, 15.38 after 222 s"],
    ["DGX-2 x2 all-gather", dgx2x2(), "TE-CCL 129.03 GB/s after 45 min"],
    ["Frontier-class node all-gather", networkOf(await resolveHardware("mi250x-8")), "RCCL's table 228.6 GB/s"],
  ];
  for (const [name, network, theirs] of rates) {
    const { bound, time, proof } = await reached(network, "all_gather");
    console.log(`| ${name} | ${theirs} | ${(1 / time).toFixed(2)} GB/s | ${(1 / bound).toFixed(2)} GB/s | ${proof} |`);
  }
  const tacos = [
    ["mesh 5x5", [5, 5], [50, 50], false, 1, 9606],
    ["mesh 10x10", [10, 10], [100, 100], false, 1, 5049],
    ["mesh 7x12", [7, 12], [100, 100], false, 4, 19966.27],
    ["mesh 5x5, two rates", [5, 5], [50, 75], false, 1, 8005],
    ["mesh 8x5, two rates", [8, 5], [80, 35], false, 1, 8595.43],
    ["mesh 7x10, two rates", [7, 10], [16, 73], false, 4, 44612.47],
    ["grid 3x3x3", [3, 3, 3], [50, 50, 50], false, 1, 6671.17],
    ["grid 3x4x5", [3, 4, 5], [50, 50, 50], false, 2, 13353.33],
    ["grid 4x2x3", [4, 2, 3], [50, 50, 50], false, 3, 19178.17],
    ["torus 3x3x3", [3, 3, 3], [50, 50, 50], true, 1, 3706],
    ["torus 3x4x5", [3, 4, 5], [50, 50, 50], true, 2, 6677],
    ["torus 4x2x3", [4, 2, 3], [50, 50, 50], true, 3, 11674],
  ];
  for (const [name, sides, rate, wraps, gibibytes, theirs] of tacos) {
    const { bound, time, proof } = await reached(grid(sides, rate, wraps), "all_gather");
    const us = (seconds) => (Number.isNaN(seconds) ? "-" : `${(seconds * gibibytes * 1e6).toFixed(0)} us`);
    console.log(
      `| TACOS's ${name}, ${gibibytes} GiB all-gather | ${theirs} us | ${us(time)} | ${us(bound)} | ${proof} |`,
    );
  }
}

/** The machine without one of its links. */
async function without(preset, isDead) {
  const inventory = await resolveHardware(preset);
  const dead = inventory.topology.links.find(isDead);
  if (dead === undefined) throw new Error(`${preset} has no such link`);
  const links = inventory.topology.links.filter((link) => link !== dead);
  return {
    name: `${preset} without ${dead.a}-${dead.b}`,
    inventory: { ...inventory, topology: { ...inventory.topology, links } },
  };
}

async function degraded() {
  console.log("\n## A dead link: all-reduce, simulated, us\n");
  console.log(
    "| machine | size | synthesised | library's best | vendor's model | bound | fastest |\n|---|---|---|---|---|---|---|",
  );
  const machines = [
    await without("mi250x-8", ({ a, b, bandwidthGBps }) => /^gpu/.test(a) && /^gpu/.test(b) && bandwidthGBps === 50),
    await without("2x hgx-a100-8", ({ kind }) => kind === "infiniband"),
  ];
  const sizes = [65_536, 4 * 2 ** 20, 2 ** 30];
  for (const { name, inventory } of machines) {
    const devices = simulatedDevices(inventory);
    const device = inventory.devices.find(({ id }) => id === devices[0]);
    for (const parameters of [parametersFor(device.name, device.arch), parametersFor("ideal")]) {
      const { points } = await envelope(networkOf(inventory), "all_reduce", { inventory, parameters, sizes });
      const machine = collectiveMachineOf(inventory, placeRanks(devices.length, inventory));
      for (const { sizeBytes, synthesisedUs, libraryUs, bandwidthBoundUs, latencyBoundUs, use } of points) {
        const vendor = predictCollective("all_reduce", sizeBytes, machine, {});
        const us = (time) => time.toFixed(time < 100 ? 1 : 0);
        console.log(
          `| ${name}, costs of ${parameters.name} | ${sizeBytes / 1024} KiB | ${us(synthesisedUs)} | ${us(libraryUs)} | ${vendor.library} ${us(vendor.timeUs)} | ${us(Math.max(bandwidthBoundUs, latencyBoundUs))} | ${use.replace(/-h[0-9a-f]{8}$/, "")} |`,
        );
      }
    }
  }
}

if (only !== "degraded") await published();
if (only !== "published") await degraded();
