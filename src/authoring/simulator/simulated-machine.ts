/**
 * A topology as the simulator sees it: every link as two directed ones, a memory port for each device, and for each pair
 * of devices the way that traffic takes. Within a fabric it goes directly or through its switch, within a host over the
 * widest path, between hosts from the device to its nearest NIC, along the rails, and to the peer's nearest NIC
 * (GPUDirect RDMA; the peer's NIC of the same rail where there is one).
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import {
  FAST_KINDS,
  type Inventory,
  LINK_DEFAULTS,
  type Link,
  type LinkKind,
  linkCost,
  type Topology,
  type TopologyNode,
  widestPath,
} from "../../machine/topology/index.ts";
import type { SystemParameters } from "./parameters.ts";

export interface Route {
  /** Directed links in order. */
  readonly links: readonly number[];
  /** Names the route in the network's tables. */
  readonly key: string;
  /** One way. */
  readonly latencyUs: number;
  /** Share of the links' rates that bulk traffic can reach; undefined: whatever stores and loads reach. */
  readonly efficiency: number | undefined;
  /** Slowest kind on the way. */
  readonly kind: LinkKind | "memory";
  readonly crossesHosts: boolean;
}

export interface DirectedLink {
  readonly name: string;
  readonly from: string;
  readonly to: string;
  readonly kind: LinkKind | "memory";
  readonly capacityGBps: number;
}

const NETWORK_KINDS: ReadonlySet<LinkKind> = new Set<LinkKind>(["infiniband", "roce", "ethernet"]);
/** From fast to slow: the slowest kind of a route names it. */
const SLOWNESS: readonly LinkKind[] = [
  "memory",
  "nvlink-c2c",
  "ultrafusion",
  "nvlink",
  "xgmi",
  "xe-link",
  "ici",
  "neuronlink",
  "gaudi-roce",
  "host-interconnect",
  "pcie",
  "infiniband",
  "roce",
  "ethernet",
];

/** As good as none: of a device that does not state its memory's bandwidth, and of links that claim more. */
const UNLIMITED_GBPS = 1e15;

export class SimulatedMachine {
  readonly links: DirectedLink[] = [];
  readonly devices: readonly string[];
  readonly #topology: Topology;
  readonly #parameters: SystemParameters;
  readonly #nodes: ReadonlyMap<string, TopologyNode>;
  /** Links of a node: the other end and the directed link that leads there. */
  readonly #out = new Map<string, { readonly to: string; readonly directed: number; readonly link: Link }[]>();
  readonly #routes = new Map<number, Route>();
  readonly #ways = new Map<string, Route>();
  readonly #directed = new Map<Link, number>();
  readonly #tracksFreeLinks: boolean;
  readonly #memory: number[];
  readonly #nics = new Map<string, readonly string[]>();
  readonly #hostTopologies = new Map<number, Topology>();

  /**
   * @param devices node of each rank, in rank order
   * @param options.tracksFreeLinks keep links between network switches on routes even where they can never be too narrow;
   * a fault may make them so
   * @throws InvalidArgumentError when a device is not in the topology
   */
  constructor(
    inventory: Inventory,
    devices: readonly string[],
    parameters: SystemParameters,
    { tracksFreeLinks = false }: { readonly tracksFreeLinks?: boolean } = {},
  ) {
    this.#tracksFreeLinks = tracksFreeLinks;
    this.#topology = inventory.topology;
    this.#parameters = parameters;
    this.devices = devices;
    this.#nodes = new Map(this.#topology.nodes.map((node) => [node.id, node]));
    for (const link of this.#topology.links) {
      const capacityGBps = Math.min(linkCost(link, this.#nodes).bandwidthGBps, UNLIMITED_GBPS);
      this.#directed.set(link, this.links.length);
      for (const [from, to] of [
        [link.a, link.b],
        [link.b, link.a],
      ] as const) {
        const list = this.#out.get(from) ?? [];
        list.push({ to, directed: this.links.length, link });
        this.#out.set(from, list);
        this.links.push({ name: `${from} -> ${to}`, from, to, kind: link.kind, capacityGBps });
      }
    }
    const known = new Map(inventory.devices.map((device) => [device.id, device]));
    this.#memory = devices.map((id) => {
      if (!this.#nodes.has(id)) {
        throw new InvalidArgumentError(
          "device",
          id,
          `a node of the topology (${[...this.#nodes.keys()].slice(0, 8).join(", ")}…)`,
        );
      }
      const capacityGBps = Math.min(known.get(id)?.memoryBandwidthGBps ?? UNLIMITED_GBPS, UNLIMITED_GBPS);
      this.links.push({ name: `${id} memory`, from: id, to: id, kind: "memory", capacityGBps });
      return this.links.length - 1;
    });
  }

