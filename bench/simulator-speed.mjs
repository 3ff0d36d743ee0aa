/**
 * Whether the simulator has become slower: two builds in turn, each round in a process of its own (in one process what is
 * loaded second runs slower), CPU milliseconds, medians of the rounds and of their ratios.
 *   npm run build && node bench/simulator-speed.mjs --before DIR/dist/ [--rounds 9]
 */
import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { flagsOf } from "../dist/apps/bench/script-flags.js";

const flags = flagsOf(
  import.meta.url,
  { options: { before: { type: "string" }, rounds: { type: "string", default: "5" }, one: { type: "string" } } },
  ({ values }) => values,
);
if (flags.before === undefined && flags.one === undefined)
  throw new Error("--before DIR is needed: the dist/ of another build");

async function load(dist) {
  const S = await import(new URL("authoring/simulator/index.js", dist).href);
  const T = await import(new URL("machine/topology/index.js", dist).href);
  const { compile } = await import(new URL("authoring/language/index.js", dist).href);
  const { ALGORITHMS } = await import(new URL("authoring/algorithms/index.js", dist).href);
  // Its name before 2026-11-22.
  const Machine = S.SimulatedMachine ?? S.Machine;
  const plan = (system, name, numRanks, args, sizeBytes) => {
    const inventory = T.parseSystem(system);
    const made = compile(ALGORITHMS.find((one) => one.name === name).make({ numRanks, ...args }), { verify: false });
    return () => S.simulate(made, { inventory, sizeBytes }).timeUs;
  };
  const sketch = (system, make, numRanks, useSymmetry) => {
    const inventory = T.parseSystem(system);
    const devices = S.simulatedDevices(inventory).slice(0, numRanks);
    const costs = S.SYSTEMS.h100;
    return () => S.runSketch(make(S), new Machine(inventory, devices, costs), costs, useSymmetry).timeUs;
  };
  // A network whose routes no build has changed.
  const network = `topology: [ Ring ]\nnpus_count: [ 256 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n`;
  const ring = S.readAstraNetwork(network);
  const onRing = () => {
    const machine = new Machine(ring, S.simulatedDevices(ring), S.SYSTEMS.ideal);
    return S.runSketch(S.ringAllReduceSketch(256, 2 ** 26, 1), machine, S.SYSTEMS.ideal, false).timeUs;
  };
  return {
    "ring sketch on a ring, 256 ranks, every one": onRing,
    "ring, 16 ranks on 2 hosts, 8 instances": plan("2x hgx-h100-8", "ring-all-reduce", 16, { instances: 8 }, 2 ** 26),
    "two-shot, 8 ranks, 16 instances": plan("hgx-h100-8", "two-shot-all-reduce", 8, { instances: 16 }, 2 ** 26),
    "packets, 8 ranks, 4 instances": plan("hgx-h100-8", "two-shot-packet-all-reduce", 8, { instances: 4 }, 2 ** 16),
    "double tree, 64 ranks": plan("8x hgx-h100-8", "double-binary-tree-all-reduce", 64, {}, 2 ** 24),
    "all-to-all, 32 ranks": plan("4x hgx-h100-8", "direct-all-to-all", 32, {}, 2 ** 26),
    "ring sketch, 1,024 ranks": sketch("128x hgx-h100-8", (S) => S.ringAllReduceSketch(1024, 2 ** 30, 8), 1024, true),
    "ring sketch, 256 ranks, every one": sketch(
      "32x hgx-h100-8",
      (S) => S.ringAllReduceSketch(256, 2 ** 30, 8),
      256,
      false,
    ),
    "hierarchical sketch, 1,024 ranks": sketch(
      "128x hgx-h100-8",
      (S) => S.hierarchicalSketch(1024, 2 ** 30, 8),
      1024,
      true,
    ),
  };
}

const cpuMs = (run) => {
  const { user, system } = process.cpuUsage();
  run();
  const end = process.cpuUsage();
  return (end.user + end.system - user - system) / 1000;
};
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

// A child: every case of one build, warmed up, the median of five runs.
if (flags.one !== undefined) {
  const cases = await load(pathToFileURL(`${resolve(flags.one)}/`));
  const times = Object.entries(cases).map(([name, run]) => {
    run();
    run();
    return [name, median(Array.from({ length: 5 }, () => cpuMs(run)))];
  });
  console.log(JSON.stringify(times));
  process.exit();
}

const here = new URL("../dist/", import.meta.url).pathname;
const measure = (dist) => {
  const { stdout, stderr } = spawnSync(process.execPath, [new URL(import.meta.url).pathname, "--one", dist], {
    encoding: "utf8",
  });
  if (stdout === "") throw new Error(stderr);
  return new Map(JSON.parse(stdout));
};
const rounds = Array.from({ length: Number(flags.rounds) }, (_, round) =>
  round % 2 === 0
    ? { before: measure(flags.before), now: measure(here) }
    : (([now, before]) => ({ before, now }))([measure(here), measure(flags.before)]),
);
console.log("| | before ms | now ms | now / before |\n| --- | --- | --- | --- |");
for (const name of rounds[0].now.keys()) {
  const before = rounds.map((round) => round.before.get(name));
  const now = rounds.map((round) => round.now.get(name));
  const ratio = median(now.map((time, i) => time / before[i]));
  console.log(`| ${name} | ${median(before).toFixed(1)} | ${median(now).toFixed(1)} | ${ratio.toFixed(2)} |`);
}
