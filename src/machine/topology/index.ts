export * from "./inventory.ts";
