/**
 * The topology as placement sees it: which devices sit together, and what joins a set of them. Four scopes, from near to
 * far: the same device, an island of fast links, one host, the network. Built once per inventory in one pass over its
 * links, so that a thousand devices cost milliseconds.
 */
import { type CollectiveMachine, CollectiveMachines } from "../../machine/cost/index.ts";
import { FAST_KINDS, type Inventory, type LinkKind, linkCost, type Topology } from "../../machine/topology/index.ts";

const SCOPES = ["device", "island", "host", "network"] as const;
export type Scope = (typeof SCOPES)[number];

/** What joins a set of devices: per device, one direction, as large messages reach it. */
export interface GroupLink {
  readonly scope: Scope;
  readonly kind: LinkKind | "none";
  readonly effectiveGBps: number;
  readonly latencyUs: number;
  /** Hosts that the set spans. */
  readonly hosts: number;
  /** For sets that span hosts: the slowest link inside one of them, where one has several of the devices. */
  readonly inner?: GroupLink;
  /** The set as a collective library sees it, where its devices are alike; worked out when first asked for. */
  readonly machine?: () => CollectiveMachine | undefined;
}

export interface Place {
  readonly host: number;
  /** Index of the island; unique for a device that stands alone. */
  readonly island: number;
  readonly numa: number;
}

interface FastLink {
  readonly to: string;
  readonly kind: LinkKind;
  readonly effectiveGBps: number;
  readonly latencyUs: number;
  readonly toSwitch: boolean;
}

/** Shared memory of one host, between ranks on one device (worker threads): chorale's own threads backend. */
const SAME_DEVICE: GroupLink = { scope: "device", kind: "memory", effectiveGBps: 10, latencyUs: 0.5, hosts: 1 };

/**
 * The sets that fast links join, by number of a representative node. (`topology/`'s islands() also finds each one's
 * narrowest path, which takes longer than planning a thousand devices may.)
 */
function islandsOf(topology: Topology): ReadonlyMap<string, number> {
  const index = new Map(topology.nodes.map((node, at) => [node.id, at]));
  const parent = topology.nodes.map((_, at) => at);
  const find = (at: number): number => {
    let root = at;
    while (parent[root] !== root) root = parent[root] ?? root;
    for (let node = at; node !== root; ) {
      const next = parent[node] ?? root;
      parent[node] = root;
      node = next;
    }
    return root;
  };
  for (const link of topology.links) {
    const [a, b] = [index.get(link.a), index.get(link.b)];
    if (FAST_KINDS.has(link.kind) && a !== undefined && b !== undefined) parent[find(a)] = find(b);
  }
  return new Map([...index].map(([id, at]) => [id, find(at)]));
}

/** The farther of two links; of one scope, the one that carries less. */
export function slower(a: GroupLink | undefined, b: GroupLink): GroupLink {
  if (a === undefined) return b;
  const order = SCOPES.indexOf(a.scope) - SCOPES.indexOf(b.scope);
  return order > 0 || (order === 0 && a.effectiveGBps <= b.effectiveGBps) ? a : b;
}

/** Queries over one inventory. */
export class Fabric {
  readonly #places = new Map<string, Place>();
  readonly #fast = new Map<string, FastLink[]>();
  readonly #hostLink = new Map<string, { kind: LinkKind; effectiveGBps: number; latencyUs: number }>();
  readonly #network = new Map<number, { kind: LinkKind; effectiveGBps: number; latencyUs: number }>();

  readonly #hostMemory = new Map<number, number>();
  readonly #pairs = new Map<string, Map<string, GroupLink | undefined>>();
  readonly #machines: CollectiveMachines;
  readonly #archOf: ReadonlyMap<string, string>;

