/**
 * Collectives of Intel Gaudi (HCCL), AWS Trainium and Inferentia (Neuron) and Google TPU (XLA): start + bytes over what the
 * links of a device reach, within one host or slice. Constants are fitted to what the vendors publish
 * (bench/results/simulator-accuracy.md, 2026-11-22), few points each, which the uncertainty says.
 *
 * Refuses what nothing is known of: several hosts, operations of a root, exchanges with a neighbour, and all-to-all where
 * chips forward for one another (a torus), whose links this formula would count as if they were everybody's own.
 */
import { InvalidArgumentError, UnsupportedError } from "../../core/index.ts";
import { type CollectiveEstimate, type TimedOperation, timedBusFactor, transferUs } from "./collective-estimate.ts";
import type { CollectiveMachine } from "./collective-machine.ts";

interface VendorFit {
  readonly library: "HCCL" | "Neuron" | "XLA";
  /** Before its bytes count. */
  readonly baseUs: number;
  /** Each further rank. */
  readonly rankUs: number;
  /** Share of all links of a device. */
  readonly efficiency: number;
  readonly uncertainty: number;
  readonly operations: readonly TimedOperation[];
}

const COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"] as const;

const VENDORS: Readonly<Partial<Record<CollectiveMachine["family"], VendorFit>>> = {
  gaudi: {
    library: "HCCL",
    baseUs: 20,
    rankUs: 0,
    efficiency: 0.975,
    uncertainty: 0.25,
    operations: [...COLLECTIVES, "all_to_all"],
  },
  // Two NeuronCores begin after 58 us, the 32 of sixteen chips after 145 to 150; up to 300 us were seen.
  neuron: { library: "Neuron", baseUs: 47, rankUs: 6.2, efficiency: 0.2, uncertainty: 1, operations: COLLECTIVES },
  tpu: { library: "XLA", baseUs: 2, rankUs: 1, efficiency: 0.82, uncertainty: 0.5, operations: COLLECTIVES },
};

/**
 * Predicts one collective of a vendor's own library.
 * @throws UnsupportedError for a family or a job that nothing is known of
 */
export function vendorPrediction(
  op: TimedOperation,
  sizeBytes: number,
  machine: CollectiveMachine,
): CollectiveEstimate {
  const fit = VENDORS[machine.family];
  if (fit === undefined)
    throw new UnsupportedError(
      `a model of the collective library of ${machine.device}`,
      "modelled are NCCL (NVIDIA), RCCL (AMD Instinct), HCCL (Gaudi), Neuron (Trainium, Inferentia) and XLA (TPU)",
    );
  if (machine.network !== undefined || machine.numNodes > 1)
    throw new UnsupportedError(
      `${fit.library} on ${machine.numNodes} hosts`,
      "it is modelled within one host or slice",
    );
  if (!fit.operations.includes(op))
    throw new UnsupportedError(
      `${op} of ${fit.library} on ${machine.device}`,
      `modelled are ${fit.operations.join(", ")}`,
    );
  const { fabric, numRanks: n } = machine;
  if (fabric.kind !== "fabric" || fabric.deviceGBps <= 0)
    throw new InvalidArgumentError(
      "topology",
      machine.device,
      `devices that ${fit.library} joins by links of known rate`,
    );
  const rate = fabric.deviceGBps * fit.efficiency;
  return {
    timeUs: fit.baseUs + fit.rankUs * n + transferUs(sizeBytes * timedBusFactor(op, n), rate),
    library: fit.library,
    algorithm: op === "all_to_all" ? "p2p" : "ring",
    protocol: "Simple",
    numChannels: Math.max(1, fabric.numLinks),
    uncertainty: fit.uncertainty,
  };
}
