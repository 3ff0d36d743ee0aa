export * from "./cpu/index.ts";
export { type ExecutorMemory, REACHES, type Reach, type Transport } from "./transport.ts";
export * from "./wasm/index.ts";
