/**
 * Sends and receives in flight-recorder dumps: ranks number those of each pair by themselves, so that the other end of one
 * is the peer's call of the same number. Of a rank that hangs in one it says whether there is another end, and where.
 */
import { type FlightEntry, progressOf } from "./flight-entry.ts";

/** A rank whose oldest call that is not done is a send or receive. */
export interface StuckPair {
  readonly rank: number;
  readonly entry: FlightEntry;
  /** Rank of the world at the other end. */
  readonly peer: number;
  /** What that one has made of it; `undefined` when it has not called it. */
  readonly match: FlightEntry | undefined;
}

/** @param of what a rank of the world has called in the group, oldest first */
export function stuckPairs(
  members: readonly number[],
  of: (rank: number) => readonly FlightEntry[],
): readonly StuckPair[] {
  return members.flatMap((rank, member): StuckPair[] => {
    const entry = of(rank).find(({ state }) => state !== "done");
    const peer = entry?.peer === undefined ? undefined : members[entry.peer];
    if (entry === undefined || peer === undefined) return [];
    const op = entry.op === "send" ? "recv" : "send";
    const match = of(peer).find((other) => other.op === op && other.peer === member && other.seq === entry.seq);
    return [{ rank, entry, peer, match }];
  });
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
      const { rank, entry, peer, match } = pair;
      const isSend = entry.op === "send";
      const place = `#${entry.seq} ${isSend ? "to" : "from"} rank ${peer}${entry.inBatch === true ? ", in a batch" : ""}`;
      const other =
        match !== undefined && isUnfit(pair)
          ? `does not fit ${match.call} of rank ${peer}, ${match.inBatch === true ? "in a batch" : "outside of a batch"}: rank ${peer} ${progressOf(match)}`
          : match === undefined
            ? `waits for rank ${peer}, which has not ${isSend ? "received" : "sent"}: rank ${peer} ${lastOf(peer)}`
            : `is not done, though rank ${peer} ${isSend ? "receives" : "has sent"}: rank ${peer} ${progressOf(match)}`;
      return `${entry.call} of rank ${rank} (${place}) ${other}; rank ${rank} ${progressOf(entry)}`;
    })
    .join("; ");
}
