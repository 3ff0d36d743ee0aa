/**
 * Topologies, networks, preset expressions, faults, constants and measurements that somebody got wrong: each is refused
 * with a typed error, or is simulated to an end, in bounded time and memory. A failure prints its seed; CHORALE_SEED
 * repeats a run, CHORALE_MALFORMED sets the number of cases (5,000 take a minute).
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ChoraleError } from "../../core/index.ts";
import { type Inventory, inventorySchema, parseSystem, presetInventory } from "../../machine/topology/index.ts";
import { ALGORITHMS } from "../algorithms/index.ts";
import { compile } from "../language/index.ts";
import type { ExecutionPlan } from "../plan/index.ts";
import {
  describeCriticalPath,
  explainStuck,
  fitNcclLL,
  fitParameters,
  ncclMachineOf,
  parametersFor,
  parseFault,
  parseParameters,
  readAstraNetwork,
  readMeasurements,
  ringAllReduceSketch,
  runSketch,
  SimulatedMachine,
  SYSTEMS,
  simulate,
  simulatedDevices,
  toTrace,
} from "./index.ts";

const CASES = Number(process.env["CHORALE_MALFORMED"] ?? 600);
const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
/** No input may take more of this process's time, whoever else uses the machine; nor more memory. */
const MAX_CASE_MS = 4000;
const MAX_GROWTH_BYTES = 1.5e9;

const plans: readonly ExecutionPlan[] = ["ring-all-reduce", "two-shot-packet-all-reduce", "direct-all-gather"].map(
  (name) => compile(ALGORITHMS.find((a) => a.name === name)!.make({ numRanks: 4 }), { verify: false }),
);
const ports = compile(ALGORITHMS.find((a) => a.name === "ring-all-reduce")!.make({ numRanks: 4, channel: "port" }), {
  verify: false,
});

/** Runs a case: it may throw what is typed, and must end. */
function survives(run: () => void): void {
  const before = process.cpuUsage();
  try {
    run();
  } catch (error) {
    if (!(error instanceof ChoraleError)) throw error;
    expect(error.message.length).toBeGreaterThan(10);
    expect(error.message.length).toBeLessThan(5000);
  }
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1000).toBeLessThan(MAX_CASE_MS);
}

/** Simulates what was accepted, with everything that is made of a run. */
function exercise(inventory: Inventory, parameters = parametersFor("h200"), faults: readonly string[] = []): void {
  for (const plan of [...plans, ports]) {
    const result = simulate(plan, {
      inventory,
      sizeBytes: 40_000,
      parameters,
      faults: faults.map(parseFault),
      switchOps: inventory.devices.length % 2 === 0,
    });
    expect(Number.isFinite(result.timeUs) && result.timeUs >= 0, `${result.timeUs}`).toBe(true);
    expect(result.completed).toBe(result.stuck.length === 0 && !faults.some((fault) => fault.startsWith("dead")));
    for (const use of result.links) expect(use.utilization, use.link).toBeGreaterThanOrEqual(0);
    describeCriticalPath(plan, result);
    explainStuck(result);
    toTrace(plan, result);
  }
  const devices = simulatedDevices(inventory);
  const numRanks = Math.min(devices.length, 12);
  if (numRanks < 2) return;
  const machine = new SimulatedMachine(inventory, devices.slice(0, numRanks), parameters);
  expect(runSketch(ringAllReduceSketch(numRanks, 40_000, 1), machine, parameters).timeUs).toBeGreaterThanOrEqual(0);
}

function check<T>(
  what: string,
  arbitrary: fc.Arbitrary<T>,
  share: number,
  run: (value: T) => void,
  /** Cases that were found before: tried in every run, first. */
  examples: readonly T[] = [],
): void {
  const numRuns = Math.max(1, Math.round(CASES * share));
  it(`${what}: ${numRuns} cases, seed ${seed}`, { timeout: 60_000 + 100 * CASES }, () => {
    const before = process.memoryUsage().rss;
    fc.assert(
      fc.property(arbitrary, (value) => survives(() => run(value))),
      { seed, numRuns, verbose: 1, examples: examples.map((value): [T] => [value]) },
    );
    expect(process.memoryUsage().rss - before).toBeLessThan(MAX_GROWTH_BYTES);
  });
}

