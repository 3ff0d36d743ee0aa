/** Groups that come from groups: by splitting, and by leaving members out. */
import type { Communicator, GroupOpening } from "../../comm/index.ts";
import { type GroupControl, MAX_GROUPS } from "../../memory/index.ts";
import { type Arrival, JOIN_SEQ, readChoices } from "../../progress/index.ts";
import type { CommunicatorParts, NcclContext } from "./nccl-context.ts";
import type { EntryParts } from "./nccl-entry.ts";
import { splitNatively } from "./open-communicator.ts";

/**
 * With so many groups open or not yet freed, half of what the control segment holds, a split first lets closed ones be
 * freed: that needs a moment in which all their members are idle, which a loop of splits and calls never gives.
 */
const CROWDED_GROUPS = MAX_GROUPS / 2;
/** How long a split lets closed groups be freed: they may still be open on another rank, which comes to no harm. */
const MAKE_ROOM_MS = 2000;
/** How many closed groups a rank had when waiting for them led to nothing: it does not wait for the same ones again. */
const stuck = new WeakMap<NcclContext, number>();

/** Whether a split that has waited for `waitedMs` waits on for closed groups to be freed. */
function makesRoom(rank: NcclContext, waitedMs: number): boolean {
  const { numRetired } = rank.endings;
  const known = Math.min(stuck.get(rank) ?? 0, numRetired);
  stuck.set(rank, known);
  if (numRetired === known || rank.segment.numGroups < CROWDED_GROUPS) return false;
  if (waitedMs < MAKE_ROOM_MS) return true;
  stuck.set(rank, numRetired);
  return false;
}

/**
 * A split as a task of the queue: it waits for every member's choice and for its turn, because NCCL's own blocks.
 * @param finish makes the result of all choices, by member; it opens the group of this rank's color
 */
export function splitting<T>(
  { rank, queue }: CommunicatorParts,
  arrival: Arrival,
  finish: (choices: readonly Uint8Array[]) => T,
): EntryParts {
  let made: T | undefined;
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
    made = finish(choices);
    return true;
  };
  return { op: "split", arrivals: [arrival], reads: true, step, value: () => made };
}

/** Opens a group of members of another: in the turn of its split, or by the survivors of a shrink. */
export function opened(parent: CommunicatorParts, opening: GroupOpening): Communicator | undefined {
  return opening.how === "split" ? openedBySplit(parent, opening) : openedBySurvivors(parent, opening);
}

/** Every rank makes NCCL's split, also one of no color. */
function openedBySplit(parent: CommunicatorParts, opening: GroupOpening): Communicator | undefined {
  const { rank, queue } = parent;
  const { name, members, color, key } = opening;
  const isNative = rank.library.optional.ncclCommSplit !== undefined;
  const given = isNative ? splitNatively(rank, queue, color, key) : undefined;
  queue.firstCalls.endTurn();
  if (members.length === 0) return undefined;
  const ranks = worldRanks(parent, members);
  const control = childControl(parent, opening, `${name}:${color}`);
  if (given === undefined) return rank.join(name, ranks, control);
  control.join(JOIN_SEQ, { call: 0, count: 0, hash: 0 });
  return rank.communicator(name, ranks, control, given);
}

/** The others may be dead: NCCL's own shrink needs a parent that was not aborted, and after a failure it is. */
function openedBySurvivors(parent: CommunicatorParts, opening: GroupOpening): Communicator {
  const { name, members } = opening;
  return parent.rank.join(name, worldRanks(parent, members), childControl(parent, opening, name));
}

/** World ranks of members of a group. */
function worldRanks(parent: CommunicatorParts, members: readonly number[]): number[] {
  return members.map((member) => parent.ranks[member] ?? member);
}

/** @param name tells the groups apart that come from one split */
function childControl(
  parent: CommunicatorParts,
  { name: title, members, nth }: GroupOpening,
  name: string,
): GroupControl {
  const ranks = worldRanks(parent, members);
  const { rank, queue, member } = parent;
  const { key } = queue.options.control;
  return rank.segment.group(`${parent.group}>${name}`, ranks, nth, members.indexOf(member), key, title);
}
