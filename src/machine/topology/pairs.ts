/** How two nodes are related, in one word: the names of `nvidia-smi topo -m`, and those of other vendors' fabrics. */
import { FAST_KINDS, widestPath } from "./graph.ts";
import type { LinkKind, Pair, Topology } from "./inventory.ts";

const RELATION_NAMES: Partial<Readonly<Record<LinkKind, string>>> = {
  xgmi: "XGMI",
  ici: "ICI",
  neuronlink: "NEURONLINK",
  "gaudi-roce": "GAUDI-ROCE",
  ultrafusion: "ULTRAFUSION",
};

/**
 * Derives the relation of two nodes from the widest path between them.
 * @param byBus the PCIe relation, if it is known; `"by-path"` reads it off the path, for a graph that is complete
 * @returns undefined when nothing joins the two, or only links whose relation is not known
 * @throws InvalidArgumentError for an id that is no node
 */
export function relate(topology: Topology, a: string, b: string, byBus?: string): Pair | undefined {
  const path = widestPath(topology, a, b);
  const first = path?.links[0];
  if (path !== undefined && first !== undefined && path.links.every((l) => FAST_KINDS.has(l.kind))) {
    const count = Math.min(...path.links.map((l) => l.count ?? 1));
    const relation = first.kind === "nvlink" ? `NV${count}` : (RELATION_NAMES[first.kind] ?? first.kind);
    const known = path.links.every((l) => l.bandwidthGBps !== undefined);
    return { a, b, relation, count, hops: path.hops, ...(known && { bandwidthGBps: path.bandwidthGBps }) };
  }
  const relation = byBus !== "by-path" || path === undefined ? byBus : busRelation(topology, path.nodes);
  if (relation === undefined || relation === "by-path") return undefined;
  const wired = path?.links.filter((l) => l.kind === "pcie") ?? [];
  const known = wired.length > 0 && wired.every((l) => l.bandwidthGBps !== undefined);
  const bandwidthGBps = Math.min(...wired.map((l) => l.bandwidthGBps ?? 0));
  return { a, b, relation, ...(path !== undefined && { hops: path.hops }), ...(known && { bandwidthGBps }) };
}

/** Reads the PCIe relation off a path; undefined when it leaves the host. */
function busRelation(topology: Topology, path: readonly string[]): string | undefined {
  const kinds = path.slice(1, -1).map((id) => topology.nodes.find((node) => node.id === id)?.kind);
  if (kinds.includes("network-switch") || kinds.includes("nic")) return undefined;
  const count = (kind: string) => kinds.filter((k) => k === kind).length;
  if (count("numa") > 1) return "SYS";
  if (count("numa") === 1) return count("pcie-root") > 1 ? "NODE" : "PHB";
  if (count("pcie-root") === 1) return "PHB";
  return count("pcie-switch") > 1 ? "PXB" : "PIX";
}