/** What is put in the place of any value. */
const junk: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    true,
    "",
    "gpu0",
    "nvlink",
    "__proto__",
    [],
    {},
    -1,
    0,
    1e-300,
    1e300,
    2 ** 53,
    0.5,
    4096,
  ),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer(),
  fc.string({ maxLength: 8 }),
  fc.jsonValue({ maxDepth: 2 }),
);
interface Edit {
  readonly at: number;
  readonly how: "set" | "delete" | "repeat" | "swap" | "scale";
  readonly value: unknown;
}
const edits: fc.Arbitrary<readonly Edit[]> = fc.array(
  fc.record({
    at: fc.nat(1_000_000),
    how: fc.constantFrom("set", "delete", "repeat", "swap", "scale"),
    value: junk,
  }),
  { minLength: 1, maxLength: 6 },
);
interface Place {
  readonly holder: Record<string, unknown> | unknown[];
  readonly key: string;
}
function placesOf(value: unknown, found: Place[] = []): Place[] {
  if (typeof value !== "object" || value === null) return found;
  for (const key of Object.keys(value)) {
    found.push({ holder: value as Place["holder"], key });
    placesOf((value as Record<string, unknown>)[key], found);
  }
  return found;
}
/** A deep copy with some places changed. */
function edited(value: unknown, list: readonly Edit[]): unknown {
  const copy: unknown = JSON.parse(JSON.stringify(value));
  for (const { at, how, value: to } of list) {
    const places = placesOf(copy);
    if (places.length === 0) return to;
    const { holder, key } = places[at % places.length]!;
    const own = holder as Record<string, unknown>;
    if (how === "delete") {
      if (Array.isArray(holder)) holder.splice(Number(key), 1);
      else delete own[key];
    } else if (how === "repeat" && Array.isArray(holder)) holder.push(holder[Number(key)]);
    else if (how === "swap") {
      const other = places[(at * 31) % places.length]!;
      own[key] = JSON.parse(JSON.stringify((other.holder as Record<string, unknown>)[other.key] ?? null));
    } else if (how === "scale" && typeof own[key] === "number")
      own[key] = own[key] * (typeof to === "number" ? to : -1);
    else own[key] = to;
  }
  return copy;
}

const INVENTORIES: readonly Inventory[] = [
  presetInventory("hgx-h100-8"),
  presetInventory("rtx4090-2"),
  presetInventory("mi300x-8"),
  parseSystem("2x hgx-h100-8")!,
  readAstraNetwork("topology: [ Switch, Ring ]\nnpus_count: [ 2, 3 ]\nbandwidth: [ 50, 25 ]\nlatency: [ 500, 700 ]"),
];

