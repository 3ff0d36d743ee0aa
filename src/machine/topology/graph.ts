/**
 * Questions to the topology graph: the fastest and the widest path between two nodes, what a path costs, which devices
 * form an island, in which order a ring runs. A device forwards nothing, save over fabrics whose devices are routers
 * (ICI, XGMI, NeuronLink); hosts are crossed only through their NICs.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import type { Device, Inventory, Link, LinkKind, Topology, TopologyNode } from "./inventory.ts";

/** Latency and bandwidth of a connection: a message of n bytes takes `latencyUs + n / (bandwidthGBps * 1000)` us. */
export interface LinkCost {
  readonly latencyUs: number;
  /** One direction, as the hardware signals it. */
  readonly bandwidthGBps: number;
  /** What large messages reach: `bandwidthGBps` times the kind's efficiency. */
  readonly effectiveGBps: number;
  /** False when the rate is the kind's default: good enough to compare and to plan with, never to be shown as a fact. */
  readonly isRateKnown: boolean;
}

/**
 * What is assumed of a link that does not say. Latencies: NCCL's tuning model (src/graph/tuning.cc, per-hop LL128
 * figures for NVLink 1.9 us and PCIe 2.5 us, LL for the network 2.7 us and its overhead), halved on links that end at a
 * switch. Efficiencies: NVLink 370 of 478 GB/s (bus bandwidth observed on 8 H100, nccl-tests#309), PCIe and NDR from
 * the same sources. Bandwidths are the common current generation; measure (`topo --measure`) where it matters.
 */
export const LINK_DEFAULTS: Readonly<
  Record<LinkKind, { readonly latencyUs: number; readonly bandwidthGBps: number; readonly efficiency: number }>
> = {
  nvlink: { latencyUs: 1.9, bandwidthGBps: 25, efficiency: 0.77 },
  "nvlink-c2c": { latencyUs: 0.6, bandwidthGBps: 450, efficiency: 0.8 },
  xgmi: { latencyUs: 1.9, bandwidthGBps: 50, efficiency: 0.75 },
  ici: { latencyUs: 1, bandwidthGBps: 45, efficiency: 0.9 },
  "xe-link": { latencyUs: 1.9, bandwidthGBps: 26.5, efficiency: 0.8 },
  neuronlink: { latencyUs: 1.9, bandwidthGBps: 48, efficiency: 0.8 },
  "gaudi-roce": { latencyUs: 2.7, bandwidthGBps: 37.5, efficiency: 0.9 },
  ultrafusion: { latencyUs: 0.2, bandwidthGBps: 1250, efficiency: 0.8 },
  pcie: { latencyUs: 1.25, bandwidthGBps: 31.5, efficiency: 0.78 },
  "host-interconnect": { latencyUs: 0.3, bandwidthGBps: 40, efficiency: 0.8 },
  memory: { latencyUs: 0.1, bandwidthGBps: 200, efficiency: 0.8 },
  infiniband: { latencyUs: 1.35, bandwidthGBps: 50, efficiency: 0.96 },
  roce: { latencyUs: 1.8, bandwidthGBps: 50, efficiency: 0.93 },
  ethernet: { latencyUs: 10, bandwidthGBps: 12.5, efficiency: 0.9 },
};

/** Links that make an island: devices joined by them talk without the host. */
export const FAST_KINDS: ReadonlySet<LinkKind> = new Set<LinkKind>([
  "nvlink",
  "xgmi",
  "xe-link",
  "ici",
  "neuronlink",
  "gaudi-roce",
  "ultrafusion",
]);

/** How a pair on a fabric is called in `pairs`. NVLink's name has its count: NV18. */
export const FABRIC_RELATIONS: Partial<Readonly<Record<LinkKind, string>>> = {
  xgmi: "XGMI",
  "xe-link": "XELINK",
  ici: "ICI",
  neuronlink: "NEURONLINK",
  "gaudi-roce": "GAUDI-ROCE",
  ultrafusion: "ULTRAFUSION",
};

/** The fabric that a pair's relation names, if it names one. */
function fabricOf(relation: string): LinkKind | undefined {
  if (/^NV\d+$/.test(relation)) return "nvlink";
  return [...FAST_KINDS].find((kind) => FABRIC_RELATIONS[kind] === relation);
}

