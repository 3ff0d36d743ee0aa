/** The errors of ranks that disagree, as data on one of them: what this rank has, and what a frame said. */
import { type CallTrace, type ChoraleError, MismatchError } from "../../../core/index.ts";
import { callSite, failureOf, packCall, unpackCall, type WireOp } from "../../comm/index.ts";
import { disagreement, placeOf } from "../../progress/index.ts";
import { type Head, KIND, LANE, type Print } from "./frame.ts";

/** Where two ranks disagree. */
interface Dispute {
  readonly group: string;
  /** World ranks, by group rank. */
  readonly ranks: readonly number[];
  readonly me: number;
  /** Who sent `head`. */
  readonly member: number;
  readonly head: Head;
}

/** Where `packCall` keeps the element type. */
const dtypeBits = (call: number) => (call >>> 6) & 15;

/** Whether two ends mean the same call: all of a collective, the elements of a send and its receive. */
export function isSameCall({ lane, print }: Head, mine: Print): boolean {
  const isSame = lane === LANE.pair ? dtypeBits(print.call) === dtypeBits(mine.call) : print.call === mine.call;
  return isSame && print.count === mine.count && print.hash === mine.hash;
}

/** @param hashed what stands behind this rank's hash, where it is known */
export function callMismatch(dispute: Dispute, mine: Print, hashed: string | undefined): MismatchError {
  const { group, ranks, me, member, head } = dispute;
  const lane = head.lane === LANE.pair ? ({ kind: "send", peer: me } as const) : ({ kind: "collective" } as const);
  return disagreement(
    group,
    placeOf({ lane, seq: head.seq }),
    { rank: ranks[me] ?? me, print: mine, hashed },
    { rank: ranks[member] ?? member, print: head.print },
  );
}

/** Of an all-to-all of varying sizes: what one gives is not what the other takes. @param count elements, of this rank */
export function pairMismatch(dispute: Dispute, mine: Print, count: number): MismatchError {
  const { group, ranks, me, member, head } = dispute;
  const { dtype } = unpackCall(mine.call);
  const theyGive = head.kind !== KIND.grant;
  const side = (who: number, op: WireOp, peer: number, elements: number) => ({
    rank: ranks[who] ?? who,
    print: { call: packCall(op, dtype, undefined, peer), count: elements, hash: 0 },
    before: "all_to_all_v: ",
  });
  return disagreement(
    group,
    placeOf({ lane: { kind: "collective" }, seq: head.seq }),
    side(me, theyGive ? "recv" : "send", member, count),
    side(member, theyGive ? "send" : "recv", me, head.extra),
  );
}

/** The error of a disagreement with the place of `rank`'s own call, which no other rank knows; every other error as it is. */
export function located(error: ChoraleError, rank: number, trace: CallTrace): ChoraleError {
  const failure = failureOf(error);
  const site = callSite(trace);
  if (failure.code !== "MISMATCH" || site === undefined) return error;
  const sides = failure.sides.map((side) => ({ ...side, ...(side.rank === rank ? { callSite: site } : {}) }));
  return new MismatchError(failure.problem, sides);
}
