/**
 * Where nothing is contended and nothing but links costs anything, the simulator gives the textbook's times: alpha a
 * message, beta a byte (Thakur, Rabenseifner, Gropp 2005; Sanders, Speck, Träff 2009). The formulas are written out here.
 */
import { describe, expect, it } from "vitest";
import type { Inventory } from "../../machine/topology/index.ts";
import { algorithm, doubleBinaryTreeAllReduce, hierarchicalAllReduce, twoTrees } from "../algorithms/index.ts";
import { compile } from "../language/index.ts";
import type { ExecutionPlan } from "../plan/index.ts";
import {
  binaryTreePlace,
  directSketch,
  doubleTreeSketch,
  hierarchicalSketch,
  readAstraNetwork,
  ringAllReduceSketch,
  ringHalfSketch,
  runSketch,
  SimulatedMachine,
  type Sketch,
  SYSTEMS,
  simulate,
  simulatedDevices,
  twoShotSketch,
} from "./index.ts";

/** Microseconds a message, and bytes a microsecond. */
const ALPHA = 0.5;
const BETA = 50_000;
/** A switch is two hops. */
const SWITCHED = 2 * ALPHA;
const SIZES = [1024, 40_000, 2 ** 20, 3 * 2 ** 23];
const ideal = SYSTEMS["ideal"]!;
/** Both trees use some links at once: links are wide, and messages as fast as their block (in sketches: 32 of them). */
const WIDE = 8;
const capped = { ...ideal, blockRemoteGBps: BETA / 1000 };
const cappedLanes = { ...ideal, blockRemoteGBps: BETA / 1000 / 32 };

interface Dimension {
  readonly shape: "Ring" | "Switch" | "FullyConnected";
  readonly count: number;
  readonly alpha?: number;
  readonly beta?: number;
}
/** ASTRA-sim's GB are 2^30 bytes. */
const network = (...dims: readonly Dimension[]): Inventory =>
  readAstraNetwork(
    [
      `topology: [ ${dims.map((d) => d.shape).join(", ")} ]`,
      `npus_count: [ ${dims.map((d) => d.count).join(", ")} ]`,
      `bandwidth: [ ${dims.map((d) => ((d.beta ?? BETA) * 1e6) / 2 ** 30).join(", ")} ]`,
      `latency: [ ${dims.map((d) => (d.alpha ?? ALPHA) * 1000).join(", ")} ]`,
    ].join("\n"),
  );
/** Each is asked for the times of several sizes. */
const plans = new Map<string, ExecutionPlan>();
function planOf(name: string, count: number): ExecutionPlan {
  const key = `${name} ${count}`;
  const plan = plans.get(key) ?? compile(algorithm(name).make({ numRanks: count }), { verify: false });
  plans.set(key, plan);
  return plan;
}
function timeOf(name: string, count: number, shape: Dimension["shape"], sizeBytes: number): number {
  const plan = planOf(name, count);
  return simulate(plan, { inventory: network({ shape, count }), sizeBytes, parameters: ideal }).timeUs;
}
function sketchTime(sketch: Sketch, inventory: Inventory): number {
  return runSketch(sketch, new SimulatedMachine(inventory, simulatedDevices(inventory), ideal), ideal).timeUs;
}
/** The same to nine digits, but for the nanosecond's millionth that the network takes for one moment. */
function same(actual: number, expected: number, what: string): void {
  expect(Math.abs(actual - expected), `${what}: ${actual} for ${expected}`).toBeLessThan(1e-6 + 1e-9 * expected);
}
const isPower = (n: number) => (n & (n - 1)) === 0;
const core = (n: number) => 2 ** Math.floor(Math.log2(n));

interface Form {
  readonly name: string;
  readonly shape: Dimension["shape"];
  readonly ranks: readonly number[];
  /** Of n ranks and t = size / beta. */
  readonly time: (n: number, t: number) => number;
  /** Largest t for which nothing is contended. */
  readonly most?: (n: number) => number;
}
const log = Math.log2;
const POWERS = [2, 4, 8, 16];
const ANY = [2, 3, 4, 5, 7, 8, 12];
/** Folding a surplus rank in, and giving it the result: two messages of everything. */
const folded = (n: number, t: number) => (isPower(n) ? 0 : 2 * (ALPHA + t));

