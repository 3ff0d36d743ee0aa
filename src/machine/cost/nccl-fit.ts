/**
 * What NCCL reaches beside what it assumes (nccl-constants.ts): efficiencies of links, latencies of networks, what launching
 * costs. Fitted by `bench/simulator-accuracy/fit.mjs` to published curves and to chorale's own measurements on H200
 * (2026-11-20), by class of machine and never by curve; how well it predicts posts that it was not fitted to is in
 * bench/results/simulator-accuracy.md. Microseconds, GB/s of 1e9 bytes.
 */
import type { NvidiaGeneration } from "./collective-machine.ts";
import type { NetworkKind } from "./network-kinds.ts";

/** When the constants below were fitted, and to what. */
export const NCCL_FIT_SOURCE = "62 published curves of 2019 to 2026 and 4x H200, fitted 2026-11-22";

export interface GenerationFit {
  /** Share of NCCL's own rate of the links that a ring's bus bandwidth reaches at large sizes. */
  readonly ringEfficiency: number;
  /** The same for point-to-point exchanges with all ranks of the node. */
  readonly exchangeEfficiency: number;
  /** Bus bandwidth of LL within a node. */
  readonly llGBps: number;
  /** Algorithm bandwidth of in-switch reduction by eight or more devices; absent where switches do not reduce. */
  readonly nvlsGBps?: number;
  /** What one process spends on the launch of each of its devices, where it has several. */
  readonly launchPerDeviceUs: number;
  /** Factor on NCCL's start and hops within a node, for a job of one node and of several. */
  readonly latencyFactor: number;
  readonly networkLatencyFactor: number;
}

export interface NetworkFit {
  /** What a hop takes beyond NCCL's own figure for InfiniBand. */
  readonly extraHopUs: number;
  /** Share of the NICs' rate that large messages reach, and that point-to-point exchanges reach. */
  readonly efficiency: number;
  readonly exchangeEfficiency: number;
  /** Filling the pipeline of a tree over it, most of it by `treeFillBytes`. */
  readonly treeFillUs: number;
  /** What registering and announcing a long message takes, beside its transfer; most of it from `bytes` on. */
  readonly rendezvous?: { readonly us: number; readonly bytes: number };
  /** Only the Simple protocol: the network may write out of order (EFA before 2023), or NCCL's plugin says so. */
  readonly simpleOnly?: true;
}

export interface NcclFit {
  readonly generations: Readonly<Record<NvidiaGeneration, GenerationFit>>;
  readonly networks: Readonly<Record<NetworkKind, NetworkFit>>;
  /** EFA by generation of the instances that have it: p3dn, p4d, p5, p6. */
  readonly efa: Readonly<Partial<Record<NvidiaGeneration, NetworkFit>>>;
  /** Share of PCIe's rate: on one socket, across two, and through host memory. */
  readonly pcie: { readonly socket: number; readonly sockets: number; readonly shm: number; readonly llShare: number };
  /** GPUs on PCIe alone send through the host: what is left of the NICs' rate, and their share of PCIe's at most. */
  readonly hostStaging: { readonly networkShare: number; readonly pcieShare: number };
  /** Share of the NICs' rate that is LL's bus bandwidth, and LL128's. */
  readonly networkLLShare: number;
  readonly networkLL128Share: number;
  /** A tree's rate beside a ring's. */
  readonly treeEfficiency: number;
  /** In-switch reduction: start, and filling its pipeline, most of it by `fillBytes`. */
  readonly nvls: { readonly baseUs: number; readonly fillUs: number; readonly fillBytes: number };
  /** The same across nodes: NVLSTree's share of one node's rate; its pipeline takes the tree's and this much longer. */
  readonly nvlsTree: { readonly efficiency: number; readonly fillUs: number; readonly fillBytes: number };
  /** Filling a ring of Simple over the network. */
  readonly networkFill: { readonly us: number; readonly bytes: number };
  readonly treeFillBytes: number;
  /** One process: what each further channel costs a launch, and the bytes that call for one more channel. */
  readonly channelLaunchUs: number;
  readonly bytesPerChannel: number;
  /** Waiting for every call on the host. */
  readonly blockingUs: number;
  /** Point to point: start and what each peer adds, within a node and over the network; what racks of NVLink reach among each other. */
  readonly exchange: {
    readonly baseUs: number;
    readonly peerUs: number;
    readonly networkPeerUs: number;
    readonly rackShare: number;
  };
}

