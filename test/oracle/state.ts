/** What a run of the oracle has in progress: strands, their elements, requests to proxies. */
import type { PlanReduceOp } from "../../src/authoring/plan/execution-plan.ts";
import type { Counter } from "./counters.ts";
import type { Agent, View } from "./memory.ts";

/** What an operation does at one position. */
export interface Work {
  readonly position: number;
  readonly reads: readonly { readonly place: number; readonly packet: number }[];
  readonly op: PlanReduceOp | undefined;
  readonly writes: readonly { readonly place: number; readonly packet: number }[];
}
/** What one position of an operation has still to do. */
export interface Element {
  readonly work: Work;
  readonly seq: number;
  readonly held: boolean;
}
/** What a strand has asked its rank's proxy to do. */
export interface Request {
  readonly strand: StrandRun;
  readonly seq: number;
  readonly view: View;
  /** Pairs of places to copy, or a counter to raise. */
  readonly copies: readonly { readonly from: number; readonly to: number }[];
  readonly mode: "plain" | "raw" | "forward";
  readonly tag: number;
  readonly raise: Counter | undefined;
  readonly releases: boolean;
  readonly held: boolean;
}
/** A strand: where it stands, and the elements it has not performed, by position. */
export interface StrandRun {
  readonly index: number;
  readonly rank: number;
  readonly strand: number;
  readonly agent: Agent;
  launch: number;
  /** Done with this launch, and waiting for the rank's other strands to be. */
  parked: boolean;
  op: number;
  body: number;
  iteration: number;
  seq: number;
  ended: boolean;
  inBarrier: boolean;
  forwarding: boolean;
  readonly queues: Map<number, Element[]>;
  pending: number;
  outstanding: number;
}
