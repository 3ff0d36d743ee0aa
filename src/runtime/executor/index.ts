export * from "./wasm/index.ts";
