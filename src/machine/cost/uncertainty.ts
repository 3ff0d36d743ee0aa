/**
 * How far predictions of a library's time are off: what nine of ten published points keep to, when their post was left out
 * of the fit (bench/results/simulator-accuracy.md, cross-validation by source, 2026-11-22).
 */
import type { TimedOperation } from "./collective-estimate.ts";
import type { CollectiveMachine } from "./collective-machine.ts";

const SIZE_CLASSES = ["small", "medium", "large"] as const;
export type SizeClass = (typeof SIZE_CLASSES)[number];

/** Below 64 KiB latency decides, above 16 MiB bandwidth. */
export const sizeClassOf = (sizeBytes: number): SizeClass =>
  sizeBytes < 2 ** 16 ? "small" : sizeBytes <= 2 ** 24 ? "medium" : "large";

type BySize = Readonly<Record<SizeClass, number>>;

const NCCL_UNCERTAINTY: Readonly<Record<"node" | "rack" | "network" | "cloud" | "pcie" | "pcieNetwork", BySize>> = {
  node: { small: 0.45, medium: 0.4, large: 0.15 },
  rack: { small: 0.6, medium: 0.6, large: 0.25 },
  network: { small: 0.85, medium: 1, large: 0.35 },
  cloud: { small: 0.8, medium: 1.2, large: 0.45 },
  pcie: { small: 0.9, medium: 0.5, large: 0.25 },
  pcieNetwork: { small: 1, medium: 0.7, large: 0.4 },
};

/** Nobody published these: their ranges are wider. */
const UNSEEN: ReadonlySet<TimedOperation> = new Set(["gather", "scatter", "sendrecv"]);
export const unseenFactor = (op: TimedOperation): number => (UNSEEN.has(op) ? 1.6 : 1);

/** Of NCCL, by what joins the ranks. */
export function ncclUncertainty({ fabric, network, numHosts, numNodes }: CollectiveMachine, sizeBytes: number): number {
  const isNamed = network !== undefined && network.kind !== "infiniband" && network.kind !== "roce";
  const kind =
    network === undefined
      ? fabric.kind === "fabric"
        ? "node"
        : "pcie"
      : fabric.kind !== "fabric" && fabric.pcieGBps > 0
        ? "pcieNetwork"
        : numHosts > numNodes
          ? "rack"
          : isNamed
            ? "cloud"
            : "network";
  return NCCL_UNCERTAINTY[kind][sizeClassOf(sizeBytes)];
}
