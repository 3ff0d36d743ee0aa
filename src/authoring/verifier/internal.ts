/**
 * The verifier's second door, for ranks: whether a plan holds together, without the proof of what it does.
 * It loads a small part of the room.
 * Start reading at require-shape.ts.
 */
export { requireShape } from "./require-shape.ts";
