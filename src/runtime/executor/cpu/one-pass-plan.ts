/**
 * Plans of one pass: every rank moves data that no other rank has made in the same launch, and then all hear of each other.
 * Where the ranks meet before and after every launch anyway, nothing is left of such a plan but the data.
 */
import type { ExecutionPlan, Op, RankPlan } from "../../../authoring/plan/index.ts";
import { proofOf } from "../../../authoring/plan/index.ts";
import { counterOf, leadingSync, pairedCounters } from "./leading-sync.ts";

/** Nothing that a strand which one thread runs has to do. */
const isNothing = (op: Op) => op.kind === "nop" || op.kind === "flush";
const isSync = (op: Op) => op.kind === "signal" || op.kind === "wait";

/** An operation that moves plain data, and does nothing else. */
function isData(op: Op): boolean {
  switch (op.kind) {
    case "copy":
      return op.format === "plain";
    case "get":
      return true;
    case "put":
      return op.format === "plain" && op.notify === "none";
    case "reduce":
      return !op.packets && op.packetDst === undefined;
    default:
      return false;
  }
}

/** Whether a strand moves its data in one go, with nothing but signals and waits before and after: a first look at plans. */
function isOneStretch(ops: readonly Op[]): boolean {
  let [hasMoved, isOver] = [false, false];
  for (const op of ops) {
    if (isNothing(op)) continue;
    if (isSync(op)) isOver = hasMoved;
    else if (isOver || !isData(op)) return false;
    else hasMoved = true;
  }
  return true;
}

/**
 * By rank and strand, which operations of a plan of one pass are its data: the first, and the one behind the last.
 * @returns undefined for other plans, and for those that nobody has proved
 */
export function onePassOps(plan: ExecutionPlan): readonly (readonly (readonly [number, number])[])[] | undefined {
  if (proofOf(plan)?.ok !== true || plan.ranks.some(({ strands }) => strands.length > 1)) return undefined;
  if (!plan.ranks.every(({ strands }) => strands.every(({ ops }) => isOneStretch(ops)))) return undefined;
  const leading = leadingSync(plan);
  const raised = new Map<string, number>();
  const found = plan.ranks.map((rank, r) =>
    rank.strands.map(({ ops }, s) => {
      const from = leading[r]?.[s] ?? 0;
      let to = from;
      while (to < ops.length && (isNothing(ops[to] as Op) || isData(ops[to] as Op))) to++;
      return ops.slice(to).every((op) => count(plan, rank, op, raised)) ? ([from, to] as const) : undefined;
    }),
  );
  // What is raised and not waited for would be there at the next launch.
  if ([...raised.values()].some((times) => times !== 0)) return undefined;
  return found.every((rank) => rank.every((range) => range !== undefined)) ? found : undefined;
}

/** Counts what an operation raises and waits for. @returns false for one that does something else */
function count(plan: ExecutionPlan, rank: RankPlan, op: Op, raised: Map<string, number>): boolean {
  if (isNothing(op)) return true;
  if (op.kind !== "signal" && op.kind !== "wait") return false;
  const refs =
    op.kind === "signal"
      ? pairedCounters(plan, rank, op.channelKind, op.channels)
      : op.channels.map((id) => ({ rank: rank.rank, counter: counterOf(rank, op.channelKind, id) }));
  for (const ref of refs) {
    const key = `${ref.rank} ${ref.counter}`;
    raised.set(key, (raised.get(key) ?? 0) + (op.kind === "signal" ? 1 : -1));
  }
  return true;
}
