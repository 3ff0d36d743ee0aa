/** Functions for graphs of kernels whose arguments change (CUDA 12.0). */
import { bindAll, type StatusFunction } from "../native/index.ts";
import type { CudaDriver } from "./driver.ts";

const PROTOTYPES = {
  cuGraphCreate: "int cuGraphCreate(void *graph, uint32_t flags)",
  cuGraphAddKernelNode_v2:
    "int cuGraphAddKernelNode_v2(void *node, uint64_t graph, uint64_t dependencies, size_t count, void *params)",
  cuGraphExecKernelNodeSetParams_v2:
    "int cuGraphExecKernelNodeSetParams_v2(uint64_t exec, uint64_t node, uint64_t params)",
} as const;
export type KernelNodes = Readonly<Record<keyof typeof PROTOTYPES, StatusFunction>>;

const bound = new WeakMap<CudaDriver, KernelNodes | null>();

/** @returns undefined where the driver has none */
export function kernelNodesOf(driver: CudaDriver): KernelNodes | undefined {
  let nodes = bound.get(driver);
  if (nodes === undefined) {
    const { library } = driver;
    nodes = library.has("cuGraphExecKernelNodeSetParams_v2") ? bindAll(library, PROTOTYPES) : null;
    bound.set(driver, nodes);
  }
  return nodes ?? undefined;
}
