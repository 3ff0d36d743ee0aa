/**
 * How far predictions of a library's time are off: what nine of ten published points keep to, when their post was left out
 * of the fit (bench/results/simulator-accuracy.md, cross-validation by source, 2026-11-22).
 */
import type { TimedOperation } from "./collective-estimate.ts";
import type { CollectiveMachine } from "./collective-machine.ts";

export const SIZE_CLASSES = ["small", "medium", "large"] as const;
export type SizeClass = (typeof SIZE_CLASSES)[number];

/** Below 64 KiB latency decides, above 16 MiB bandwidth. */
export const sizeClassOf = (sizeBytes: number): SizeClass =>
  sizeBytes < 2 ** 16 ? "small" : sizeBytes <= 2 ** 24 ? "medium" : "large";

type BySize = Readonly<Record<SizeClass, number>>;

const NCCL_UNCERTAINTY: Readonly<Record<"node" | "network" | "cloud" | "pcie", BySize>> = {
  node: { small: 0.4, medium: 0.4, large: 0.15 },
  network: { small: 0.5, medium: 0.6, large: 0.25 },
  cloud: { small: 0.6, medium: 0.8, large: 0.35 },
  pcie: { small: 0.5, medium: 0.4, large: 0.25 },
};

export function ncclUncertainty(machine: CollectiveMachine, _op: TimedOperation, sizeBytes: number): number {
  const { fabric, network } = machine;
  const kind =
    fabric.kind !== "fabric"
      ? "pcie"
      : network === undefined
        ? "node"
        : network.kind === "infiniband" || network.kind === "roce"
          ? "network"
          : "cloud";
  return NCCL_UNCERTAINTY[kind][sizeClassOf(sizeBytes)];
}
