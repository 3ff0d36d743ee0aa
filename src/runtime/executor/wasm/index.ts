export * from "./assembler.ts";
export * from "./copy.ts";
export * from "./kernel-context.ts";
export * from "./reduce-kernels.ts";
export * from "./webassembly.ts";
export { addWiden, WIDEN_BYTES, type WidenExports } from "./widen.ts";