describe("what somebody got wrong is refused by type, or simulated to an end", () => {
  check("inventories", fc.tuple(fc.nat(INVENTORIES.length - 1), edits), 0.45, ([which, list]) => {
    const parsed = inventorySchema.safeParse(edited(INVENTORIES[which]!, list));
    if (parsed.success) exercise(parsed.data);
  });

  const word = fc.constantFrom(
    "topology",
    "npus_count",
    "bandwidth",
    "latency",
    "Ring",
    "Switch",
    "FullyConnected",
    "Torus",
    ":",
    "[",
    "]",
    ",",
    "#",
    "\n",
    " ",
    "-",
    "4",
    "2",
    "8",
    "1e9",
    "-1",
    "0",
    "0.5",
    "1e308",
    "NaN",
    "4096",
    "99999999999",
    "{",
    "&a",
    "*a",
    "---",
    "\t",
    '"',
    "'",
  );
  const yaml =
    "topology: [ Ring, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50.0, 25.0 ] # GB/s\nlatency: [ 500.0, 1 ]\n";
  check(
    "ASTRA-sim networks",
    fc.oneof(
      fc.array(word, { maxLength: 40 }).map((words) => words.join("")),
      fc
        .array(fc.tuple(fc.nat(yaml.length), fc.nat(12), word), { minLength: 1, maxLength: 4 })
        .map((list) => list.reduce((text, [at, length, by]) => text.slice(0, at) + by + text.slice(at + length), yaml)),
      fc
        .record({
          shapes: fc.array(fc.constantFrom("Ring", "Switch", "FullyConnected"), { maxLength: 4 }),
          counts: fc.array(fc.oneof(fc.integer({ min: 0, max: 9 }), fc.constantFrom(-1, 1.5, 64, 5000, 1e12)), {
            maxLength: 4,
          }),
          rates: fc.array(fc.oneof(fc.constantFrom(0, -1, 1e-300, 1e300, 50), fc.double({ noNaN: true })), {
            maxLength: 4,
          }),
        })
        .map(
          ({ shapes, counts, rates }) =>
            `topology: [ ${shapes.join(", ")} ]\nnpus_count: [ ${counts.join(", ")} ]\nbandwidth: [ ${rates.join(", ")} ]\nlatency: [ ${rates.join(", ")} ]`,
        ),
    ),
    0.2,
    (text) => {
      const inventory = readAstraNetwork(text);
      if (inventory.topology.links.length < 5000) exercise(inventory, SYSTEMS["ideal"]!);
    },
  );

  const presetWord = fc.constantFrom(
    "2x ",
    "0x ",
    "999999x ",
    "64x",
    "hgx-h100-8",
    "gb200-nvl72",
    "dgx-spark",
    "hgx",
    " --nic ",
    "8xNDR",
    "0xNDR",
    "1xHDR",
    "x",
    " ",
    "-1",
    "\u0000",
    "tpu-v4-8",
    "tpu-v4-99999999",
    "rtx4090-2",
  );
  check(
    "preset expressions",
    fc.array(presetWord, { maxLength: 5 }).map((words) => words.join("")),
    0.05,
    (text) => {
      const inventory = parseSystem(text);
      if (inventory !== undefined && inventory.topology.links.length < 20_000) exercise(inventory);
    },
  );

  const faultWord = fc.constantFrom(
    "slow",
    "dead",
    "nic",
    ":",
    "@",
    "gpu0",
    "gpu0 -> nvswitch0",
    "nic0",
    "0",
    "1",
    "0.5",
    "1e-300",
    "1e308",
    "-1",
    "3",
    "99",
    "Infinity",
    "NaN",
    "",
    " ",
    "9007199254740993",
  );
  check(
    "faults",
    fc.oneof(
      fc.array(faultWord, { maxLength: 7 }).map((words) => words.join("")),
      fc
        .tuple(
          fc.constantFrom("slow:gpu", "slow:n", "slow: -> "),
          fc.constantFrom("0", "1e-9", "1e-300", "1", "1e300", "7"),
        )
        .map((pair) => pair.join(":")),
      fc.tuple(fc.nat(5), fc.nat(40)).map(([rank, op]) => `dead:${rank}@${op}`),
      fc.constantFrom("nic:nic0", "nic:gpu1", "nic:nvswitch0", "nic:n0.nic0"),
    ),
    0.1,
    (text) => exercise(INVENTORIES[text.length % 2 === 0 ? 0 : 3]!, parametersFor("h100"), [text]),
  );

  check(
    "constants",
    fc.oneof(
      edits.map((list) => edited(SYSTEMS["h200"], list)),
      junk,
    ),
    0.15,
    (value) => {
      const parameters = parseParameters(value);
      exercise(INVENTORIES[0]!, parameters);
      expect(parseParameters(JSON.parse(JSON.stringify(parameters)))).toEqual(parameters);
    },
    // A zero that JSON reads and does not write.
    [{ uncertainty: -0 }, { uncertainties: { fenceUs: -0 } }, { latencyUs: { roce: -0 } }, { cacheBytes: -0 }],
  );

  const document = {
    numRanks: 4,
    rows: [
      { op: "all_reduce", plan: "ring-all-reduce", instances: 1, sizeBytes: 4096, timeUs: 20 },
      { op: "all_gather", plan: "direct-all-gather", inPlace: true, sizeBytes: 2 ** 20, timeUs: 30 },
      { op: "all_reduce", backend: "nccl", sizeBytes: 4096, timeUs: 20, wrong: 0 },
    ],
  };
  check(
    "measurements",
    fc.oneof(
      edits.map((list) => edited(document, list)),
      junk,
    ),
    0.05,
    (value) => {
      const { usable, others, numRanks } = readMeasurements(value, "measurements.json");
      const machineOf = (n: number) => ncclMachineOf(INVENTORIES[0]!, n, SYSTEMS["h200"]!);
      fitNcclLL(others, machineOf, (row) => row.numRanks ?? numRanks);
      const small = usable.filter(({ plan }) => plan.ranks.length <= 8 && plan.ranks[0]!.strands.length <= 64);
      const fit = fitParameters(small, {
        inventory: INVENTORIES[0]!,
        parameters: SYSTEMS["h200"]!,
        source: "x",
        only: ["fenceUs"],
      });
      expect(Number.isFinite(fit.after.rms)).toBe(true);
      expect(parseParameters(fit.parameters)).toEqual(fit.parameters);
    },
  );
});
