export * from "./compose.ts";
export * from "./graph.ts";
export * from "./ids.ts";
export * from "./inventory.ts";
export * from "./pairs.ts";
export * from "./parts.ts";
export { pcieGBps } from "./preset-builder.ts";
export * from "./presets.ts";
export * from "./rings.ts";
