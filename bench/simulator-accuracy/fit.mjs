/**
 * Fits the constants of NCCL's model (src/machine/cost/nccl-fit.ts) to published curves, and cross-validates: every source
 * is left out once, the constants are fitted to the others, and the one left out is predicted.
 *   npm run build && node bench/simulator-accuracy/fit.mjs --curves curves.json [--rounds 12] [--no-validation] [--points]
 * `--neutral` begins, and holds the constants, at what was known before any curve: NCCL's own figures, line rates, and one
 * guess for all networks. Cross-validation from there says what an unseen source costs; from the file's constants, which saw
 * every source, it says whether a single source holds a constant up.
 * Damped: every constant is held near the value in the file (a standard deviation of 25 %), so that what nothing was
 * measured of stays. Least sum of |ln(simulated / measured)|, each curve and class of size counting alike, so that neither
 * long curves nor single outliers rule.
 */
import { readFileSync } from "node:fs";
import { flagsOf } from "../../dist/apps/bench/script-flags.js";
import { modelInput } from "./describe.mjs";
import { scoreTable, sizeClass, summarise } from "./score.mjs";

const dist = new URL(process.env.CHORALE_DIST ?? "../../dist/", import.meta.url);
const C = await import(new URL("machine/cost/index.js", dist).href);
const T = await import(new URL("machine/topology/index.js", dist).href);

const flags = flagsOf(
  import.meta.url,
  {
    options: {
      curves: { type: "string" },
      rounds: { type: "string", default: "10" },
      "no-validation": { type: "boolean" },
      points: { type: "boolean" },
      neutral: { type: "boolean" },
    },
  },
  ({ values }) => values,
);
const { curves } = JSON.parse(readFileSync(flags.curves, "utf8"));

/** Constants that are fitted: paths of the numbers of NCCL_FIT. Shares stay below their limits by the prior alone. */
const pathsOf = (value, path = []) =>
  typeof value === "number"
    ? [path]
    : typeof value === "object"
      ? Object.entries(value).flatMap(([k, v]) => pathsOf(v, [...path, k]))
      : [];
const at = (value, path) => path.reduce((v, key) => v[key], value);
function withValue(fit, path, value) {
  const copy = structuredClone(fit);
  at(copy, path.slice(0, -1))[path.at(-1)] = value;
  return copy;
}

const usable = curves.flatMap((curve) => {
  if (curve.kind === "kernel") return [];
  const { op, numRanks, system, p2p, options, devices } = modelInput(curve);
  const inventory = T.parseSystem(system);
  const ids = devices ?? inventory.devices.filter((device) => device.family !== "cpu").map((device) => device.id);
  const machine = C.collectiveMachineOf(inventory, ids.slice(0, numRanks), { p2p });
  if (options.devicesPerProcess === "host") options.devicesPerProcess = Math.ceil(machine.numRanks / machine.numHosts);
  const source = curve.source.repository ?? curve.source.hint ?? curve.source.url ?? curve.id;
  return [{ curve, op, machine, options, source }];
});
/** chorale's own measurements: 4 of 8 H200 on NVSwitch, graphs of 20 calls, no NVLS. */
const { H200_4 } = await import(new URL("authoring/simulator/index.js", dist).href);
const h200 = T.presetInventory("hgx-h200-8");
const four = C.collectiveMachineOf(
  h200,
  h200.devices
    .filter((d) => d.family !== "cpu")
    .slice(0, 4)
    .map((d) => d.id),
);
for (const [op, timesUs] of [
  ["all_reduce", H200_4.ncclTestsAllReduceUs],
  ["all_gather", H200_4.ncclTestsAllGatherUs],
  ["reduce_scatter", H200_4.ncclTestsReduceScatterUs],
  ["all_to_all", H200_4.ncclTestsAllToAllUs],
])
  usable.push({
    curve: {
      id: `h200-4-chorale-${op}`,
      class: "H200 x4, chorale's own",
      env: "",
      rows: timesUs.map((us, i) => ({ bytes: H200_4.sizesBytes[i], us })),
    },
    op,
    machine: four,
    options: {},
    source: "chorale",
  });
const nccl = usable.filter(({ machine }) => machine.family === "nvidia-gpu");

const predicted = (entry, fit) =>
  entry.curve.rows.map(({ bytes, us }) => {
    const estimate =
      entry.machine.family === "nvidia-gpu"
        ? C.ncclPrediction(entry.op, bytes, entry.machine, entry.options, fit)
        : C.predictCollective(entry.op, bytes, entry.machine, entry.options);
    return { id: entry.curve.id, class: entry.curve.class, bytes, us, source: entry.source, ...estimate };
  });

