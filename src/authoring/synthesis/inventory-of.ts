/** A network as a machine of generic accelerators, for whoever simulates on inventories. */
import { UnsupportedError } from "../../core/index.ts";
import { INVENTORY_SCHEMA_VERSION, type Inventory, type Link } from "../../machine/topology/index.ts";
import type { Network } from "../certificate/index.ts";
import { checkNetwork } from "./network.ts";

/** A schema of positive latencies: zero becomes a femtosecond. */
const LEAST_LATENCY_US = 1e-9;

/**
 * Makes the inventory of a network: ranks are devices in rank order, relays are switches.
 * @throws FormatError for an invalid network; UnsupportedError for links that differ by direction, which inventories
 *   cannot say
 */
export function inventoryOf(network: Network): Inventory {
  const { ids, isRank, ranks, edges } = checkNetwork(network);
  const back = new Map(edges.map((edge) => [edge.to * ids.length + edge.from, edge]));
  const links: Link[] = [];
  for (const { from, to, capacity, latencyUs } of edges) {
    const other = back.get(from * ids.length + to);
    if (other === undefined || !other.capacity.equals(capacity) || other.latencyUs !== latencyUs) {
      throw new UnsupportedError(
        `a link from ${ids[from]} to ${ids[to]} that differs by direction`,
        "simulating needs links that are the same both ways",
      );
    }
    if (from > to) continue;
    links.push({
      a: ids[from] as string,
      b: ids[to] as string,
      kind: isRank[from] && isRank[to] ? "xgmi" : "nvlink",
      bandwidthGBps: capacity.toNumber(),
      latencyUs: Math.max(latencyUs, LEAST_LATENCY_US),
    });
  }
  return {
    schemaVersion: INVENTORY_SCHEMA_VERSION,
    devices: ranks.map((node, index) => ({
      id: ids[node] as string,
      family: "nvidia-gpu",
      vendor: "generic",
      name: "generic NPU",
      index,
      visible: true,
    })),
    topology: { nodes: ids.map((id, node) => ({ id, kind: isRank[node] ? "device" : "nvswitch", host: 0 })), links },
    warnings: [],
  };
}
