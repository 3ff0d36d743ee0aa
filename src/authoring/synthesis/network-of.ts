/**
 * The network of a machine, for bounds: chosen devices are ranks, what else forwards is a relay, every link is an edge each
 * way with its rate. A device that is not a rank forwards nothing unless asked to: it would have to run a kernel for others.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import {
  FAST_KINDS,
  type Inventory,
  LINK_KINDS,
  type Link,
  type LinkKind,
  linkCost,
} from "../../machine/topology/index.ts";
import type { Network, NetworkEdge } from "../certificate/index.ts";
import { Rational } from "./rational.ts";

export interface NetworkOptions {
  /** Ids of the devices that are the ranks, in rank order; the visible accelerators by default. */
  readonly devices?: readonly string[];
  /** Accelerators outside the group pass on what is not for them. */
  readonly relayDevices?: boolean;
  /** Which links count; by default the fast ones where they join all ranks, and all links otherwise. */
  readonly links?: readonly LinkKind[];
  /** What links reach of their rate by the kind's efficiency, instead of the rate itself. */
  readonly effective?: boolean;
}

/** The devices that a collective runs on by default: visible accelerators that are no part of another one. */
export function defaultRanks(inventory: Pick<Inventory, "devices">): string[] {
  return inventory.devices
    .filter(({ family, visible, parent }) => family !== "cpu" && visible && parent === undefined)
    .map(({ id }) => id);
}

const acceleratorsOf = ({ devices }: Pick<Inventory, "devices">): ReadonlySet<string> =>
  new Set(devices.filter(({ family }) => family !== "cpu").map(({ id }) => id));

/** Whether links lead from the first rank to all others: links of machines lead both ways. */
function joinsRanks({ edges }: Network, ranks: readonly string[]): boolean {
  const neighbours = new Map<string, string[]>();
  for (const { from, to } of edges) {
    const known = neighbours.get(from);
    if (known === undefined) neighbours.set(from, [to]);
    else known.push(to);
  }
  const reached = new Set(ranks.slice(0, 1));
  for (const id of reached) for (const next of neighbours.get(id) ?? []) reached.add(next);
  return ranks.every((id) => reached.has(id));
}

/** Leaves out relays that lead nowhere: with one neighbour or none. */
function pruned(network: Network): Network {
  const { nodes, edges } = network;
  const neighbours = new Map<string, Set<string>>(nodes.map(({ id }) => [id, new Set()]));
  for (const { from, to } of edges) {
    neighbours.get(from)?.add(to);
    neighbours.get(to)?.add(from);
  }
  const isDeadEnd = ({ id, kind }: Network["nodes"][number]) => kind === "relay" && (neighbours.get(id)?.size ?? 0) < 2;
  const dead = new Set(nodes.filter(isDeadEnd).map(({ id }) => id));
  if (dead.size === 0) return network;
  return pruned({
    nodes: nodes.filter(({ id }) => !dead.has(id)),
    edges: edges.filter(({ from, to }) => !dead.has(from) && !dead.has(to)),
  });
}

/**
 * Makes the network of an inventory: a detected machine, a preset, a recording.
 * @throws InvalidArgumentError for devices that are not in the inventory, or fewer than 2
 */
export function networkOf(inventory: Pick<Inventory, "devices" | "topology">, options: NetworkOptions = {}): Network {
  const ranks = options.devices ?? defaultRanks(inventory);
  const known = new Map(inventory.topology.nodes.map((node) => [node.id, node]));
  const accelerators = acceleratorsOf(inventory);
  const devices = new Set(inventory.devices.map(({ id }) => id));
  for (const id of ranks) {
    if (!known.has(id) || !devices.has(id)) {
      throw new InvalidArgumentError(
        "devices",
        id,
        `devices of the inventory: ${[...accelerators].slice(0, 16).join(", ")}`,
      );
    }
  }
  if (new Set(ranks).size !== ranks.length || ranks.length < 2) {
    throw new InvalidArgumentError("devices", ranks, "at least 2 different devices");
  }
  if (options.links !== undefined) return networkOver(inventory, ranks, new Set(options.links), options);
  const fast = networkOver(inventory, ranks, FAST_KINDS, options);
  return joinsRanks(fast, ranks) ? fast : networkOver(inventory, ranks, new Set(LINK_KINDS), options);
}

/** The network over links of some kinds. */
function networkOver(
  inventory: Pick<Inventory, "devices" | "topology">,
  ranks: readonly string[],
  kinds: ReadonlySet<LinkKind>,
  options: NetworkOptions,
): Network {
  const known = new Map(inventory.topology.nodes.map((node) => [node.id, node]));
  const accelerators = acceleratorsOf(inventory);
  const isRank = new Set(ranks);
  const used = (id: string) =>
    isRank.has(id) || (known.has(id) && (options.relayDevices === true || !accelerators.has(id)));
  const capacities = new Map<string, { edge: Pick<NetworkEdge, "from" | "to" | "latencyUs">; sum: Rational }>();
  const add = (from: string, to: string, link: Link): void => {
    const { bandwidthGBps, effectiveGBps, latencyUs } = linkCost(link, known);
    const rate = Rational.of(options.effective === true ? Number(effectiveGBps.toPrecision(4)) : bandwidthGBps);
    const key = JSON.stringify([from, to]);
    const before = capacities.get(key);
    if (before === undefined) capacities.set(key, { edge: { from, to, latencyUs }, sum: rate });
    else capacities.set(key, { edge: before.edge, sum: before.sum.plus(rate) });
  };
  for (const link of inventory.topology.links) {
    if (!kinds.has(link.kind) || !used(link.a) || !used(link.b) || link.a === link.b) continue;
    add(link.a, link.b, link);
    add(link.b, link.a, link);
  }
  const relays = inventory.topology.nodes.filter(({ id }) => used(id) && !isRank.has(id));
  return pruned({
    nodes: [
      ...ranks.map((id) => ({ id, kind: "rank" as const })),
      ...relays.map(({ id }) => ({ id, kind: "relay" as const })),
    ],
    edges: [...capacities.values()].map(({ edge, sum }) => ({ ...edge, capacity: sum.toString() })),
  });
}