  /** With `useTotalMemory` hosts have all of their memory, whatever is free. */
  constructor(inventory: Pick<Inventory, "devices" | "topology">, useTotalMemory = false) {
    const { topology, devices } = inventory;
    this.#machines = new CollectiveMachines(inventory);
    this.#archOf = new Map(devices.map(({ id, family, arch }) => [id, `${family} ${arch ?? ""}`]));
    const nodes = new Map(topology.nodes.map((node) => [node.id, node]));
    const islandOf = islandsOf(topology);
    let alone = topology.nodes.length;
    const perHost = new Map<number, number>();
    const isDevice = new Set(devices.map((device) => device.id));
    for (const device of devices) {
      const host = nodes.get(device.id)?.host ?? 0;
      const parent = device.parent === undefined ? undefined : islandOf.get(device.parent);
      const island = islandOf.get(device.id) ?? parent ?? alone++;
      this.#places.set(device.id, { host, island, numa: device.numaNode ?? Number.MAX_SAFE_INTEGER });
      const free = useTotalMemory ? device.memoryBytes : (device.memoryFreeBytes ?? device.memoryBytes);
      const memory = device.family === "cpu" ? free : undefined;
      if (memory !== undefined) this.#hostMemory.set(host, (this.#hostMemory.get(host) ?? 0) + memory);
      if (device.family !== "cpu" && device.parent === undefined) perHost.set(host, (perHost.get(host) ?? 0) + 1);
    }
    const netGBps = new Map<number, number>();
    for (const link of topology.links) {
      const cost = linkCost(link, nodes);
      for (const [own, other] of [
        [link.a, link.b],
        [link.b, link.a],
      ] as const) {
        const node = nodes.get(own);
        const far = nodes.get(other);
        if (isDevice.has(own) && FAST_KINDS.has(link.kind)) {
          const list = this.#fast.get(own) ?? [];
          list.push({
            to: other,
            kind: link.kind,
            effectiveGBps: cost.effectiveGBps,
            latencyUs: cost.latencyUs,
            toSwitch: !isDevice.has(other),
          });
          this.#fast.set(own, list);
        } else if (isDevice.has(own) && far?.kind !== "device") {
          this.#hostLink.set(own, { kind: link.kind, effectiveGBps: cost.effectiveGBps, latencyUs: cost.latencyUs });
        }
        if (node?.kind === "nic" && (link.kind === "infiniband" || link.kind === "roce" || link.kind === "ethernet")) {
          const host = node.host ?? 0;
          netGBps.set(host, (netGBps.get(host) ?? 0) + cost.effectiveGBps);
          this.#network.set(host, { kind: link.kind, effectiveGBps: 0, latencyUs: 2 * cost.latencyUs });
        }
      }
    }
    for (const [host, link] of this.#network) {
      const share = (netGBps.get(host) ?? 0) / Math.max(1, perHost.get(host) ?? 1);
      this.#network.set(host, { ...link, effectiveGBps: share });
    }
  }

  /** Memory of a host's CPUs, free where that is known; undefined where the inventory has no CPU there. */
  hostMemoryBytes(host: number): number | undefined {
    return this.#hostMemory.get(host);
  }

  place(id: string): Place {
    return this.#places.get(id) ?? { host: 0, island: -1, numa: Number.MAX_SAFE_INTEGER };
  }

