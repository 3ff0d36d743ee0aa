/**
 * What no schedule can beat: bytes that must cross a cut of the topology, over the rates of its links (Patarasuk, Yuan:
 * JPDC 69, 2009, for all-reduce; Chan et al., "Collective communication: theory, practice, and experience", 2007, for the
 * others). And no link carries more than its rate.
 */
import fc from "fast-check";
import { expect, it } from "vitest";
import { type Inventory, linkCost, parseSystem } from "../../machine/topology/index.ts";
import { ALGORITHMS, algorithm } from "../algorithms/index.ts";
import { compile } from "../language/index.ts";
import { placeRanks, SYSTEMS, simulate } from "./index.ts";

const MACHINES = [
  "hgx-h100-8",
  "hgx-a100-4",
  "mi300x-8",
  "mi250x-8",
  "dgx1-v100",
  "2x hgx-h100-4 --nic 4xNDR",
  "rtx4090-4",
  "tpu-v5e-8",
];

/** Least share of `sizeBytes` that must enter a part of `inside` of `n` ranks; a reduction's result is one copy. Root is rank 0. */
function mustEnter(operation: string, inside: number, n: number, hasRoot: boolean): number {
  const outside = n - inside;
  if (operation === "all_reduce") return 1;
  if (operation === "all_gather") return outside / n;
  if (operation === "reduce_scatter") return inside / n;
  if (operation === "all_to_all") return (inside * outside) / n;
  if (operation === "broadcast") return hasRoot ? 0 : 1;
  if (operation === "reduce") return hasRoot ? 1 : 0;
  return 0;
}

/** Rate into a set of nodes, GB/s, both kinds of path counted. */
function rateInto(inventory: Inventory, inside: ReadonlySet<string>): number {
  const nodes = new Map(inventory.topology.nodes.map((node) => [node.id, node]));
  return inventory.topology.links
    .filter(({ a, b, kind }) => kind !== "memory" && inside.has(a) !== inside.has(b))
    .reduce((sum, link) => sum + linkCost(link, nodes).bandwidthGBps, 0);
}

/** Every device alone, and every host as a whole. */
function boundUs(inventory: Inventory, devices: readonly string[], operation: string, sizeBytes: number): number {
  const hostOf = new Map(inventory.topology.nodes.map((node) => [node.id, node.host]));
  const hosts = [...new Set(devices.map((id) => hostOf.get(id)))];
  const cuts = [
    ...devices.map((id) => new Set([id])),
    ...(hosts.length < 2
      ? []
      : hosts.map(
          (host) => new Set(inventory.topology.nodes.filter((node) => node.host === host).map((node) => node.id)),
        )),
  ];
  return Math.max(
    ...cuts.map((inside) => {
      const ranks = devices.filter((id) => inside.has(id)).length;
      const share = mustEnter(operation, ranks, devices.length, inside.has(devices[0] ?? ""));
      return (share * sizeBytes) / (1000 * rateInto(inventory, inside));
    }),
  );
}

it("no plan beats the cuts of its topology, and no link carries more than its rate (property)", () => {
  const algorithms = ALGORITHMS.filter(({ needsSwitch, collective }) => !needsSwitch && collective !== "send_recv");
  const machines = MACHINES.map((system) => parseSystem(system)!);
  fc.assert(
    fc.property(
      fc.constantFrom(...algorithms),
      fc.constantFrom(...machines),
      fc.boolean(),
      fc.constantFrom(1, 2),
      fc.constantFrom(undefined, 3),
      fc.integer({ min: 10, max: 28 }),
      (algorithm, inventory, isIdeal, instances, chunks, exponent) => {
        const numRanks = inventory.devices.filter((device) => device.family !== "cpu").length;
        fc.pre(algorithm.legal(numRanks));
        const plan = compile(
          algorithm.make({ numRanks, instances, ...(algorithm.takesChunks && chunks !== undefined && { chunks }) }),
          { verify: false },
        );
        const sizeBytes = 2 ** exponent;
        const { timeUs, links } = simulate(plan, {
          inventory,
          sizeBytes,
          ...(isIdeal ? { parameters: SYSTEMS["ideal"]! } : {}),
        });
        const bound = boundUs(inventory, placeRanks(numRanks, inventory), plan.collective.operation, sizeBytes);
        expect(timeUs).toBeGreaterThanOrEqual(bound * (1 - 1e-9));
        for (const use of links) expect(use.utilization, use.link).toBeLessThanOrEqual(1 + 1e-9);
      },
    ),
    { numRuns: Number(process.env["CHORALE_BOUNDS"] ?? 40) },
  );
});

it("pieces let the levels of a hierarchical plan, and the two steps on a switch, overlap", () => {
  const inventory = parseSystem("2x hgx-h100-8")!;
  const host = parseSystem("hgx-h100-8")!;
  const timeOf = (name: string, chunks: number) => {
    const entry = algorithm(name);
    const numRanks = entry.hasLevels ? 16 : 8;
    const plan = compile(entry.make({ numRanks, ranksPerNode: 8, instances: 8, chunks }), { verify: false });
    const onSwitch = { inventory: entry.hasLevels ? inventory : host, switchOps: entry.needsSwitch };
    return simulate(plan, { ...onSwitch, sizeBytes: 2 ** 30 }).timeUs;
  };
  // Half of an all-gather's, and a quarter of an all-reduce's, is spent between hosts; the switch both loads and stores.
  expect(timeOf("hierarchical-all-gather", 4) / timeOf("hierarchical-all-gather", 1)).toBeLessThan(0.67);
  expect(timeOf("hierarchical-all-reduce", 4) / timeOf("hierarchical-all-reduce", 1)).toBeLessThan(0.67);
  expect(timeOf("switch-all-reduce", 4) / timeOf("switch-all-reduce", 1)).toBeLessThan(0.72);
});
