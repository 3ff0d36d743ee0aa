/**
 * Who passes on what in reduces and gathers of many ranks: a tree of fan-in 4, whose members are counted from the root. The root
 * reads log n messages in each call where it would read n, each of them a miss (bench/results/threads-one-meeting-2026-11-28.md).
 */
import { DTYPE_NAMES, type DType, isLegal, REDUCE_OPS } from "../../../core/index.ts";
import { laneRoomBytes } from "./collective-path.ts";
import { kernelOf } from "./move.ts";

const FAN_IN = 4;
/** In smaller groups the tree is hardly less than all. */
export const LEAST_TREE_RANKS = 8;

/** From whom a member hears. */
export function childrenOf(place: number, n: number): number[] {
  const children: number[] = [];
  for (let step = 1; step < n && (place / step) % FAN_IN === 0; step *= FAN_IN) {
    for (let i = 1; i < FAN_IN && place + i * step < n; i++) children.push(place + i * step);
  }
  return children;
}

/** To whom a member that is not the root sends. */
export function parentOf(place: number): number {
  const step = stepOf(place);
  return place - ((place / step) % FAN_IN) * step;
}

/** How many members' parts a member's message holds: its own, and those right behind it. */
export function heldBy(place: number, n: number): number {
  return Math.min(stepOf(place), n - place);
}

function stepOf(place: number): number {
  let step = 1;
  while ((place / step) % FAN_IN === 0) step *= FAN_IN;
  return step;
}

/** Whether the parts that a member passes on fit in one message. */
export function fitsRelays(bytes: number, n: number): boolean {
  let most = 1;
  while (most * FAN_IN < n) most *= FAN_IN;
  return bytes * most <= laneRoomBytes(n);
}

const NARROW: readonly DType[] = ["f16", "bf16", "f8e4m3", "f8e5m2"];
/** Kernels whose results may be inputs again: those of operators that change no input first, on dtypes that they need not round. */
export const RELAYED_KERNELS: ReadonlySet<number> = new Set(
  DTYPE_NAMES.filter((dtype) => !NARROW.includes(dtype)).flatMap((dtype) =>
    REDUCE_OPS.filter((op) => op !== "avg" && isLegal(op, dtype)).map((op) => kernelOf(dtype, op)),
  ),
);
