export * from "./detect.ts";
export * from "./machine.ts";
export * from "./resolve.ts";
