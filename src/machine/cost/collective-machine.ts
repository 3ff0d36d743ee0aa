/**
 * A machine as a collective library sees it: who makes it, how its devices are joined within a node and between nodes, and
 * how the job was started. Read from an inventory by architecture, links and hosts, never by what a product is called.
 *
 * A node is what one NVLink or xGMI domain spans: usually a host, a whole rack of NVL72. A host without such a fabric is
 * one node, however many islands it has.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import type { Device, Inventory, Link, TopologyNode } from "../topology/index.ts";
import type { NetworkKind } from "./network-kinds.ts";
import { networkKindOf } from "./network-kinds.ts";

const NVIDIA_GENERATIONS = ["volta", "ampere", "ada", "hopper", "blackwell"] as const;
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
  /** What a device sends to one other rank of its node: everything through a switch, the narrowest of its links without one. */
  readonly pairGBps: number;
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
  /** False: devices of a host do not reach each other's memory, over whatever link (`NCCL_P2P_DISABLE=1`, stock GeForce drivers). */
  readonly p2p?: boolean;
}

const FABRICS: ReadonlySet<Link["kind"]> = new Set(["nvlink", "xgmi", "gaudi-roce", "neuronlink", "ici"]);
const NETWORKS: ReadonlySet<Link["kind"]> = new Set(["infiniband", "roce", "ethernet"]);

