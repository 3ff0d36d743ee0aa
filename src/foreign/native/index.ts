export { endWithParent, exitNow } from "./exit.ts";
export { emptyViews, viewMemory } from "./foreign-memory.ts";
export { type Koffi, koffi } from "./koffi.ts";
export * from "./library.ts";
export { mapShared, type SharedMapping } from "./mapping.ts";
export * from "./memory.ts";
export * from "./prototypes.ts";
