/** How two nodes are related, in one word: the names of `nvidia-smi topo -m`, and those of other vendors' fabrics. */
import { directPath, FABRIC_RELATIONS, FAST_KINDS, widestPath } from "./graph.ts";
import type { Pair, Topology } from "./inventory.ts";

/**
 * Derives the relation of two nodes: from their direct connection over a fast fabric where there is one, else from the
 * widest path between them.
 * @param byBus the PCIe relation, or the fabric's as a driver states it, if it is known; `"by-path"` reads it off the
 *   path, for a graph that is complete
 * @returns undefined when nothing joins the two, or only links whose relation is not known
 * @throws InvalidArgumentError for an id that is no node
 */
export function relate(topology: Topology, a: string, b: string, byBus?: string): Pair | undefined {
  const direct = directPath(topology, a, b);
  const path = direct ?? widestPath(topology, a, b);
  const first = path?.links[0];
  if (path !== undefined && first !== undefined && path.links.every((l) => FAST_KINDS.has(l.kind))) {
    const counts = direct?.links.flatMap((l) => l.count ?? []) ?? [];
    // Parallel links are those of a direct connection; a way over other devices has only its length.
    const count = counts.length === path.links.length ? Math.min(...counts) : undefined;
    const relation = first.kind === "nvlink" ? `NV${count ?? "LINK"}` : (FABRIC_RELATIONS[first.kind] ?? first.kind);
    return {
      a,
      b,
      relation,
      ...(count !== undefined && { count }),
      hops: path.hops,
      ...(path.isRateKnown && { bandwidthGBps: path.bandwidthGBps }),
    };
  }
  const relation = byBus !== "by-path" || path === undefined ? byBus : busRelation(topology, path.nodes);
  if (relation === undefined || relation === "by-path") return undefined;
  // The fabric that a driver names is not the PCIe path that the graph shows.
  if (Object.values(FABRIC_RELATIONS).includes(relation)) return { a, b, relation };
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