/** Fabrics whose devices pass on what is not for them. */
const ROUTING_KINDS: ReadonlySet<LinkKind> = new Set<LinkKind>(["ici", "xgmi", "neuronlink"]);

export interface Path extends LinkCost {
  /** From the first to the last node, both included. */
  readonly nodes: readonly string[];
  readonly links: readonly Link[];
  readonly hops: number;
}

export interface Island {
  readonly id: string;
  readonly devices: readonly string[];
  /** Absent for a device that stands alone. */
  readonly kind?: LinkKind;
  /** Of the least connected pair, on its widest path within the fast links. Absent when a link's rate is unknown. */
  readonly bandwidthGBps?: number;
}

interface Edge {
  readonly to: string;
  readonly link: Link;
  readonly cost: LinkCost;
}

interface Graph {
  readonly nodes: ReadonlyMap<string, TopologyNode>;
  readonly edges: ReadonlyMap<string, readonly Edge[]>;
}

const graphs = new WeakMap<Topology, Graph>();

function graphOf(topology: Topology): Graph {
  const known = graphs.get(topology);
  if (known !== undefined) return known;
  const nodes = new Map(topology.nodes.map((node) => [node.id, node]));
  const edges = new Map<string, Edge[]>(topology.nodes.map((node) => [node.id, []]));
  for (const link of topology.links) {
    const cost = linkCost(link, nodes);
    edges.get(link.a)?.push({ to: link.b, link, cost });
    edges.get(link.b)?.push({ to: link.a, link, cost });
  }
  const graph = { nodes, edges };
  graphs.set(topology, graph);
  return graph;
}

/** What one link costs: its own figures, the kind's defaults for those it lacks. */
export function linkCost(link: Link, nodes?: ReadonlyMap<string, TopologyNode>): LinkCost {
  const defaults = LINK_DEFAULTS[link.kind];
  const atSwitch = [link.a, link.b].some((id) => nodes?.get(id)?.kind === "nvswitch");
  const bandwidthGBps = link.bandwidthGBps ?? defaults.bandwidthGBps * Math.max(link.count ?? 1, 1);
  return {
    latencyUs: link.latencyUs ?? defaults.latencyUs * (atSwitch ? 0.5 : 1),
    bandwidthGBps,
    effectiveGBps: bandwidthGBps * defaults.efficiency,
    isRateKnown: link.bandwidthGBps !== undefined,
  };
}

/** Says whether traffic that came over `inbound` may leave `node` over `outbound`. */
function passes(node: TopologyNode, inbound: Link, outbound: Link): boolean {
  if (node.kind !== "device") return true;
  return inbound.kind === outbound.kind && ROUTING_KINDS.has(inbound.kind);
}

type Better = (a: LinkCost & { hops: number }, b: LinkCost & { hops: number }) => boolean;

const faster: Better = (a, b) =>
  a.latencyUs !== b.latencyUs ? a.latencyUs < b.latencyUs : a.bandwidthGBps > b.bandwidthGBps;
const wider: Better = (a, b) =>
  a.bandwidthGBps !== b.bandwidthGBps
    ? a.bandwidthGBps > b.bandwidthGBps
    : a.hops !== b.hops
      ? a.hops < b.hops
      : a.latencyUs < b.latencyUs;

interface Label extends LinkCost {
  readonly node: string;
  readonly order: number;
  readonly hops: number;
  readonly via?: { readonly label: Label; readonly link: Link };
}

/**
 * Dijkstra over labels (node, kind of the arriving link): whether a device forwards depends on the link by which the
 * path came, so a node alone is not a state.
 */
