export * from "./checks.ts";
export * from "./engines.ts";
export * from "./flight.ts";
