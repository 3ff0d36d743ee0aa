/** How two members' calls differ, in words: for backends on call-queue.ts, and tcp. The calls themselves are told by describeWords of comm/. */
import { type ChoraleError, MismatchError } from "../../core/index.ts";
import { describeWords, unpackCall } from "../comm/index.ts";
import { type Arrival, BEHIND_IT } from "./call-sequence.ts";

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

const textOfHash = ({ hash }: PrintWords) => ` (hash ${(hash >>> 0).toString(16).padStart(8, "0")})`;
/** The end of a side of which another member knew only the hash. */
const HASH_ALONE = /(?: with (?:another|other) [^(]*)? \(hash [0-9a-f]{8}\)$/;

/** What a call has that its first two words do not say. */
function inHash(print: PrintWords, what: string | undefined): string {
  return what === undefined ? textOfHash(print) : ` with ${what}${textOfHash(print)}`;
}

/** Whether a member's words tell of an epilogue, which is a part of what the call does. */
const hasEpilogue = (hashed: string | undefined) => hashed?.includes(BEHIND_IT) === true;

/** What distinguishes another member's call; `undefined` where only its length can differ. @param hashed of this member's */
function otherOf(call: number, hashed: string | undefined): string | undefined {
  const { op, redop } = unpackCall(call);
  const others = [
    ...(hasEpilogue(hashed) ? ["another algorithm", "another step or none behind it"] : []),
    ...(redop === "preMulSum" ? ["another scalar"] : []),
    ...(op === "all_gather_v" || op === "reduce_scatter_v" ? ["other counts"] : []),
  ];
  return others.length === 0 ? undefined : others.join(" or ");
}

/** The error of two members that disagree on the group's operation number `place`. */
export function disagreement(group: string, place: number, mine: CallSide, theirs: CallSide): MismatchError {
  const words = ({ print, before = "", after = "" }: CallSide) =>
    before + describeWords(print.call, print.count >>> 0) + after;
  const isAlike = words(mine) === words(theirs);
  const isTold = isAlike || hasEpilogue(mine.hashed);
  const isSameOp = unpackCall(mine.print.call).op === unpackCall(theirs.print.call).op;
  // Of the other member's differing values only a hash is known.
  const theirHashed = mine.print.hash === theirs.print.hash ? mine.hashed : otherOf(mine.print.call, mine.hashed);
  const sides = [
    { rank: mine.rank, call: words(mine) + (isTold ? inHash(mine.print, mine.hashed) : "") },
    { rank: theirs.rank, call: words(theirs) + (isTold && isSameOp ? inHash(theirs.print, theirHashed) : "") },
  ].sort((x, y) => x.rank - y.rank);
  return new MismatchError(`ranks of ${group} disagree on operation #${place}`, sides);
}

/**
 * What another member has told, with this member's own call in words, of which that one knew only a hash.
 * @param rank this member's, of the world
 * @param arrivals its calls that have not ended
 */
export function inOwnWords(error: ChoraleError, rank: number, arrivals: readonly Arrival[]): ChoraleError {
  if (!(error instanceof MismatchError)) return error;
  const sides = error.sides.map((side) => {
    const own = arrivals.find(({ print }) => side.rank === rank && side.call.endsWith(textOfHash(print)));
    const words = own?.hashed?.();
    if (own === undefined || (words !== undefined && side.call.includes(` with ${words} (`))) return side;
    return { ...side, call: side.call.replace(HASH_ALONE, () => inHash(own.print, words)) };
  });
  return new MismatchError(error.problem, sides);
}
