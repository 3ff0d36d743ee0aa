import type { Family } from "./inventory.ts";

/** How the ids of a family's devices begin: `gpu0`, `npu0`, `tpu0`, `acc0`. */
export function idPrefix(family: Family): "cpu" | "gpu" | "npu" | "tpu" | "acc" {
  if (family === "cpu" || family === "tpu") return family;
  if (family.endsWith("-gpu") || family === "vulkan") return "gpu";
  return family.endsWith("-npu") || family === "amd-xdna" ? "npu" : "acc";
}
