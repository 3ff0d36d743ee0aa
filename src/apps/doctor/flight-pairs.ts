/**
 * Sends and receives in flight-recorder dumps: ranks number those of each pair by themselves, so that the other end of one
 * is the peer's call of the same number. Of a rank that hangs in one it says whether there is another end, and where.
 */
import type { FlightEntry } from "../../runtime/comm/index.ts";
import { progressOf } from "./flight-entry.ts";

/** How many sends and receives of a rank a group's dump tells at most: one that is not among so many may be older. */
const MAX_NOTED = 64;

/** A rank whose oldest call that is not done is a send or receive. */
export interface StuckPair {
  readonly rank: number;
  readonly entry: FlightEntry;
  /** Rank of the world at the other end. */
  readonly peer: number;
  /** What that one has made of it; `undefined` when its dump has no such call. */
  readonly match: FlightEntry | undefined;
  /** Whether that one has called it; `undefined` when its dump does not tell. */
  readonly called: boolean | undefined;
}

/** @param of what a rank of the world has called in the group, oldest first; `undefined` when it left no dump */
export function stuckPairs(
  members: readonly number[],
  of: (rank: number) => readonly FlightEntry[] | undefined,
): readonly StuckPair[] {
  return members.flatMap((rank, member): StuckPair[] => {
    const entry = of(rank)?.find(({ state }) => state !== "done");
    const peer = entry?.peer === undefined ? undefined : members[entry.peer];
    if (entry === undefined || peer === undefined) return [];
    const op = entry.op === "send" ? "recv" : "send";
    const noted = of(peer)?.filter((other) => other.peer !== undefined);
    const lane = noted?.filter((other) => other.op === op && other.peer === member) ?? [];
    const match = lane.find(({ seq }) => seq === entry.seq);
    return [{ rank, entry, peer, match, called: wasCalled(entry.seq, lane, noted) }];
  });
}

/**
 * Whether call `seq` of a lane was made.
 * @param lane the notes of that lane
 * @param noted the notes of all the rank's sends and receives: the last ones it made
 */
function wasCalled(
  seq: number,
  lane: readonly FlightEntry[],
  noted: readonly FlightEntry[] | undefined,
): boolean | undefined {
  if (lane.some((other) => other.seq >= seq)) return true;
  // It would be newer than an earlier one that is still noted.
  if (lane.length > 0) return false;
  return noted === undefined || noted.length >= MAX_NOTED ? undefined : false;
}

/** Whether a send and its receive do not fit: of other elements, or only one of them in a batch. */
export function isUnfit({ entry, match }: StuckPair): boolean {
  if (match === undefined) return false;
  const differs = (key: "dtype" | "count" | "inBatch") =>
    entry[key] !== undefined && match[key] !== undefined && entry[key] !== match[key];
  return differs("dtype") || differs("count") || differs("inBatch");
}

/** @param lastOf what a rank has called last in the group */
export function pairsInWords(pairs: readonly StuckPair[], lastOf: (rank: number) => string): string {
  return pairs
    .map((pair) => {
      const { rank, entry, peer, match, called } = pair;
      const isSend = entry.op === "send";
      const place = `#${entry.seq} ${isSend ? "to" : "from"} rank ${peer}${entry.inBatch === true ? ", in a batch" : ""}`;
      const did = isSend ? "received" : "sent";
      const last = `rank ${peer} ${lastOf(peer)}`;
      const other =
        match !== undefined && isUnfit(pair)
          ? `does not fit ${match.call} of rank ${peer}, ${match.inBatch === true ? "in a batch" : "outside of a batch"}: rank ${peer} ${progressOf(match)}`
          : match !== undefined
            ? `is not done, though rank ${peer} ${isSend ? "receives" : "has sent"}: rank ${peer} ${progressOf(match)}`
            : called === true
              ? `is not done, though rank ${peer} has ${did} and called others since: ${last}`
              : called === false
                ? `waits for rank ${peer}, which has not ${did}: ${last}`
                : `is not done; whether rank ${peer} has ${did} is not known: ${last}`;
      return `${entry.call} of rank ${rank} (${place}) ${other}; rank ${rank} ${progressOf(entry)}`;
    })
    .join("; ");
}