function search(
  topology: Topology,
  from: string,
  to: string,
  better: Better,
  allowed?: (link: Link) => boolean,
  forwards: (node: TopologyNode, inbound: Link, outbound: Link) => boolean = passes,
): Path | undefined {
  const graph = graphOf(topology);
  for (const [argument, id] of [
    ["from", from],
    ["to", to],
  ] as const) {
    if (!graph.nodes.has(id)) {
      throw new InvalidArgumentError(
        argument,
        id,
        `a node of the topology (${[...graph.nodes.keys()].slice(0, 12).join(", ")}…)`,
      );
    }
  }
  const hosts = [from, to].map((id) => graph.nodes.get(id)?.host);
  const leavesHost = hosts[0] !== hosts[1];
  const frontier = new Heap<Label>(better);
  frontier.push({
    node: from,
    order: 0,
    hops: 0,
    latencyUs: 0,
    bandwidthGBps: Number.POSITIVE_INFINITY,
    effectiveGBps: Number.POSITIVE_INFINITY,
    isRateKnown: true,
  });
  const done = new Set<string>();
  let pushed = 0;
  for (let best = frontier.pop(); best !== undefined; best = frontier.pop()) {
    const state = `${best.node} ${best.via?.link.kind ?? ""}`;
    if (done.has(state)) continue;
    done.add(state);
    if (best.node === to) return pathOf(best);
    const node = graph.nodes.get(best.node) as TopologyNode;
    for (const edge of graph.edges.get(best.node) ?? []) {
      const next = graph.nodes.get(edge.to);
      if (next === undefined || allowed?.(edge.link) === false) continue;
      if (best.via !== undefined && !forwards(node, best.via.link, edge.link)) continue;
      if (!leavesHost && next.kind === "network-switch" && edge.to !== to) continue;
      if (done.has(`${edge.to} ${edge.link.kind}`)) continue;
      frontier.push({
        node: edge.to,
        order: ++pushed,
        hops: best.hops + 1,
        latencyUs: best.latencyUs + edge.cost.latencyUs,
        bandwidthGBps: Math.min(best.bandwidthGBps, edge.cost.bandwidthGBps),
        effectiveGBps: Math.min(best.effectiveGBps, edge.cost.effectiveGBps),
        isRateKnown: best.isRateKnown && edge.cost.isRateKnown,
        via: { label: best, link: edge.link },
      });
    }
  }
  return undefined;
}

/** A binary heap; the best is popped first, of equal ones the oldest, so that paths do not depend on chance. */
class Heap<T extends { readonly order: number }> {
  readonly #items: T[] = [];
  readonly #better: (a: T, b: T) => boolean;
  constructor(better: (a: T, b: T) => boolean) {
    this.#better = (a, b) => better(a, b) || (!better(b, a) && a.order < b.order);
  }

  push(item: T): void {
    const items = this.#items;
    let at = items.push(item) - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (!this.#better(item, items[up]!)) break;
      items[at] = items[up]!;
      at = up;
    }
    items[at] = item;
  }

