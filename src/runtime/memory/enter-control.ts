/**
 * How a rank comes into its world's segment: it opens it, takes its place, which nobody else may hold, and gets the group
 * of all ranks and its joint turns.
 */
import { threadId } from "node:worker_threads";
import { InvalidArgumentError } from "../../core/index.ts";
import { ControlSegment } from "./control-segment.ts";
import type { GroupControl } from "./group-control.ts";
import type { JointTurn } from "./joint-turn.ts";
import { type MappedControl, type OpenControl, openMappedControl } from "./mapped-segment.ts";
import { ResourceLedger } from "./resource-ledger.ts";

/** What the ranks of a host share, as its maker handed it over. */
interface SharedControl {
  readonly ranks: number;
  readonly generation: number;
  /** A SharedArrayBuffer among threads, mapped memory among processes. */
  readonly control: SharedArrayBuffer | MappedControl;
  /** Among threads: where each rank writes down what it holds. */
  readonly ledger?: SharedArrayBuffer;
}

export interface EnteredControl extends OpenControl {
  /** The group of all ranks. */
  readonly world: GroupControl;
  readonly jointTurn: JointTurn;
  readonly ledger: ResourceLedger | undefined;
  /** Gives the place back and closes the segment, where the rank could not attach after all. */
  withdraw(): void;
}

/** Opens the control segment as one rank. @param numHere ranks of this host @throws FormatError when the file is not what the handle says */
export function openControl({ control, ...world }: SharedControl, numHere = world.ranks): OpenControl {
  if (!(control instanceof SharedArrayBuffer)) return openMappedControl(control, world, { attach: true, numHere });
  return { segment: new ControlSegment(control, world.ranks), close: () => {} };
}

/**
 * Opens the segment and takes the place of `rank` for this thread. Where it cannot, the segment is closed.
 * @param all every rank of the world
 * @param remote those of other hosts, which are told in this segment what the rank does
 * @param numHere ranks that open this segment
 * @throws InvalidArgumentError saying who stands in the way; OutOfMemoryError when too many groups are open; as `openControl`
 */
export function enterControl(
  shared: SharedControl,
  rank: number,
  all: readonly number[],
  remote: readonly number[] = [],
  numHere: number = all.length - remote.length,
): EnteredControl {
  const { segment, close } = openControl(shared, numHere);
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
    const ledger = shared.ledger === undefined ? undefined : new ResourceLedger(shared.ledger, rank);
    return { segment, close, world, jointTurn: segment.jointTurn(rank), ledger, withdraw };
  } catch (error) {
    withdraw();
    throw error;
  }
}
