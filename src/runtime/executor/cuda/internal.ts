/**
 * The executor's third door, for backends on GPUs: plans loaded on a device, the shapes of their kernels, and copies in their place.
 * It makes no kernel but through `generateCuda`, which programs find behind ../index.ts.
 * Start with loaded-plan.ts, then untuned-shape.ts and plan-copies.ts.
 */
export { type BufferReach, bufferBytes } from "./buffer-reach.ts";
export { type CubinCache, cubinCache } from "./cubin-cache.ts";
export type { GeneratedKernel } from "./generate.ts";
export { type KernelShape, kernelFor, type LaunchEnds, LoadedPlan } from "./loaded-plan.ts";
export { LocalCopy, type LocalCopyShape } from "./local-copy.ts";
export { LoneEpilogue } from "./lone-epilogue.ts";
export { meetingOf } from "./meeting.ts";
export { PlanCopies, usesPortsAlone } from "./plan-copies.ts";
export { FEWEST_BLOCK_THREADS, untunedShape } from "./untuned-shape.ts";
export { debugTurns } from "./wait-report.ts";
