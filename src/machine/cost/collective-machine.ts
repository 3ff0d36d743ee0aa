/**
 * A machine as a collective library sees it: who makes it, how its devices are joined within a node and between nodes, and
 * how the job was started. Read from an inventory by architecture, links and hosts, never by what a product is called.
 *
 * A node is what one NVLink or xGMI domain spans: usually a host, a whole rack of NVL72. A host without such a fabric is
 * one node, however many islands it has.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import type { Device, Inventory, Link } from "../topology/index.ts";
import type { NetworkKind } from "./network-kinds.ts";
import { NETWORK_KINDS, networkKindOf } from "./network-kinds.ts";

export const NVIDIA_GENERATIONS = ["volta", "ampere", "ada", "hopper", "blackwell"] as const;
export type NvidiaGeneration = (typeof NVIDIA_GENERATIONS)[number];

/** NVIDIA's generation by compute capability (CUDA C++ programming guide, table of compute capabilities). */
export function nvidiaGeneration(capability: string | undefined): NvidiaGeneration | undefined {
  const value = Number(capability);
  if (capability === undefined || !Number.isFinite(value)) return undefined;
  if (value >= 10) return "blackwell";
  if (value >= 9) return "hopper";
  if (value >= 8.9) return "ada";
  if (value >= 8) return "ampere";
  return "volta";
}

/** How the devices of a node reach each other. */
export interface NodeFabric {
  /** `fabric`: links of the vendor's own; `pcie`: through the host's PCIe tree, `shm`: through its memory. */
  readonly kind: "fabric" | "pcie" | "shm";
  /** What a device sends over all its links to the ranks of its node, GB/s a direction, as signalled. */
  readonly deviceGBps: number;
  /** Parallel links of a device. */
  readonly numLinks: number;
  /** The devices hang on one switch, which can multicast and reduce where it is NVSwitch 3 or later. */
  readonly switched: boolean;
  /** The host's PCIe rate of a device, GB/s, 0 where another link joins them or it is unknown; and whether ranks of a node lie on more than one socket. */
  readonly pcieGBps: number;
  readonly crossesSockets: boolean;
}

export interface NodeNetwork {
  readonly kind: NetworkKind;
  readonly numNics: number;
  /** All NICs of a node together, one direction, GB/s. */
  readonly nodeGBps: number;
}

export interface CollectiveMachine {
  readonly family: Device["family"];
  /** Compute capability, gfx name, or chip. */
  readonly arch: string;
  readonly device: string;
  readonly numRanks: number;
  readonly numNodes: number;
  readonly numHosts: number;
  readonly fabric: NodeFabric;
  /** Absent on one node. */
  readonly network?: NodeNetwork;
}

export interface MachineOptions {
  /** False: devices of a host do not reach each other's memory over PCIe (`NCCL_P2P_DISABLE=1`, stock GeForce drivers). */
  readonly p2p?: boolean;
}

const FABRICS: ReadonlySet<Link["kind"]> = new Set(["nvlink", "xgmi", "gaudi-roce", "neuronlink", "ici"]);
const NETWORKS: ReadonlySet<Link["kind"]> = new Set(["infiniband", "roce", "ethernet"]);

/** Ranks that hang together over fabric links, through switches too. */
function fabricGroups(ids: readonly string[], links: readonly Link[]): Map<string, number> {
  const parent = new Map<string, string>();
  const root = (id: string): string => {
    let at = id;
    for (let up = parent.get(at); up !== undefined && up !== at; up = parent.get(at)) at = up;
    return at;
  };
  for (const { a, b } of links) {
    const [x, y] = [root(a), root(b)];
    if (x !== y) parent.set(x, y);
  }
  const numbers = new Map<string, number>();
  return new Map(
    ids.map((id) => {
      const top = root(id);
      if (!numbers.has(top)) numbers.set(top, numbers.size);
      return [id, numbers.get(top)!];
    }),
  );
}

/**
 * Describes what a collective library sees on the devices of these ranks.
 * @throws InvalidArgumentError without ranks, or for a device that the inventory lacks
 * @example
 * import { collectiveMachineOf, simulatedDevices } from "chorale/simulator";
 * import { presetInventory } from "chorale/topology";
 * const rack = presetInventory("gb200-nvl72");
 * collectiveMachineOf(rack, simulatedDevices(rack)).numHosts // 18, on one node
 */