const FORMS: readonly Form[] = [
  { name: "ring-all-reduce", shape: "Ring", ranks: [3, 4, 6, 8, 16], time: (n, t) => 2 * (n - 1) * (ALPHA + t / n) },
  { name: "ring-all-gather", shape: "Ring", ranks: [3, 4, 5, 8], time: (n, t) => (n - 1) * (ALPHA + t / n) },
  { name: "ring-reduce-scatter", shape: "Ring", ranks: [3, 4, 5, 8], time: (n, t) => (n - 1) * (ALPHA + t / n) },
  {
    name: "recursive-doubling-all-reduce",
    shape: "FullyConnected",
    ranks: POWERS,
    time: (n, t) => log(n) * (ALPHA + t),
  },
  {
    name: "halving-doubling-all-reduce",
    shape: "FullyConnected",
    ranks: [...POWERS, 3, 6, 12],
    time: (n, t) => 2 * log(core(n)) * ALPHA + ((2 * (core(n) - 1)) / core(n)) * t + folded(n, t),
  },
  {
    name: "recursive-doubling-all-gather",
    shape: "FullyConnected",
    ranks: POWERS,
    time: (n, t) => log(n) * ALPHA + ((n - 1) / n) * t,
  },
  {
    name: "halving-reduce-scatter",
    shape: "FullyConnected",
    ranks: POWERS,
    time: (n, t) => log(n) * ALPHA + ((n - 1) / n) * t,
  },
  { name: "binomial-broadcast", shape: "FullyConnected", ranks: POWERS, time: (n, t) => log(n) * (ALPHA + t) },
  { name: "binomial-reduce", shape: "FullyConnected", ranks: POWERS, time: (n, t) => log(n) * (ALPHA + t) },
  { name: "binomial-all-reduce", shape: "FullyConnected", ranks: POWERS, time: (n, t) => 2 * log(n) * (ALPHA + t) },
  // Eight chunks go down a chain: the first over all hops, the others a chunk's time behind each other.
  {
    name: "chain-broadcast",
    shape: "Ring",
    ranks: [3, 4, 8],
    time: (n, t) => (n - 1) * (ALPHA + t / 8) + (7 * t) / 8,
  },
  // Every port carries what its rank sends to n - 1 others.
  { name: "one-shot-all-reduce", shape: "Switch", ranks: ANY, time: (n, t) => SWITCHED + (n - 1) * t },
  { name: "one-shot-packet-all-reduce", shape: "Switch", ranks: ANY, time: (n, t) => SWITCHED + 2 * (n - 1) * t },
  // A load asks first, and one follows the other; who has read says so, for inputs are written again.
  {
    name: "one-shot-read-all-reduce",
    shape: "FullyConnected",
    ranks: ANY,
    time: (n, t) => (n - 1) * (2 * ALPHA + t) + ALPHA,
  },
  { name: "two-shot-all-reduce", shape: "Switch", ranks: ANY, time: (n, t) => 2 * SWITCHED + (2 * (n - 1) * t) / n },
  {
    name: "two-shot-all-reduce",
    shape: "FullyConnected",
    ranks: ANY,
    time: (n, t) => 2 * ALPHA + (2 * (n - 1) * t) / n,
  },
  // Loads of n - 1 parts and a store of the first result come back after a round trip, n - 2 stores follow. Stores do not
  // meet loads only while those take less than the way.
  {
    name: "two-shot-read-all-reduce",
    shape: "Switch",
    ranks: [3, 4, 5, 8],
    time: (n, t) => 3 * SWITCHED + ((2 * n - 3) * t) / n,
    most: () => SWITCHED,
  },
  { name: "direct-all-gather", shape: "Switch", ranks: ANY, time: (n, t) => SWITCHED + ((n - 1) / n) * t },
  { name: "direct-reduce-scatter", shape: "Switch", ranks: ANY, time: (n, t) => SWITCHED + ((n - 1) / n) * t },
  { name: "direct-all-to-all", shape: "Switch", ranks: ANY, time: (n, t) => SWITCHED + ((n - 1) / n) * t },
  { name: "direct-all-gather", shape: "FullyConnected", ranks: ANY, time: (n, t) => ALPHA + t / n },
];