  pop(): T | undefined {
    const items = this.#items;
    const top = items[0];
    const item = items.pop();
    if (item === undefined || items.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && this.#better(items[child + 1]!, items[child]!)) child++;
      if (!this.#better(items[child]!, item)) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = item;
    return top;
  }
}

function pathOf(end: Label): Path {
  const nodes = [end.node];
  const links: Link[] = [];
  for (let label = end; label.via !== undefined; label = label.via.label) {
    links.unshift(label.via.link);
    nodes.unshift(label.via.label.node);
  }
  const { hops, latencyUs, bandwidthGBps, effectiveGBps, isRateKnown } = end;
  return { nodes, links, hops, latencyUs, bandwidthGBps, effectiveGBps, isRateKnown };
}

/**
 * Finds the path of least latency between two nodes; of equal ones the widest. Undefined when nothing joins them.
 * @throws InvalidArgumentError for an id that is no node
 */
export function shortestPath(topology: Topology, from: string, to: string): Path | undefined {
  return search(topology, from, to, faster);
}

/**
 * Finds the path whose narrowest link is widest; of equal ones the one of fewest hops. Undefined when nothing joins
 * them. This is how bulk transfers go: NVLink rather than PCIe.
 * @throws InvalidArgumentError for an id that is no node
 */
export function widestPath(topology: Topology, from: string, to: string): Path | undefined {
  return search(topology, from, to, wider);
}

/**
 * Finds the widest connection that no other device has to pass on: a link, links through switches, or (with
 * `fastOnly` false) the way through the host. Undefined when there is none.
 * @throws InvalidArgumentError for an id that is no node
 */
export function directPath(topology: Topology, from: string, to: string, fastOnly = true): Path | undefined {
  return search(
    topology,
    from,
    to,
    wider,
    fastOnly ? (link) => FAST_KINDS.has(link.kind) : undefined,
    (node) => node.kind !== "device",
  );
}

/** The width of the widest path, GB/s in one direction; Infinity from a node to itself, 0 when nothing joins the two. */
export function bottleneckGBps(topology: Topology, from: string, to: string): number {
  return widestPath(topology, from, to)?.bandwidthGBps ?? 0;
}

/** Alpha and beta between two devices: the cost of their widest path. Undefined when nothing joins them. */
export function pathCost(topology: Topology, from: string, to: string): LinkCost | undefined {
  const path = widestPath(topology, from, to);
  if (path === undefined) return undefined;
  const { latencyUs, bandwidthGBps, effectiveGBps, isRateKnown } = path;
  return { latencyUs, bandwidthGBps, effectiveGBps, isRateKnown };
}

/**
 * Splits the accelerators (not CPUs, not parts of another device, not masked ones unless asked) into islands: the
 * largest sets joined by fast links, through switches too. Devices without a fast link are islands of one.
 */
export function islands(
  inventory: Pick<Inventory, "devices" | "topology">,
  options: { readonly includeMasked?: boolean; readonly minBandwidthGBps?: number } = {},
): Island[] {
  const { topology } = inventory;
  const minimum = options.minBandwidthGBps ?? 0;
  const graph = graphOf(topology);
  const isFast = (link: Link) => FAST_KINDS.has(link.kind) && linkCost(link, graph.nodes).bandwidthGBps >= minimum;
  const members = inventory.devices.filter((d) => isMember(d, options.includeMasked === true)).map((d) => d.id);
  const group = new Map(topology.nodes.map((node) => [node.id, node.id]));
  const find = (id: string): string => {
    let root = id;
    for (let up = group.get(root); up !== undefined && up !== root; up = group.get(root)) root = up;
    group.set(id, root);
    return root;
  };
  for (const link of topology.links) if (isFast(link)) group.set(find(link.a), find(link.b));
  // A driver may say that two devices share a fabric and not by which links (an XGMI hive).
  const stated = minimum > 0 ? [] : (topology.pairs ?? []).filter((pair) => fabricOf(pair.relation) !== undefined);
  for (const pair of stated) group.set(find(pair.a), find(pair.b));
  const sets = new Map<string, string[]>();
  for (const id of members) {
    const root = find(id);
    sets.set(root, [...(sets.get(root) ?? []), id]);
  }
  return [...sets.values()].map((devices, index) => {
    const own = new Set(devices);
    const pair = stated.find(({ a, b }) => own.has(a) && own.has(b));
    const kind =
      topology.links.find((link) => isFast(link) && (own.has(link.a) || own.has(link.b)))?.kind ??
      (pair && fabricOf(pair.relation));
    if (devices.length < 2 || kind === undefined) return { id: `island${index}`, devices };
    const width = narrowest(topology, devices, isFast);
    return { id: `island${index}`, devices, kind, ...(width !== undefined && { bandwidthGBps: width }) };
  });
}

function isMember(device: Device, includeMasked: boolean): boolean {
  return device.family !== "cpu" && device.parent === undefined && (device.visible || includeMasked);
}

/**
 * Width between the least connected two, 0 when no path joins them, undefined when a rate on the way is unknown. From one
 * device to all others suffices where all that lies between them forwards, since width is ultrametric then; GPUs that are
 * linked directly do not forward.
 */
function narrowest(
  topology: Topology,
  devices: readonly string[],
  allowed: (link: Link) => boolean,
): number | undefined {
  const own = new Set(devices);
  const within = topology.links.filter((l) => (own.has(l.a) || own.has(l.b)) && allowed(l));
  if (within.length === 0) return undefined;
  const direct = within.some((l) => own.has(l.a) && own.has(l.b) && !ROUTING_KINDS.has(l.kind));
  const sources = direct ? devices.slice(0, -1) : devices.slice(0, 1);
  const paths = sources.flatMap((from, i) =>
    devices.slice(i + 1).map((to) => search(topology, from, to, wider, allowed)),
  );
  if (paths.some((path) => path?.isRateKnown === false)) return undefined;
  return Math.min(...paths.map((path) => path?.bandwidthGBps ?? 0));
}

/** Whether a device passes on what came over a link of this kind. */
export function isRouted(kind: LinkKind): boolean {
  return ROUTING_KINDS.has(kind);
}
