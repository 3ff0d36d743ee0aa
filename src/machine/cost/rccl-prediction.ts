/**
 * How long a collective of RCCL takes on AMD's Instinct accelerators. Its rings run over disjoint Hamiltonian cycles of the
 * xGMI links (seven links of an eight-device mesh), so the bus bandwidth is a share of all links of a device; between
 * hosts every device has a NIC and the rings take them all. Constants are fitted to published rccl-tests
 * (bench/results/simulator-accuracy.md, 2026-11-22): MI300X 316 and MI355X 407 GB/s of bus bandwidth on eight devices,
 * 13.7 us to begin; MI250X is known by one all-to-all alone, which its uncertainty says.
 */
import { InvalidArgumentError, wordTable } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import {
  type CollectiveEstimate,
  type EstimateOptions,
  ranksPerNode,
  type TimedOperation,
  timedBusFactor,
  transferUs,
} from "./collective-estimate.ts";
import type { CollectiveMachine } from "./collective-machine.ts";
import type { NcclProtocol } from "./nccl-constants.ts";
import { sizeClassOf, unseenFactor } from "./uncertainty.ts";

interface RcclGeneration {
  /** Share of a device's xGMI links that rings and exchanges reach. */
  readonly ringEfficiency: number;
  readonly exchangeEfficiency: number;
  /** Share of the NICs' rate. */
  readonly networkEfficiency: number;
  readonly networkExchangeEfficiency: number;
  /** On one node, and over the network: what a collective takes before its bytes count. */
  readonly baseUs: number;
  readonly networkBaseUs: number;
  /** Each further node of a ring. */
  readonly networkNodeUs: number;
  /** Leaving LL: the pipeline of Simple, most of it filled by `fillBytes`. */
  readonly fillUs: number;
  readonly fillBytes: number;
  readonly networkFillUs: number;
  /** Bus bandwidth of LL and LL128, as a share of Simple's. */
  readonly llShare: number;
  readonly numPosts: number;
}

const CDNA3: RcclGeneration = {
  ringEfficiency: 0.705,
  exchangeEfficiency: 0.67,
  networkEfficiency: 0.89,
  networkExchangeEfficiency: 0.6,
  baseUs: 13.7,
  networkBaseUs: 220,
  networkNodeUs: 20,
  fillUs: 45,
  fillBytes: 4e6,
  networkFillUs: 170,
  llShare: 0.45,
  numPosts: 4,
};

/** By gfx architecture. */
const RCCL_GENERATIONS: Readonly<Record<string, RcclGeneration>> = wordTable({
  gfx942: CDNA3,
  gfx950: { ...CDNA3, ringEfficiency: 0.757, numPosts: 1 },
  gfx90a: {
    ...CDNA3,
    ringEfficiency: 0.6,
    exchangeEfficiency: 0.5,
    networkEfficiency: 0.8,
    networkExchangeEfficiency: 0.34,
    networkBaseUs: 90,
    numPosts: 1,
  },
});

export const isRcclKnown = (arch: string): boolean => Object.hasOwn(RCCL_GENERATIONS, arch);

/** Microseconds and protocol of the faster of LL (short, half the rate) and Simple, or of the one that is asked for. */
function fastest(
  startUs: number,
  fillUs: number,
  fillBytes: number,
  moveUs: number,
  llShare: number,
  bytes: number,
  asked: NcclProtocol | undefined,
) {
  const ll = startUs + moveUs / llShare;
  const simple = startUs + (fillUs * bytes) / (bytes + fillBytes) + moveUs;
  const protocol = asked ?? (ll <= simple ? "LL" : "Simple");
  return { timeUs: protocol === "LL" ? ll : simple, protocol };
}

/**
 * Predicts one collective of RCCL.
 * @throws InvalidArgumentError for an architecture whose RCCL was not seen
 */
export function rcclPrediction(
  op: TimedOperation,
  sizeBytes: number,
  machine: CollectiveMachine,
  options: EstimateOptions = {},
): CollectiveEstimate {
  const fit = RCCL_GENERATIONS[machine.arch];
  if (fit === undefined)
    throw new InvalidArgumentError(
      "device",
      described(`${machine.device} (${machine.arch})`),
      `an AMD device whose RCCL is known: ${Object.keys(RCCL_GENERATIONS).join(", ")}`,
    );
  const { numRanks: n, numNodes, fabric, network } = machine;
  const g = ranksPerNode(machine);
  if (options.protocol === "LL128")
    throw new InvalidArgumentError("protocol", "LL128", "LL or Simple: RCCL's model knows no LL128");
  const exchange = op === "all_to_all" || op === "gather" || op === "scatter" || op === "sendrecv";
  const algorithm = exchange ? "p2p" : "ring";
  if (options.algorithm !== undefined && options.algorithm !== algorithm)
    throw new InvalidArgumentError("algorithm", options.algorithm, `${algorithm}, what RCCL's model has for ${op}`);
  const links = fabric.kind === "fabric" && fabric.deviceGBps > 0 ? fabric.deviceGBps : fabric.pcieGBps * 0.8;
  const across = numNodes > 1 && network !== undefined;
  // Between nodes a ring is a chain within each: the link that would close it is free for another chain.
  const chain = across ? g / Math.max(1, g - 1) : 1;
  const inside = links * (exchange ? fit.exchangeEfficiency : fit.ringEfficiency * chain);
  const outside = across
    ? network.nodeGBps * (exchange ? fit.networkExchangeEfficiency : fit.networkEfficiency)
    : Number.POSITIVE_INFINITY;
  // A neighbour is one link away; between nodes a root or a neighbour has its own NICs alone.
  const pair = fabric.kind === "fabric" ? fabric.pairGBps * fit.exchangeEfficiency : inside;
  const ownNics = outside / Math.min(g, network?.numNics ?? 1);
  const isRooted = op === "gather" || op === "scatter";
  const moveUs = exchange
    ? op === "sendrecv"
      ? Math.max(g > 1 ? transferUs(sizeBytes, pair) : 0, transferUs(sizeBytes, ownNics))
      : Math.max(
          transferUs((sizeBytes * (g - 1)) / n, inside),
          isRooted
            ? transferUs((sizeBytes * (n - g)) / n, ownNics)
            : transferUs((g * sizeBytes * (n - g)) / n, outside),
        )
    : transferUs(sizeBytes * timedBusFactor(op, n), Math.min(inside, outside));
  const startUs = across ? fit.networkBaseUs + (numNodes - 2) * fit.networkNodeUs : fit.baseUs;
  const fillUs = across ? fit.networkFillUs : fit.fillUs;
  const best = fastest(startUs, fillUs, fit.fillBytes, moveUs, fit.llShare, sizeBytes, options.protocol);
  return {
    timeUs: best.timeUs + (options.blocking === true ? 28 : 0),
    library: "RCCL",
    algorithm,
    protocol: best.protocol,
    numChannels: fabric.kind === "fabric" ? Math.max(1, 4 * fabric.numLinks) : 4,
    uncertainty:
      unseenFactor(op) *
      (fit.numPosts > 2 ? 1 : 1.6) *
      { small: 0.5, medium: 0.5, large: across ? 0.2 : 0.15 }[sizeClassOf(sizeBytes)],
  };
}
