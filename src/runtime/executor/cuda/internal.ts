/**
 * The executor's third door, for backends on GPUs: plans loaded on a device, the shapes of their kernels, and copies in their place.
 * It makes no kernel but through `generateCuda`, which programs find behind ../index.ts.
 * Start with loaded-plan.ts, then untuned-shape.ts and plan-copies.ts.
 */
export { type BufferReach, bufferBytes } from "./buffer-reach.ts";
export { type CubinCache, cubinCache, cubinLimitBytes } from "./cubin-cache.ts";
export { elementSource, F8_CONVERSIONS } from "./elements.ts";
export { foldsSizes } from "./folded-kernels.ts";
export { type GeneratedKernel, KERNEL_ENTRY } from "./generate.ts";
export { isLoaded, releaseModule, useModule } from "./kernel-modules.ts";
export { type KernelShape, kernelFor, type LaunchEnds, LoadedPlan } from "./loaded-plan.ts";
export { LocalCopy, type LocalCopyShape } from "./local-copy.ts";
export { LoneEpilogue } from "./lone-epilogue.ts";
export { meetingOf } from "./meeting.ts";
export { PlanCopies, usesPortsAlone } from "./plan-copies.ts";
export { PRIMITIVES } from "./ptx-primitives.ts";
export { FEWEST_BLOCK_THREADS, untunedShape } from "./untuned-shape.ts";
export { debugTurns } from "./wait-report.ts";
