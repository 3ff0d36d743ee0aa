/** Groups that come from groups: by splitting, and by leaving members out. */
import { AbortedError } from "../../../core/index.ts";
import { COLLECTIVE, type GroupControl, MAX_GROUPS } from "../../memory/index.ts";
import type { Arrival } from "../../progress/index.ts";
import type { NcclCommunicator } from "./communicator.ts";
import type { EntryParts } from "./nccl-entry.ts";
import type { NcclRank } from "./nccl-rank.ts";
import { membersOf, openWithUniqueId, readChoices, splitNatively } from "./open-communicator.ts";

/**
 * With so many groups open or not yet freed, half of what the control segment holds, a split first lets closed ones be
 * freed: that needs a moment in which all their members are idle, which a loop of splits and calls never gives.
 */
const CROWDED_GROUPS = MAX_GROUPS / 2;
/** How long a split lets closed groups be freed: they may still be open on another rank, which comes to no harm. */
const MAKE_ROOM_MS = 2000;
/** How many closed groups a rank had when waiting for them led to nothing: it does not wait for the same ones again. */
const stuck = new WeakMap<NcclRank, number>();

/** Whether a split that has waited for `waitedMs` waits on for closed groups to be freed. */
function makesRoom(rank: NcclRank, waitedMs: number): boolean {
  const { numRetired } = rank.endings;
  const known = Math.min(stuck.get(rank) ?? 0, numRetired);
  stuck.set(rank, known);
  if (numRetired === known || rank.segment.numGroups < CROWDED_GROUPS) return false;
  if (waitedMs < MAKE_ROOM_MS) return true;
  stuck.set(rank, numRetired);
  return false;
}

/** World ranks of members of a group. */
function worldRanks(parent: NcclCommunicator, members: readonly number[]): number[] {
  return members.map((member) => parent.ranks[member] ?? member);
}

function childControl(
  parent: NcclCommunicator,
  name: string,
  members: readonly number[],
  instance: number,
): GroupControl {
  const ranks = worldRanks(parent, members);
  const { rank, queue } = parent.parts;
  const { key } = queue.options.control;
  return rank.segment.group(`${parent.group}>${name}`, ranks, instance, members.indexOf(parent.rank), key);
}

export interface SplitCall {
  readonly color: number;
  readonly key: number;
  readonly name: string;
  readonly instance: number;
  readonly arrival: Arrival;
}

/** A split as a task of the queue: it waits for every member's choice and for its turn, because NCCL's own blocks. */
export function splitting(parent: NcclCommunicator, call: SplitCall): EntryParts {
  const { rank, queue } = parent.parts;
  const { color, key, name, instance, arrival } = call;
  let made: NcclCommunicator | undefined;
  let since: number | undefined;
  const step = (): boolean => {
    const now = performance.now();
    since ??= now;
    if (makesRoom(rank, now - since)) {
      rank.poller.hurry();
      return false;
    }
    const choices = readChoices(queue.options.control, arrival.seq);
    if (choices === undefined || !queue.firstCalls.turn(arrival.seq)) return false;
    const native = rank.library.optional.ncclCommSplit !== undefined;
    const given = native ? splitNatively(rank, queue, color, key) : undefined;
    queue.firstCalls.endTurn();
    if (color < 0) return true;
    const members = membersOf(choices, color);
    const control = childControl(parent, `${name}:${color}`, members, instance);
    const ranks = worldRanks(parent, members);
    const opening = given ?? openWithUniqueId(rank, control, ranks);
    if (given !== undefined) control.publish(COLLECTIVE, 0, { call: 0, count: 0, hash: 0 });
    made = rank.communicator(name, ranks, control, opening);
    return true;
  };
  return { op: "split", arrivals: [arrival], reads: true, step, value: () => made };
}

/** How often each group was shrunk, by the new group's name. */
const numShrinks = new WeakMap<NcclCommunicator, Map<string, number>>();

/** Makes the group of the survivors, and ends the group that it comes from. */
export function shrunk(parent: NcclCommunicator, excluded: readonly number[]): NcclCommunicator {
  const { rank, queue } = parent.parts;
  const members = parent.ranks.flatMap((_, r) => (excluded.includes(r) ? [] : [r]));
  const name = `${parent.group}/without-${[...excluded].sort((a, b) => a - b).join("-")}`;
  const before = numShrinks.get(parent) ?? new Map<string, number>();
  numShrinks.set(parent, before);
  const instance = before.get(name) ?? 0;
  before.set(name, instance + 1);
  const control = childControl(parent, name, members, instance);
  const ranks = worldRanks(parent, members);
  const child = rank.communicator(name, ranks, control, openWithUniqueId(rank, control, ranks));
  if (queue.cause === undefined) queue.fail(new AbortedError(`the group was shrunk to ${name}`));
  return child;
}
