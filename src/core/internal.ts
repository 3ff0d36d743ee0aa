/**
 * The core's second door, for rooms of chorale alone: structures that are no part of the public surface.
 * Start with number-heap.ts.
 */
export { assignments } from "./assignments.ts";
export { described, HOST_HAS_COME, tensorInUse } from "./errors.ts";
export { NumberHeap } from "./number-heap.ts";
export { oneOf } from "./one-of.ts";
export { joinClocks, Listener, stepsKnown, type VectorClock, withSteps } from "./vector-clock.ts";