export function collectiveMachineOf(
  inventory: Inventory,
  ranks: readonly string[],
  options: MachineOptions = {},
): CollectiveMachine {
  const devices = new Map(inventory.devices.map((device) => [device.id, device]));
  const first = devices.get(ranks[0] ?? "");
  if (first === undefined || ranks.some((id) => !devices.has(id)))
    throw new InvalidArgumentError("devices", ranks.find((id) => !devices.has(id)) ?? "", "devices of the inventory");
  const { nodes, links } = inventory.topology;
  const hostOf = new Map(nodes.map((node) => [node.id, node.host ?? 0]));
  const hosts = new Set(ranks.map((id) => hostOf.get(id) ?? 0));
  const wanted = new Set(ranks);
  const switches = new Set(nodes.filter((node) => node.kind === "nvswitch").map((node) => node.id));
  const fabricLinks = links.filter(
    ({ kind, a, b }) => FABRICS.has(kind) && [a, b].every((id) => wanted.has(id) || switches.has(id) || kind === "ici"),
  );
  const groups = fabricGroups(ranks, fabricLinks);
  const spans = new Map<number, Set<number>>();
  for (const id of ranks) {
    const group = groups.get(id)!;
    spans.set(group, (spans.get(group) ?? new Set()).add(hostOf.get(id) ?? 0));
  }
  const spansHosts = [...spans.values()].some((span) => span.size > 1);
  const nodeOf = (id: string) => (spansHosts ? groups.get(id)! : (hostOf.get(id) ?? 0));
  const numNodes = new Set(ranks.map(nodeOf)).size;
  const ownNode = ranks.filter((id) => nodeOf(id) === nodeOf(ranks[0]!));
  const joined = ownNode.length > 1 && ownNode.every((id) => groups.get(id) === groups.get(ranks[0]!));
  const ownLinks = fabricLinks.filter(({ a, b }) => a === first.id || b === first.id);
  const onFabric = ownNode.length > 1 ? joined : ownLinks.length > 0;
  const inside = ownLinks.filter(({ a, b }) => {
    const other = a === first.id ? b : a;
    return switches.has(other) || ownNode.includes(other) || ownNode.length === 1;
  });
  const pcie = links.filter(({ kind, a, b }) => kind === "pcie" && (a === first.id || b === first.id));
  const network = numNodes > 1 ? networkOf(inventory, hosts.size / numNodes) : undefined;
  return {
    family: first.family,
    arch: first.arch ?? "",
    device: first.name,
    numRanks: ranks.length,
    numNodes,
    numHosts: hosts.size,
    fabric: {
      kind: onFabric ? "fabric" : options.p2p === false ? "shm" : "pcie",
      deviceGBps: inside.reduce((sum, link) => sum + (link.bandwidthGBps ?? 0), 0),
      numLinks: inside.reduce((sum, link) => sum + (link.count ?? 1), 0),
      switched: inside.some(({ a, b }) => switches.has(a) || switches.has(b)),
      pcieGBps: Math.max(...pcie.map((link) => link.bandwidthGBps ?? 0), 0),
      crossesSockets: new Set(ownNode.map((id) => devices.get(id)?.numaNode ?? 0)).size > 1,
    },
    ...(network === undefined ? {} : { network }),
  };
}

/** The NICs of one host that serve the job, times the hosts of a node. */
function networkOf(inventory: Inventory, hostsPerNode: number): NodeNetwork | undefined {
  const { nodes, links } = inventory.topology;
  const nics = nodes.filter((node) => node.kind === "nic");
  const own = nics.filter((node) => (node.host ?? 0) === (nics[0]?.host ?? 0));
  const rates = own.map((nic) => {
    const link = links.find(({ kind, a, b }) => NETWORKS.has(kind) && (a === nic.id || b === nic.id));
    return { kind: networkKindOf(nic, link?.kind), GBps: link?.bandwidthGBps ?? 0 };
  });
  const fastest = Math.max(...rates.map(({ GBps }) => GBps), 0);
  // A management port beside the compute network carries nothing of the job.
  const used = rates.filter(({ GBps }) => GBps >= fastest / 2);
  if (used.length === 0 || fastest === 0) return undefined;
  return {
    kind: used[0]?.kind ?? NETWORK_KINDS[0],
    numNics: Math.round(used.length * hostsPerNode),
    nodeGBps: used.reduce((sum, { GBps }) => sum + GBps, 0) * hostsPerNode,
  };
}
