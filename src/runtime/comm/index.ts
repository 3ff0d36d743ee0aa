export * from "./batch.ts";
export * from "./call.ts";
export * from "./contract.ts";
export * from "./failure.ts";
export * from "./flight.ts";
export * from "./stats.ts";
export * from "./wire.ts";
export * from "./work.ts";
