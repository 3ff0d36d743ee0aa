/** Networks between hosts, as far as collectives feel a difference: who carries the bytes, and by which software. */
import type { Link, TopologyNode } from "../topology/index.ts";

export const NETWORK_KINDS = ["infiniband", "roce", "ethernet", "efa", "tcpx", "tcpxo", "gib", "slingshot"] as const;
export type NetworkKind = (typeof NETWORK_KINDS)[number];

/** The kind that a NIC says (`details.fabric`, which `--nic 4x200EFA` sets), else its link's. */
export function networkKindOf(nic: TopologyNode, link: Link["kind"] | undefined): NetworkKind {
  const named = NETWORK_KINDS.find((kind) => kind === nic.details?.["fabric"]);
  return named ?? NETWORK_KINDS.find((kind) => kind === link) ?? "ethernet";
}