  /** A link that no two blocks of this inventory are joined by a better one than: the least latency, free of bytes. */
  nearest(sharesDevices: boolean): GroupLink {
    if (sharesDevices) return SAME_DEVICE;
    let latencyUs = Number.POSITIVE_INFINITY;
    for (const links of this.#fast.values()) for (const link of links) latencyUs = Math.min(latencyUs, link.latencyUs);
    for (const link of this.#hostLink.values()) latencyUs = Math.min(latencyUs, 2 * link.latencyUs);
    for (const link of this.#network.values()) latencyUs = Math.min(latencyUs, link.latencyUs);
    // Devices of one host without a described link take the default of PCIe.
    latencyUs = Math.min(latencyUs, 2 * linkCost({ a: "", b: "", kind: "pcie" }).latencyUs);
    return { scope: "island", kind: "none", effectiveGBps: Number.POSITIVE_INFINITY, latencyUs, hosts: 1 };
  }

  /** What joins these devices; undefined when nothing does (two hosts without a network). One device: its own memory. */
  group(ids: readonly string[]): GroupLink | undefined {
    const distinct = this.#fullestHostFirst([...new Set(ids)]);
    const link = this.#linkOf(distinct);
    if (link === undefined || distinct.length < 2) return link;
    let machine: CollectiveMachine | undefined;
    return { ...link, machine: () => (machine ??= this.#machineOf(distinct)) };
  }

  /**
   * The devices by host, the host with the most of them first: what joins a set must not depend on the order in which it is
   * given, and a collective library is described by its first device's host.
   */
  #fullestHostFirst(ids: readonly string[]): readonly string[] {
    const byHost = this.#byHost(ids);
    if (byHost.size < 2) return ids;
    return [...byHost].sort(([a, x], [b, y]) => y.length - x.length || a - b).flatMap(([, members]) => members);
  }

  #byHost(ids: readonly string[]): ReadonlyMap<number, readonly string[]> {
    const hosts = new Map<number, string[]>();
    for (const id of ids) {
      const { host } = this.place(id);
      const members = hosts.get(host);
      if (members === undefined) hosts.set(host, [id]);
      else members.push(id);
    }
    return hosts;
  }

  /** What joins two devices: asked for again and again while pipelines are placed, so it is remembered. */
  pair(a: string, b: string): GroupLink | undefined {
    const known = this.#pairs.get(a) ?? new Map<string, GroupLink | undefined>();
    this.#pairs.set(a, known);
    if (!known.has(b)) known.set(b, this.group([a, b]));
    return known.get(b);
  }

  #machineOf(ids: readonly string[]): CollectiveMachine | undefined {
    const arch = this.#archOf.get(ids[0] ?? "");
    return ids.every((id) => this.#archOf.get(id) === arch) ? this.#machines.of(ids) : undefined;
  }

  #linkOf(distinct: readonly string[]): GroupLink | undefined {
    const places = distinct.map((id) => this.place(id));
    const first = places[0];
    if (first === undefined || distinct.length === 1) return SAME_DEVICE;
    if (places.every((place) => place.island === first.island)) {
      const fast = this.#island(distinct);
      if (fast !== undefined) return fast;
    }
    const hosts = this.#byHost(distinct);
    return hosts.size === 1 ? this.#host(distinct) : this.#across(hosts);
  }

  #island(ids: readonly string[]): GroupLink | undefined {
    const members = new Set(ids);
    let effectiveGBps = Number.POSITIVE_INFINITY;
    let latencyUs = 0;
    let kind: LinkKind | undefined;
    for (const id of ids) {
      const links = this.#fast.get(id) ?? [];
      const direct = links.filter((link) => link.toSwitch || members.has(link.to));
      // Members that are joined only through others of the island forward over one of their links.
      const used = direct.length > 0 ? direct : links.slice(0, 1);
      if (used.length === 0) return undefined;
      kind ??= used[0]?.kind;
      effectiveGBps = Math.min(
        effectiveGBps,
        used.reduce((sum, link) => sum + link.effectiveGBps, 0),
      );
      latencyUs = Math.max(latencyUs, ...used.map((link) => link.latencyUs * (link.toSwitch ? 2 : 1)));
    }
    return kind === undefined ? undefined : { scope: "island", kind, effectiveGBps, latencyUs, hosts: 1 };
  }

  #host(ids: readonly string[]): GroupLink {
    const links = ids.map(
      (id) => this.#hostLink.get(id) ?? { ...linkCost({ a: id, b: "host", kind: "pcie" }), kind: "pcie" as const },
    );
    return {
      scope: "host",
      kind: links[0]?.kind ?? "pcie",
      effectiveGBps: Math.min(...links.map((link) => link.effectiveGBps)),
      latencyUs: 2 * Math.max(...links.map((link) => link.latencyUs)),
      hosts: 1,
    };
  }

  #across(hosts: ReadonlyMap<number, readonly string[]>): GroupLink | undefined {
    const links = [...hosts.keys()].map((host) => this.#network.get(host));
    if (links.some((link) => link === undefined)) return undefined;
    const known = links.filter((link) => link !== undefined);
    let inner: GroupLink | undefined;
    for (const members of hosts.values()) {
      const link = members.length > 1 ? this.#linkOf(members) : undefined;
      if (link !== undefined) inner = slower(inner, link);
    }
    return {
      scope: "network",
      kind: known[0]?.kind ?? "ethernet",
      effectiveGBps: Math.min(...known.map((link) => link.effectiveGBps)),
      latencyUs: Math.max(...known.map((link) => link.latencyUs)),
      hosts: hosts.size,
      ...(inner === undefined ? {} : { inner }),
    };
  }
}