function lossOf(entries, fit, start, paths) {
  let loss = 0;
  for (const entry of entries) {
    const groups = { small: [], medium: [], large: [] };
    for (const point of predicted(entry, fit))
      groups[sizeClass(point.bytes)].push(Math.abs(Math.log(point.timeUs / point.us)));
    const weight = entry.curve.outlier || /bench/.test(entry.curve.env) ? 0.3 : 1;
    for (const group of Object.values(groups))
      if (group.length > 0) loss += (weight * group.reduce((a, b) => a + b, 0)) / group.length;
  }
  for (const path of paths) loss += 0.1 * (Math.log(at(fit, path) / at(start, path)) / width) ** 2;
  return loss;
}

/** Coordinate descent in the logarithm of each constant, with steps that shrink. */
function fitTo(entries, prior, rounds) {
  let fit = structuredClone(prior);
  const paths = pathsOf(prior).filter((path) => at(prior, path) > 0);
  let best = lossOf(entries, fit, prior, paths);
  for (let round = 0, step = 0.2; round < rounds; round++, step *= 0.8)
    for (const path of paths)
      for (const factor of [1 + step, 1 / (1 + step)]) {
        const trial = withValue(fit, path, at(fit, path) * factor);
        const loss = lossOf(entries, trial, prior, paths);
        if (loss < best - 1e-9) [fit, best] = [trial, loss];
      }
  return fit;
}

/** Nothing but NCCL's tables, line rates and equal guesses. */
function neutral() {
  const own = (llGBps, nvlsGBps) => ({
    ringEfficiency: 1,
    exchangeEfficiency: 0.8,
    llGBps,
    ...(nvlsGBps === undefined ? {} : { nvlsGBps }),
    launchPerDeviceUs: 2.5,
    latencyFactor: 1,
    networkLatencyFactor: 1,
  });
  const network = { extraHopUs: 5, efficiency: 0.9, exchangeEfficiency: 0.7, treeFillUs: 100 };
  return {
    ...C.NCCL_FIT,
    generations: {
      volta: own(39),
      ampere: own(87.7),
      ada: own(87.7),
      hopper: own(141, 0.85 * 370),
      blackwell: own(282, 0.74 * 722),
    },
    networks: Object.fromEntries(Object.keys(C.NCCL_FIT.networks).map((kind) => [kind, network])),
    efa: { volta: { ...network, simpleOnly: true }, ampere: { ...network, simpleOnly: true } },
    pcie: { socket: 0.8, sockets: 0.65, shm: 0.5, llShare: 0.4 },
    hostStaging: { networkShare: 0.8, pcieShare: 0.6 },
    networkLLShare: 0.4,
    networkLL128Share: 0.92,
    treeEfficiency: 0.92,
    nvls: { baseUs: 25, fillUs: 40, fillBytes: 16e6 },
    nvlsTree: { efficiency: 0.9, fillUs: 40, fillBytes: 16e6 },
  };
}
const prior = flags.neutral ? neutral() : C.NCCL_FIT;
/** With a neutral start the constants may go far: a standard deviation of a factor 2. */
const width = flags.neutral ? 0.7 : 0.25;
const rounds = Number(flags.rounds);
const before = usable.flatMap((entry) => predicted(entry, C.NCCL_FIT));
console.log("# with the constants of the file\n");
console.log(scoreTable(before));
console.log(summarise(before));
if (flags.points)
  for (const { id, bytes, us, timeUs, algorithm, protocol, uncertainty } of before)
    console.log(
      id,
      bytes,
      us,
      timeUs.toFixed(1),
      (timeUs / us).toFixed(2),
      algorithm,
      protocol,
      uncertainty.toFixed(2),
    );
if (rounds > 0) {
  const fit = fitTo(nccl, prior, rounds);
  console.log("\n# constants that moved\n");
  for (const path of pathsOf(fit)) {
    const [old, now] = [at(prior, path), at(fit, path)];
    if (Math.abs(now / old - 1) > 0.005)
      console.log(`${path.join(".").padEnd(46)} ${old} -> ${Number(now.toPrecision(3))}`);
  }
  const after = usable.flatMap((entry) => predicted(entry, fit));
  console.log("\n# fitted to all\n");
  console.log(scoreTable(after));
  console.log(summarise(after));
  if (!flags["no-validation"]) {
    const sources = [...new Set(nccl.map(({ source }) => source))];
    const validated = sources.flatMap((left) => {
      const others = fitTo(
        nccl.filter(({ source }) => source !== left),
        prior,
        rounds,
      );
      return nccl.filter(({ source }) => source === left).flatMap((entry) => predicted(entry, others));
    });
    console.log(`\n# each of ${sources.length} sources left out once\n`);
    console.log(scoreTable(validated));
    console.log(summarise(validated));
    if (flags.points)
      for (const { id, bytes, us, timeUs, uncertainty } of validated)
        console.log("validated", id, bytes, us, timeUs.toFixed(1), (timeUs / us).toFixed(2), uncertainty.toFixed(2));
  }
}
