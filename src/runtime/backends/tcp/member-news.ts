/** What a rank has heard of the members of a group: the last call of each, and who has left. */
import { type ChoraleError, type RankActivity, TimeoutError } from "../../../core/index.ts";
import { describeWords } from "../../comm/index.ts";
import { type Head, LANE, type Print } from "./frame.ts";
import type { PendingCall } from "./tcp-work.ts";

/** A collective that a member has begun. */
interface LastCall extends Print {
  readonly seq: number;
}

/** Of what a member says of its call, in errors. */
const MAX_CALL_CHARS = 300;

interface Farewell {
  /** The first collective that the member does not make. */
  readonly seq: number;
  /** How many messages it has sent this rank. */
  readonly sent: number;
}

export class MemberNews {
  readonly #ranks: readonly number[];
  readonly #me: number;
  readonly #heard: (LastCall | undefined)[];
  readonly #left: (Farewell | undefined)[];
  /** The call of another group, or of one peer, in which a member said that it waits. */
  readonly #elsewhere: (string | undefined)[];
  /** This rank's own. */
  last: LastCall | undefined;

  constructor(ranks: readonly number[], me: number) {
    this.#ranks = ranks;
    this.#me = me;
    this.#heard = ranks.map(() => undefined);
    this.#left = ranks.map(() => undefined);
    this.#elsewhere = ranks.map(() => undefined);
  }

  hear(member: number, { lane, seq, print }: Head): void {
    if (lane !== LANE.collective || seq === 0) return;
    const known = this.#heard[member];
    if (known === undefined || known.seq < seq) {
      const { call, count, hash } = print;
      this.#heard[member] = { seq, call, count, hash };
    }
  }

  /** @param call `undefined` when the member waits nowhere else any more */
  hearElsewhere(member: number, call: string | undefined): void {
    this.#elsewhere[member] = call?.slice(0, MAX_CALL_CHARS);
  }

  /** The first farewell counts: it says most. */
  leave(member: number, farewell: Farewell): void {
    this.#left[member] ??= farewell;
  }

  hasLeft(member: number): boolean {
    return this.#left[member] !== undefined;
  }

  /** Which members have come to a call, as far as this rank has heard, and what each did last. */
  activity({ state, parts }: PendingCall): readonly RankActivity[] {
    const { lane, seq } = parts.arrival;
    const strands = state === "running" ? (parts.strands?.() ?? []) : [];
    return this.#ranks.map((rank, member) => {
      const isMe = member === this.#me;
      const heard = isMe ? this.last : this.#heard[member];
      const last =
        heard === undefined ? {} : { lastOp: describeWords(heard.call, heard.count >>> 0), lastSeq: heard.seq - 1 };
      const arrived = isMe || (lane.kind === "collective" ? (heard?.seq ?? 0) >= seq : member !== lane.peer);
      const waitsIn = arrived ? undefined : this.#elsewhere[member];
      const stands = isMe && strands.length > 0 ? { strands } : {};
      return { rank, arrived, ...last, ...(waitsIn === undefined ? {} : { waitsIn }), ...stands };
    });
  }

  /** The first of `pending` that waits for what a member which has left will never do, and that member. */
  firstInVain(pending: readonly PendingCall[]): { readonly member: number; readonly call: PendingCall } | undefined {
    for (const [member, left] of this.#left.entries()) {
      if (left === undefined) continue;
      const call = pending.find(({ parts: { arrival } }) => {
        const { lane, seq } = arrival;
        if (lane.kind === "collective") return seq >= left.seq;
        return lane.kind === "recv" && lane.peer === member && seq >= left.sent;
      });
      if (call !== undefined) return { member, call };
    }
    return undefined;
  }
}

/** Who is late, and what each did last: `still waiting for rank 2 (its last call: barrier() #16)`. */
export function lateText(activity: readonly RankActivity[]): string {
  const late = activity.filter(({ arrived }) => !arrived);
  if (late.length === 0) return "and all ranks have arrived";
  const last = ({ lastOp, lastSeq, waitsIn }: RankActivity) =>
    (lastOp === undefined ? "no call yet" : `its last call: ${lastOp} #${lastSeq}`) +
    (waitsIn === undefined ? "" : `, it waits in ${waitsIn}`);
  return `still waiting for ${late.map((one) => `rank ${one.rank} (${last(one)})`).join(", ")}`;
}

/** The deadline of another rank with where this rank's strands stand, which that one cannot know; other errors as they are. */
export function withStrands(error: ChoraleError, rank: number, strands: readonly string[]): ChoraleError {
  if (!(error instanceof TimeoutError) || strands.length === 0) return error;
  const { op, timeoutMs, callSite } = error;
  const ranks = error.ranks.map((one) => (one.rank === rank ? { ...one, strands } : one));
  return new TimeoutError(op, timeoutMs, ranks, { callSite });
}
