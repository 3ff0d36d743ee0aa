/** How two members' calls differ, in words: for backends on call-queue.ts, and tcp. The calls themselves are told by describeWords of comm/. */
import { MismatchError } from "../../core/index.ts";
import { describeWords, unpackCall } from "../comm/index.ts";

/** The three words of a fingerprint (comm/call-fingerprint.ts). */
interface PrintWords {
  readonly call: number;
  readonly count: number;
  readonly hash: number;
}

/** One member's side of a disagreement. */
interface CallSide {
  /** World rank. */
  readonly rank: number;
  readonly print: PrintWords;
  /** What stands behind the hash, where it is known. */
  readonly hashed?: string | undefined;
  /** What is said before and after the call. */
  readonly before?: string;
  readonly after?: string;
}

/** What a call has that its first two words do not say. */
function inHash({ hash }: PrintWords, what: string | undefined): string {
  const text = `hash ${(hash >>> 0).toString(16).padStart(8, "0")}`;
  return what === undefined ? ` (${text})` : ` with ${what} (${text})`;
}

/** What distinguishes another member's call with the same two words; `undefined` where only its length can differ. */
function otherOf(call: number): string | undefined {
  const { op, redop } = unpackCall(call);
  const others = [
    ...(redop === "preMulSum" ? ["another scalar"] : []),
    ...(op === "all_gather_v" || op === "reduce_scatter_v" ? ["other counts"] : []),
  ];
  return others.length === 0 ? undefined : others.join(" or ");
}

/** The error of two members that disagree on the group's operation number `place`. */
export function disagreement(group: string, place: number, mine: CallSide, theirs: CallSide): MismatchError {
  const words = ({ print, before = "", after = "" }: CallSide) =>
    before + describeWords(print.call, print.count >>> 0) + after;
  // Of the other member's differing values only a hash is known.
  const isAlike = words(mine) === words(theirs);
  const rest = isAlike ? [inHash(mine.print, mine.hashed), inHash(theirs.print, otherOf(mine.print.call))] : ["", ""];
  const sides = [
    { rank: mine.rank, call: words(mine) + rest[0] },
    { rank: theirs.rank, call: words(theirs) + rest[1] },
  ].sort((x, y) => x.rank - y.rank);
  return new MismatchError(`ranks of ${group} disagree on operation #${place}`, sides);
}
