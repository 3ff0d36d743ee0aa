export * from "./conditions.ts";
export * from "./operations.ts";
export * from "./reference.ts";
export * from "./rules.ts";
export * from "./segments.ts";
export { encodeSmallFloat, isSmallFloat, type SmallFloat, smallFloatTables } from "./small-floats.ts";
