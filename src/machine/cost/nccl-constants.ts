/**
 * NCCL's own constants, the one copy of them: latencies and ceilings of its tuning model, from NVIDIA/nccl 2.30.7
 * (`src/graph/tuning.cc` and `src/graph/topo.h`), read on 2026-11-20. Microseconds and GB/s of 1e9 bytes.
 */

/** The newest version whose choices are known: that of the constants. */
export const NCCL_NEWEST = "2.30";

/** From least latency to most bandwidth. */
export const NCCL_PROTOCOL_NAMES = ["LL", "LL128", "Simple"] as const;
export type NcclProtocol = (typeof NCCL_PROTOCOL_NAMES)[number];

type ByProtocol = Readonly<Record<NcclProtocol, number>>;
type ByAlgorithm = Readonly<Record<"ring" | "tree", ByProtocol>>;

/** What a collective costs before its first hop. */
export const NCCL_BASE_US: ByAlgorithm = {
  tree: { LL: 6.8, LL128: 14, Simple: 8.4 },
  ring: { LL: 6.6, LL128: 14, Simple: 8.4 },
};

/** What one hop costs, by what it runs over. */
export const NCCL_HOP_US: Readonly<Record<"nvlink" | "pcie" | "network", ByAlgorithm>> = {
  nvlink: { tree: { LL: 0.6, LL128: 1.25, Simple: 4 }, ring: { LL: 0.6, LL128: 1.9, Simple: 3.4 } },
  pcie: { tree: { LL: 1, LL128: 1.9, Simple: 4 }, ring: { LL: 1, LL128: 2.5, Simple: 5.7 } },
  network: { tree: { LL: 5, LL128: 8.5, Simple: 14 }, ring: { LL: 2.7, LL128: 4, Simple: 14 } },
};

/** Share of a link's rate that is payload: LL sends a flag with every word, LL128 one in every 128 bytes (120 of 128, and losses). */
export const NCCL_LL_FRACTION = 0.5;
export const NCCL_LL128_FRACTION = 0.92;

/** A tree's share of a ring's rate, and how much less of it LL reaches. */
export const NCCL_TREE = { efficiency: 0.92, llDivisor: 3.8 } as const;

/**
 * In-network reduction on NVSwitch: what NCCL takes as its start, and the algorithm bandwidth that it expects as a share of a
 * ring's bus bandwidth, by the first version that says so (tags of NVIDIA/nccl, `src/graph/tuning.cc`, read on 2026-11-23).
 * Since 2.28 the share is the generation's, of a rate that links carry both ways.
 */
export const NCCL_NVLS = {
  baseUs: 25,
  efficiency: 0.85,
  shares: [
    { since: "2.18.3", share: 5 / 6 },
    { since: "2.17", share: 0.75 },
  ],
  byGenerationSince: "2.28",
} as const;

/**
 * NCCL's rate of one NVLink, what the link signals one way (25 GB/s, 26.6 since Hopper, 53.1 on Blackwell), and what LL
 * reaches at most, by generation.
 */
export const NCCL_GENERATIONS = {
  volta: { linkGBps: 20, signalGBps: 25, llMaxGBps: 39 },
  ampere: { linkGBps: 20, signalGBps: 25, llMaxGBps: 87.7 },
  ada: { linkGBps: 20, signalGBps: 25, llMaxGBps: 87.7 },
  hopper: { linkGBps: 20.6, signalGBps: 26.562, llMaxGBps: 141 },
  blackwell: { linkGBps: 40.1, signalGBps: 53.125, llMaxGBps: 282 },
} as const;

/** What LL's bus bandwidth is at most over the network: on two nodes, and on more. */
export const NCCL_NETWORK_LL_GBPS = {
  volta: { two: 39, more: 20.4 },
  ampere: { two: 22.5, more: 19 },
  ada: { two: 22.5, more: 19 },
  hopper: { two: 45, more: 35 },
  blackwell: { two: 90, more: 70 },
} as const;
