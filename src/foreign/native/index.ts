export { exitNow } from "./exit.ts";
export { type Koffi, koffi } from "./koffi.ts";
export * from "./library.ts";
export * from "./memory.ts";
export * from "./prototypes.ts";