export const NCCL_FIT: NcclFit = {
  generations: {
    volta: {
      ringEfficiency: 1.1,
      exchangeEfficiency: 0.8,
      llGBps: 39,
      launchPerDeviceUs: 4,
      latencyFactor: 1,
      networkLatencyFactor: 1.03,
    },
    ampere: {
      ringEfficiency: 0.965,
      exchangeEfficiency: 0.81,
      llGBps: 87.7,
      launchPerDeviceUs: 2.7,
      latencyFactor: 0.95,
      networkLatencyFactor: 1,
    },
    ada: {
      ringEfficiency: 1,
      exchangeEfficiency: 0.9,
      llGBps: 87.7,
      launchPerDeviceUs: 2.5,
      latencyFactor: 1,
      networkLatencyFactor: 0.9,
    },
    hopper: {
      ringEfficiency: 0.965,
      exchangeEfficiency: 0.78,
      llGBps: 170,
      nvlsGBps: 278,
      launchPerDeviceUs: 2.5,
      latencyFactor: 1.06,
      networkLatencyFactor: 1.17,
    },
    blackwell: {
      ringEfficiency: 0.94,
      exchangeEfficiency: 0.9,
      llGBps: 282,
      nvlsGBps: 468,
      launchPerDeviceUs: 2.5,
      latencyFactor: 0.82,
      networkLatencyFactor: 1.4,
    },
  },
  networks: {
    infiniband: { extraHopUs: 1, efficiency: 0.97, exchangeEfficiency: 0.8, treeFillUs: 90 },
    roce: { extraHopUs: 1, efficiency: 0.96, exchangeEfficiency: 0.8, treeFillUs: 90 },
    ethernet: { extraHopUs: 10, efficiency: 0.72, exchangeEfficiency: 0.6, treeFillUs: 90 },
    efa: { extraHopUs: 24, efficiency: 0.97, exchangeEfficiency: 0.7, treeFillUs: 265 },
    tcpx: { extraHopUs: 305, efficiency: 0.51, exchangeEfficiency: 0.4, treeFillUs: 250 },
    tcpxo: { extraHopUs: 35, efficiency: 0.95, exchangeEfficiency: 0.7, treeFillUs: 150 },
    gib: { extraHopUs: 10, efficiency: 0.91, exchangeEfficiency: 0.7, treeFillUs: 250 },
    slingshot: {
      extraHopUs: 6,
      efficiency: 0.92,
      exchangeEfficiency: 0.7,
      treeFillUs: 90,
      rendezvous: { us: 320, bytes: 128e3 },
    },
  },
  efa: {
    volta: { extraHopUs: 2, efficiency: 0.72, exchangeEfficiency: 0.5, treeFillUs: 90, simpleOnly: true },
    ampere: { extraHopUs: 42, efficiency: 0.85, exchangeEfficiency: 0.6, treeFillUs: 90, simpleOnly: true },
    blackwell: { extraHopUs: 60, efficiency: 0.97, exchangeEfficiency: 0.7, treeFillUs: 265 },
  },
  pcie: { socket: 0.8, sockets: 0.654, shm: 0.46, llShare: 0.3 },
  hostStaging: { networkShare: 0.765, pcieShare: 0.625 },
  networkLLShare: 0.31,
  networkLL128Share: 0.93,
  treeEfficiency: 1.07,
  nvls: { baseUs: 28, fillUs: 73, fillBytes: 16.5e6 },
  nvlsTree: { efficiency: 0.88, fillUs: 120, fillBytes: 24e6 },
  networkFill: { us: 60, bytes: 24e6 },
  treeFillBytes: 3.8e6,
  channelLaunchUs: 0.155,
  bytesPerChannel: 43e3,
  blockingUs: 30,
  exchange: { baseUs: 6, peerUs: 0.3, networkPeerUs: 1.5, rackShare: 0.3 },
};