describe("plans, exactly where nothing is contended", () => {
  it.each(FORMS.map((form) => [`${form.name} on ${form.shape}`, form] as const))("%s", (what, form) => {
    let seen = 0;
    for (const n of form.ranks) {
      for (const sizeBytes of SIZES) {
        const t = sizeBytes / BETA;
        if (form.most !== undefined && t > form.most(n)) continue;
        same(timeOf(form.name, n, form.shape, sizeBytes), form.time(n, t), `${what}, ${n} ranks, ${sizeBytes} bytes`);
        seen++;
      }
    }
    expect(seen).toBeGreaterThanOrEqual(form.ranks.length);
  });

  it("binomial broadcast to any number of ranks: every rank sends to the farthest first", () => {
    for (const n of [3, 5, 6, 7, 11, 13]) {
      for (const sizeBytes of SIZES) {
        const t = sizeBytes / BETA;
        // Rank v has the data at ready[v]; its k-th message leaves k message times after.
        const ready = new Array<number>(n).fill(0);
        const sent = new Array<number>(n).fill(0);
        for (let distance = core(2 * n - 1) / 2; distance >= 1; distance /= 2) {
          for (let v = 0; v + distance < n; v += 2 * distance) {
            sent[v] = sent[v]! + 1;
            ready[v + distance] = ready[v]! + sent[v]! * t + ALPHA;
          }
        }
        same(timeOf("binomial-broadcast", n, "FullyConnected", sizeBytes), Math.max(...ready), `${n} ranks`);
      }
    }
  });

  it("recursive doubling of any number of ranks: surplus ranks join a partner, which gives them the result", () => {
    for (const n of [3, 5, 6, 7, 11, 12]) {
      for (const sizeBytes of SIZES) {
        const t = sizeBytes / BETA;
        const time = new Array<number>(n).fill(0);
        for (let rank = core(n); rank < n; rank++) {
          time[rank] = t;
          time[rank - core(n)] = t + ALPHA;
        }
        for (let distance = 1; distance < core(n); distance *= 2) {
          const left = time.map((at) => at + t);
          for (let rank = 0; rank < core(n); rank++) time[rank] = Math.max(left[rank]!, left[rank ^ distance]! + ALPHA);
        }
        for (let rank = core(n); rank < n; rank++) time[rank] = time[rank - core(n)]! + t + ALPHA;
        same(
          timeOf("recursive-doubling-all-reduce", n, "FullyConnected", sizeBytes),
          Math.max(...time),
          `${n} ranks, ${sizeBytes} bytes`,
        );
      }
    }
  });

  it("double binary trees: chunks go up and down both trees in pipelines", () => {
    for (const n of [2, 3, 4, 5, 6, 7, 8, 12, 16]) {
      for (const chunks of [2, 4, 8]) {
        const plan = compile(doubleBinaryTreeAllReduce({ numRanks: n, chunks }), { verify: false });
        const inventory = network({ shape: "FullyConnected", count: n, beta: WIDE * BETA });
        for (const sizeBytes of SIZES) {
          const each = chunks / 2;
          const t = sizeBytes / BETA / chunks;
          const expected = Math.max(...twoTrees(n).map((parents) => pipelineEnd(parents, each, t)));
          const { timeUs } = simulate(plan, { inventory, sizeBytes, parameters: capped });
          same(timeUs, expected, `${n} ranks, ${chunks} chunks, ${sizeBytes} bytes`);
        }
      }
    }
  });

  it("hierarchical: direct within, a ring across, direct within", () => {
    const far = { alpha: 3, beta: 25_000 };
    for (const [g, m] of [
      [2, 3],
      [4, 3],
      [4, 4],
      [8, 4],
    ] as const) {
      const plan = compile(hierarchicalAllReduce({ numRanks: g * m, ranksPerNode: g }), { verify: false });
      const inventory = network({ shape: "FullyConnected", count: g }, { shape: "Ring", count: m, ...far });
      for (const sizeBytes of SIZES) {
        const local = ALPHA + ((g - 1) / g) * (sizeBytes / BETA);
        const across = 2 * (m - 1) * (far.alpha + sizeBytes / (g * m) / far.beta);
        same(
          simulate(plan, { inventory, sizeBytes, parameters: ideal }).timeUs,
          2 * local + across,
          `${g} x ${m}, ${sizeBytes} bytes`,
        );
      }
    }
  });
});

/**
 * When the last chunk has come down a tree. A rank sends a chunk up when it has come from all children and the one before
 * has left; it sends a chunk down to its children one after the other, as soon as it is there.
 */
