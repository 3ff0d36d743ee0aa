/** Plans as CUDA kernels: the generator, and what launches are told. */
export { type KernelOp as GeneratedKernelOp, needsOneRounding } from "./elements.ts";
export { type CudaOptions, type GeneratedKernel, generateCuda, PACKET_FORMATS, type PacketFormat } from "./generate.ts";
export { REPORT_WORDS, type StateLayout, type WindowLayout } from "./launch-layout.ts";
export { type LaunchValues, launchWords, packetChunkBytes, type WindowSizes, windowBytes } from "./launch-words.ts";
