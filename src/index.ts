/**
 * chorale: the device-mesh and collective-communication stack for TypeScript. What most programs need; each room has
 * its own entry point (`chorale/mesh`, `chorale/hardware`, `chorale/planner`, ...) with everything it offers.
 */
export * from "./core/index.ts";
export * from "./mesh/internal.ts";
export * from "./runtime/comm/index.ts";
export * from "./runtime/world/index.ts";
