/**
 * How a rank comes into its world's segment: it takes its place, which nobody else may hold, and gets the group of all
 * ranks and its joint turns.
 */
import { threadId } from "node:worker_threads";
import { InvalidArgumentError } from "../../core/index.ts";
import type { GroupControl } from "./group-control.ts";
import type { JointTurn } from "./joint-turn.ts";
import type { OpenControl } from "./mapped-segment.ts";

export interface EnteredControl extends OpenControl {
  /** The group of all ranks. */
  readonly world: GroupControl;
  readonly jointTurn: JointTurn;
  /** Gives the place back and closes the segment, where the rank could not attach after all. */
  withdraw(): void;
}

/**
 * Takes the place of `rank` for this thread. Where it cannot, the segment is closed.
 * @param all every rank of the world
 * @param remote those of other hosts
 * @throws InvalidArgumentError saying who stands in the way; OutOfMemoryError when too many groups are open
 */
export function enterControl(
  control: OpenControl,
  rank: number,
  all: readonly number[],
  remote: readonly number[] = [],
): EnteredControl {
  const { segment, close } = control;
  const inTheWay = segment.presence.enter(rank, process.pid, threadId);
  if (inTheWay !== undefined) {
    close();
    const ofItsOwn = `a rank with a thread or process of its own: this thread is rank ${inTheWay} of that world, and an engine's calls block it until other ranks make theirs`;
    throw new InvalidArgumentError("rank", rank, inTheWay === rank ? "a rank that is not attached yet" : ofItsOwn);
  }
  const withdraw = () => {
    segment.presence.withdraw(rank);
    close();
  };
  try {
    if (remote.length > 0) segment.tellHosts(rank, new Set(remote));
    const world = segment.group("world", all, 0, rank);
    return { segment, close, world, jointTurn: segment.jointTurn(rank), withdraw };
  } catch (error) {
    withdraw();
    throw error;
  }
}