/** Ranks that hang together over fabric links, through switches too. */
function fabricGroups(ids: readonly string[], links: Iterable<Link>): Map<string, number> {
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

/** What one host has for all jobs on it. */
interface Host {
  readonly network?: { readonly kind: NetworkKind; readonly numNics: number; readonly GBps: number };
  readonly numDevices: number;
}

/** Machines of many groups of one inventory: its links are read once. */
export class CollectiveMachines {
  readonly #devices: ReadonlyMap<string, Device>;
  readonly #hostOf: ReadonlyMap<string, number>;
  readonly #switches: ReadonlySet<string>;
  readonly #linksOf = new Map<string, Link[]>();
  /** Fabric links that no rank needs to touch to be joined by them: between switches, and of chips that forward. */
  readonly #between: readonly Link[];
  readonly #hosts: ReadonlyMap<number, Host>;

  constructor(inventory: Pick<Inventory, "devices" | "topology">) {
    const { nodes, links } = inventory.topology;
    this.#devices = new Map(inventory.devices.map((device) => [device.id, device]));
    this.#hostOf = new Map(nodes.map((node) => [node.id, node.host ?? 0]));
    this.#switches = new Set(nodes.filter((node) => node.kind === "nvswitch").map((node) => node.id));
    for (const link of links)
      for (const id of link.a === link.b ? [link.a] : [link.a, link.b]) {
        const own = this.#linksOf.get(id);
        if (own === undefined) this.#linksOf.set(id, [link]);
        else own.push(link);
      }
    this.#between = links.filter(
      ({ kind, a, b }) => kind === "ici" || (FABRICS.has(kind) && this.#switches.has(a) && this.#switches.has(b)),
    );
    this.#hosts = this.#readHosts(nodes);
  }

  #readHosts(nodes: readonly TopologyNode[]): Map<number, Host> {
    const nics = new Map<number, { kind: NetworkKind; GBps: number }[]>();
    for (const node of nodes) {
      if (node.kind !== "nic") continue;
      const link = this.#linksOf.get(node.id)?.find(({ kind }) => NETWORKS.has(kind));
      const rate = { kind: networkKindOf(node, link?.kind), GBps: link?.bandwidthGBps ?? 0 };
      const host = node.host ?? 0;
      nics.set(host, [...(nics.get(host) ?? []), rate]);
    }
    const counts = new Map<number, number>();
    for (const { id, family, parent } of this.#devices.values()) {
      const host = this.#hostOf.get(id) ?? 0;
      if (family !== "cpu" && parent === undefined) counts.set(host, (counts.get(host) ?? 0) + 1);
    }
    const hosts = new Map<number, Host>();
    for (const host of new Set([...counts.keys(), ...nics.keys()])) {
      const rates = nics.get(host) ?? [];
      const fastest = Math.max(...rates.map(({ GBps }) => GBps), 0);
      // A management port beside the compute network carries nothing of the job.
      const used = fastest === 0 ? [] : rates.filter(({ GBps }) => GBps >= fastest / 2);
      const [first] = used;
      hosts.set(host, {
        numDevices: counts.get(host) ?? 0,
        ...(first !== undefined && {
          network: { kind: first.kind, numNics: used.length, GBps: used.reduce((sum, { GBps }) => sum + GBps, 0) },
        }),
      });
    }
    return hosts;
  }

  /**
   * Describes what a collective library sees on the devices of these ranks.
   * @throws InvalidArgumentError without ranks, or for a device that the inventory lacks
   */
  of(ranks: readonly string[], options: MachineOptions = {}): CollectiveMachine {
    const first = this.#devices.get(ranks[0] ?? "");
    const missing = ranks.find((id) => !this.#devices.has(id));
    if (first === undefined || missing !== undefined)
      throw new InvalidArgumentError("devices", missing ?? "", "devices of the inventory");
    const hostOf = (id: string) => this.#hostOf.get(id) ?? 0;
    const hosts = new Set(ranks.map(hostOf));
    const wanted = new Set(ranks);
    const switches = this.#switches;
    const fabricLinks = new Set(this.#between);
    for (const id of ranks)
      for (const link of this.#linksOf.get(id) ?? [])
        if (FABRICS.has(link.kind) && [link.a, link.b].every((end) => wanted.has(end) || switches.has(end)))
          fabricLinks.add(link);
    const groups = fabricGroups(ranks, fabricLinks);
    const spans = new Map<number, Set<number>>();
    for (const id of ranks) {
      const group = groups.get(id)!;
      spans.set(group, (spans.get(group) ?? new Set()).add(hostOf(id)));
    }
    const spansHosts = [...spans.values()].some((span) => span.size > 1);
    const nodeOf = (id: string) => (spansHosts ? groups.get(id)! : hostOf(id));
    const numNodes = new Set(ranks.map(nodeOf)).size;
    const ownNode = new Set(ranks.filter((id) => nodeOf(id) === nodeOf(first.id)));
    const joined = ownNode.size > 1 && [...ownNode].every((id) => groups.get(id) === groups.get(first.id));
    const touching = this.#linksOf.get(first.id) ?? [];
    const ownLinks = touching.filter((link) => fabricLinks.has(link));
    const onFabric = ownNode.size > 1 ? joined : ownLinks.length > 0;
    const inside = ownLinks.filter(({ a, b }) => {
      const other = a === first.id ? b : a;
      return switches.has(other) || ownNode.has(other) || ownNode.size === 1;
    });
    const deviceGBps = inside.reduce((sum, link) => sum + (link.bandwidthGBps ?? 0), 0);
    const switched = inside.some(({ a, b }) => switches.has(a) || switches.has(b));
    const narrowest = Math.min(...inside.map((link) => link.bandwidthGBps ?? 0));
    const pcie = touching.filter(({ kind }) => kind === "pcie");
    const network = numNodes > 1 ? this.#networkOf(ranks, hosts.size / numNodes) : undefined;
    return {
      family: first.family,
      arch: first.arch ?? "",
      device: first.name,
      numRanks: ranks.length,
      numNodes,
      numHosts: hosts.size,
      fabric: {
        kind: options.p2p === false ? "shm" : onFabric ? "fabric" : "pcie",
        deviceGBps,
        numLinks: inside.reduce((sum, link) => sum + (link.count ?? 1), 0),
        switched,
        pairGBps: switched ? deviceGBps : inside.length === 0 ? 0 : narrowest,
        pcieGBps: Math.max(...pcie.map((link) => link.bandwidthGBps ?? 0), 0),
        crossesSockets: new Set([...ownNode].map((id) => this.#devices.get(id)?.numaNode ?? 0)).size > 1,
      },
      ...(network === undefined ? {} : { network }),
    };
  }

  /** The NICs of the first rank's host that serve the job, times the hosts of a node. */
  #networkOf(ranks: readonly string[], hostsPerNode: number): NodeNetwork | undefined {
    const hostId = this.#hostOf.get(ranks[0] ?? "") ?? 0;
    const host = this.#hosts.get(hostId);
    if (host?.network === undefined) return undefined;
    const { kind, numNics, GBps } = host.network;
    // A device sends through the NICs nearest to it: a job on some of a host's devices has their share.
    const own = ranks.filter((id) => (this.#hostOf.get(id) ?? 0) === hostId).length;
    const used = Math.max(1, Math.round((numNics * own) / Math.max(own, host.numDevices)));
    return {
      kind,
      numNics: Math.round(used * hostsPerNode),
      nodeGBps: ((GBps * used) / numNics) * hostsPerNode,
    };
  }
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
  return new CollectiveMachines(inventory).of(ranks, options);
}
