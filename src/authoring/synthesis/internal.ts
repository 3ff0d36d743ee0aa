/**
 * Synthesis' second door, for the command line: what it asks before a network is made of an inventory.
 * Refuses to be part of the public surface.
 * Start with requireRanks in problem.ts.
 */
export { defaultRanks } from "./network-of.ts";
export { requireRanks } from "./problem.ts";