  capacities(): number[] {
    return this.links.map((link) => link.capacityGBps);
  }

  /** The host of a device; 0 where the topology names none. */
  hostOf(id: string): number {
    return this.#nodes.get(id)?.host ?? 0;
  }

  /** The memory port of a rank's device. */
  memoryLink(rank: number): number {
    return this.#memory[rank]!;
  }

  /** The way from one rank's device to another's. */
  route(from: number, to: number): Route {
    const key = from * this.devices.length + to;
    let route = this.#routes.get(key);
    if (route === undefined) {
      route = this.#find(from, to);
      this.#routes.set(key, route);
    }
    return route;
  }

  /** The way from one rank's device to another's by these nodes; undefined where they are not so joined here. */
  along(from: number, to: number, nodes: readonly string[]): Route | undefined {
    if (nodes[0] !== this.devices[from] || nodes[nodes.length - 1] !== this.devices[to]) return undefined;
    const key = `${from}>${to} ${nodes.join(">")}`;
    const known = this.#ways.get(key);
    if (known !== undefined) return known;
    const links: number[] = [];
    for (const [i, node] of nodes.slice(1).entries()) {
      const joined = (this.#out.get(nodes[i] as string) ?? []).filter((edge) => edge.to === node);
      const capacity = ({ directed }: (typeof joined)[number]) => this.links[directed]!.capacityGBps;
      if (joined.length === 0) return undefined;
      const { directed } = joined.reduce((widest, edge) => (capacity(edge) > capacity(widest) ? edge : widest));
      if (!this.#isFree(directed)) links.push(directed);
    }
    const route = { ...this.#describe(links, from, to), key };
    this.#ways.set(key, route);
    return route;
  }

  #find(from: number, to: number): Route {
    const a = this.devices[from]!;
    const b = this.devices[to]!;
    if (a === b) return this.#describe([], from, to);
    const direct = this.#through(a, b);
    if (direct !== undefined) return this.#describe(direct, from, to);
    const hostA = this.#nodes.get(a)?.host ?? 0;
    const hostB = this.#nodes.get(b)?.host ?? 0;
    if (hostA === hostB) return this.#describe(this.#path(this.#hostTopology(hostA), a, b), from, to);
    const nicsA = this.#nearestNics(a, hostA);
    const nicsB = this.#nearestNics(b, hostB);
    const nicA = nicsA[0];
    if (nicA === undefined || nicsB[0] === undefined) {
      return this.#describe(this.#path(this.#topology, a, b), from, to);
    }
    // Along the sender's rail when the peer has a NIC there that is as near as its others; else over the spine to its own.
    const rail = new Set((this.#out.get(nicA) ?? []).map((edge) => edge.to));
    const nicB =
      nicsB.find((nic) => (this.#out.get(nic) ?? []).some((edge) => rail.has(edge.to) && this.#isSwitch(edge.to))) ??
      nicsB[0];
    return this.#describe(
      [
        ...this.#path(this.#hostTopology(hostA), a, nicA),
        ...this.#acrossNetwork(nicA, nicB),
        ...this.#path(this.#hostTopology(hostB), nicB, b),
      ],
      from,
      to,
    );
  }

  #isSwitch(id: string): boolean {
    return this.#nodes.get(id)?.kind === "network-switch";
  }

  /** A fast link between two devices, or the fastest switch that both hang on. */
  #through(a: string, b: string): number[] | undefined {
    let best: number[] | undefined;
    let width = 0;
    for (const first of this.#out.get(a) ?? []) {
      if (!FAST_KINDS.has(first.link.kind)) continue;
      const firstWidth = this.links[first.directed]!.capacityGBps;
      if (first.to === b && firstWidth > width) {
        best = [first.directed];
        width = firstWidth;
      }
      if (this.#nodes.get(first.to)?.kind !== "nvswitch") continue;
      const second = (this.#out.get(first.to) ?? []).find((edge) => edge.to === b && FAST_KINDS.has(edge.link.kind));
      if (second === undefined) continue;
      const both = Math.min(firstWidth, this.links[second.directed]!.capacityGBps);
      if (both > width) {
        best = [first.directed, second.directed];
        width = both;
      }
    }
    return best;
  }

  /** One host's nodes and links alone. */
  #hostTopology(host: number): Topology {
    let topology = this.#hostTopologies.get(host);
    if (topology === undefined) {
      const nodes = this.#topology.nodes.filter((node) => (node.host ?? 0) === host && node.kind !== "network-switch");
      const ids = new Set(nodes.map((node) => node.id));
      topology = {
        ...this.#topology,
        nodes,
        links: this.#topology.links.filter((link) => ids.has(link.a) && ids.has(link.b)),
      };
      this.#hostTopologies.set(host, topology);
    }
    return topology;
  }

  #path(topology: Topology, a: string, b: string): number[] {
    const path = widestPath(topology, a, b);
    if (path === undefined)
      throw new InvalidArgumentError(
        "topology",
        described(`without a way from ${a} to ${b}`),
        "devices that something joins",
      );
    return path.links.map((link, i) => {
      const directed = this.#directed.get(link) ?? 0;
      return path.nodes[i] === link.a ? directed : directed + 1;
    });
  }

  /** The NICs of a host that are nearest to the device, the one with the device's own number first. */
  #nearestNics(device: string, host: number): readonly string[] {
    const known = this.#nics.get(device);
    if (known !== undefined) return known;
    const topology = this.#hostTopology(host);
    // A NIC whose cable is dead serves nobody: its devices go by the next nearest.
    const isCabled = (id: string) => (this.#out.get(id) ?? []).some((edge) => NETWORK_KINDS.has(edge.link.kind));
    const all = topology.nodes.filter(({ id, kind }) => kind === "nic" && isCabled(id)).map(({ id }) => id);
    const number = (id: string) => Number(/(\d+)$/.exec(id)?.[1] ?? 0);
    const distance = new Map<string, number>();
    for (const nic of all) distance.set(nic, widestPath(topology, device, nic)?.hops ?? 1e9);
    const nearest = Math.min(...distance.values(), 1e9 - 1);
    const sorted = all
      .filter((nic) => distance.get(nic) === nearest)
      .sort(
        (x, y) => Math.abs(number(x) - number(device)) - Math.abs(number(y) - number(device)) || number(x) - number(y),
      );
    this.#nics.set(device, sorted);
    return sorted;
  }

  /** Between network switches, and as wide as all NICs of one of them together: full bisection, where nobody waits. */
  #isFree(directed: number): boolean {
    const { from, to, capacityGBps } = this.links[directed]!;
    if (this.#tracksFreeLinks || !this.#isSwitch(from) || !this.#isSwitch(to)) return false;
    return [from, to].some((id) => {
      const ports = (this.#out.get(id) ?? []).filter((edge) => this.#nodes.get(edge.to)?.kind === "nic");
      const sum = ports.reduce((total, edge) => total + this.links[edge.directed]!.capacityGBps, 0);
      return ports.length > 0 && capacityGBps >= sum * (1 - 1e-9);
    });
  }

  /** Fewest hops from NIC to NIC over network switches. */
  #acrossNetwork(a: string, b: string): number[] {
    const cameBy = new Map<string, { readonly from: string; readonly directed: number } | undefined>([[a, undefined]]);
    const queue = [a];
    for (let i = 0; i < queue.length && !cameBy.has(b); i++) {
      const at = queue[i]!;
      if (at !== a && !this.#isSwitch(at)) continue;
      for (const edge of this.#out.get(at) ?? []) {
        if (cameBy.has(edge.to) || !NETWORK_KINDS.has(edge.link.kind)) continue;
        cameBy.set(edge.to, { from: at, directed: edge.directed });
        queue.push(edge.to);
      }
    }
    if (!cameBy.has(b))
      throw new InvalidArgumentError(
        "topology",
        described(`without a way from ${a} to ${b}`),
        "NICs that a network joins",
      );
    const links: number[] = [];
    for (let at = b; at !== a; ) {
      const step = cameBy.get(at)!;
      if (!this.#isFree(step.directed)) links.unshift(step.directed);
      at = step.from;
    }
    return links;
  }

  #describe(links: readonly number[], from: number, to: number): Route {
    let kind: LinkKind | "memory" = "memory";
    for (const link of links) {
      const own = this.links[link]!.kind;
      if (SLOWNESS.indexOf(own) > SLOWNESS.indexOf(kind)) kind = own;
    }
    const parameters = this.#parameters;
    // A latency that the topology states wins over the system's constant for the whole way.
    const stated = links.map((link) => this.#linkOf(link)?.latencyUs);
    const fixed = parameters.latencyUs[kind as LinkKind];
    const latencyUs = stated.some((value) => value !== undefined)
      ? stated.reduce<number>((sum, value) => sum + (value ?? 0), 0)
      : (fixed ??
        (links.length === 0 ? 0 : parameters.name === "ideal" ? 0 : LINK_DEFAULTS[kind as LinkKind].latencyUs));
    const crossesHosts = links.some((link) => NETWORK_KINDS.has(this.links[link]!.kind as LinkKind));
    const efficiency = crossesHosts
      ? parameters.networkEfficiency
      : kind === "pcie" || kind === "host-interconnect"
        ? parameters.pcieEfficiency
        : undefined;
    return { links, key: `${from}>${to}`, latencyUs, efficiency, kind, crossesHosts };
  }

  #linkOf(directed: number): Link | undefined {
    return this.#topology.links[Math.floor(directed / 2)];
  }
}