function pipelineEnd(
  parents: readonly (number | undefined)[],
  chunks: number,
  t: number,
  children: readonly (readonly number[])[] = parents.map((_, rank) =>
    parents.flatMap((parent, other) => (parent === rank ? [other] : [])),
  ),
): number {
  const upLeft = new Map<number, number>();
  const downLeft = new Map<number, number>();
  let end = 0;
  const up = (rank: number): number => {
    const there = Math.max(0, ...children[rank]!.map((child) => up(child) + ALPHA));
    if (parents[rank] === undefined) return there;
    const left = Math.max(there, upLeft.get(rank) ?? 0) + t;
    upLeft.set(rank, left);
    return left;
  };
  const down = (rank: number, there: number): void => {
    end = Math.max(end, there);
    let left = Math.max(there, downLeft.get(rank) ?? 0);
    for (const child of children[rank]!) {
      left += t;
      down(child, left + ALPHA);
    }
    downLeft.set(rank, left);
  };
  const root = parents.indexOf(undefined);
  for (let chunk = 0; chunk < chunks; chunk++) down(root, up(root));
  return end;
}

describe("sketches, exactly where nothing is contended", () => {
  const S = 2 ** 24;
  it("rings", () => {
    for (const n of [4, 16, 64, 256]) {
      const ring = network({ shape: "Ring", count: n });
      same(sketchTime(ringAllReduceSketch(n, S, 1), ring), 2 * (n - 1) * (ALPHA + S / n / BETA), `${n} ranks`);
      same(sketchTime(ringHalfSketch(n, S, false, 1), ring), (n - 1) * (ALPHA + S / n / BETA), `${n} ranks`);
    }
  });
  it("all pairs at once, on a switch", () => {
    for (const n of [4, 16, 64]) {
      const star = network({ shape: "Switch", count: n });
      const part = ((n - 1) / n) * (S / BETA);
      same(sketchTime(directSketch("all-gather", n, S, false), star), SWITCHED + part, `${n} ranks`);
      same(sketchTime(twoShotSketch(n, S), star), 2 * (SWITCHED + part), `${n} ranks`);
    }
  });
  it("hierarchical", () => {
    for (const [g, m] of [
      [4, 4],
      [8, 16],
    ] as const) {
      const inventory = network({ shape: "FullyConnected", count: g }, { shape: "Ring", count: m, alpha: 2 });
      const expected = 2 * (g - 1) * (ALPHA + S / g / BETA) + 2 * (m - 1) * (2 + S / (g * m) / BETA);
      same(sketchTime(hierarchicalSketch(g * m, S, g), inventory), expected, `${g} x ${m}`);
    }
  });
  it("double binary trees over single ranks", () => {
    for (const n of [2, 3, 5, 8, 13, 16]) {
      const ends = [0, 1].map((shift) => {
        const mirrored = shift === 1 && n % 2 === 0;
        const placed = (rank: number) => (mirrored ? n - 1 - rank : (rank - shift + n) % n);
        const places = Array.from({ length: n }, (_, rank) => binaryTreePlace(placed(rank), n));
        const named = (place: number) => (mirrored ? n - 1 - place : (place + shift) % n);
        const parents = places.map(({ parent }) => (parent === undefined ? undefined : named(parent)));
        const t = S / 2 / BETA;
        // One chunk: what waits for what is then the same as in the plans.
        return pipelineEnd(
          parents,
          1,
          t,
          places.map(({ children }) => children.map(named)),
        );
      });
      const inventory = network({ shape: "FullyConnected", count: n, beta: WIDE * BETA });
      same(
        runSketch(
          doubleTreeSketch(n, S, 1, 1),
          new SimulatedMachine(inventory, simulatedDevices(inventory), cappedLanes),
          cappedLanes,
        ).timeUs,
        Math.max(...ends),
        `${n} ranks`,
      );
    }
  });
});

describe("ASTRA-sim's analytical backend, congestion-aware", () => {
  // AstraSim_Analytical_Congestion_Aware at 518bd51 with network backend 599a047: all_reduce of 64 MiB, ring, one chunk,
  // endpoint-delay 1 ns, `topology: [ Ring ]`, bandwidth 50.0, latency 500.0: nanoseconds of sys[0].
  const RECORDED = [
    [8, 2_194_683],
    [64, 2_524_222],
    [256, 2_745_331],
    [512, 3_006_725],
    [1024, 3_521_167],
  ] as const;
  it.each(RECORDED)("says the same of a ring of %i", (n, nanoseconds) => {
    const ring = readAstraNetwork(`topology: [ Ring ]\nnpus_count: [ ${n} ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]`);
    const timeUs = sketchTime(ringAllReduceSketch(n, 2 ** 26, 1), ring);
    // Theirs rounds to nanoseconds at every step.
    expect(Math.abs((timeUs * 1000) / nanoseconds - 1)).toBeLessThan(3e-4);
  });
});
