export * from "./brands.ts";
export * from "./dtype.ts";
export * from "./errors.ts";
export * from "./float-formats.ts";
export * from "./plain-text.ts";
export * from "./reduce-op.ts";
export * from "./tensor.ts";
export * from "./units.ts";
export { wordTable } from "./word-table.ts";
