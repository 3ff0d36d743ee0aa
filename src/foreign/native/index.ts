export * from "./ffi.ts";
export * from "./library.ts";
