/** What the members of a group say they do: published in the control segment, compared by whoever comes later. */
import { MismatchError, type RankActivity } from "../../core/index.ts";
import { departed, describeWords, unpackCall, type WireOp } from "../comm/index.ts";
import { COLLECTIVE, type Fingerprint, type GroupControl, type Lane, oppositeOf, ringOf } from "../memory/index.ts";
import { disagreement } from "./call-disagreement.ts";
import { type Arrival, IN_BATCH, JOIN_SEQ, MARK, placeOf } from "./call-sequence.ts";
import type { QueueEntry } from "./queue-entry.ts";

/** Operations whose other two words carry data that may differ: lengths, color and key. */
const OPEN_OPS: ReadonlySet<WireOp> = new Set(["broadcast_object", "gather_objects", "split"]);

/** Where `packCall` keeps the element type. */
const dtypeBits = (call: number) => (call >>> 6) & 15;

const isAllReduce = (call: number) => unpackCall(call).op === "all_reduce";

/** What a member said when it joined. */
export interface Joining {
  readonly rank: number;
  /** The third word of its joining, which the engine gives a meaning. */
  readonly hash: number;
}

export interface AgreementOptions {
  readonly control: GroupControl;
  /** World ranks of the members. */
  readonly ranks: readonly number[];
  readonly group: string;
  readonly generation: number;
  /** The error for two members that joined differently, which explains why the marks of their calls differ too. */
  readonly joinedApart?: (members: readonly Joining[]) => MismatchError;
}

export class Agreement {
  readonly #control: GroupControl;
  readonly #ranks: readonly number[];
  readonly #group: string;
  readonly #generation: number;
  readonly #joinedApart: AgreementOptions["joinedApart"];
  /** The first collective that may be published only after a check that all members have got far enough. */
  #limit = 0;

  constructor({ control, ranks, group, generation, joinedApart }: AgreementOptions) {
    this.#generation = generation;
    this.#control = control;
    this.#ranks = ranks;
    this.#group = group;
    this.#joinedApart = joinedApart;
  }

  /**
   * Whether these calls can be published without overwriting what a member has yet to compare. (An entry with more sends
   * or receives of one lane than that lane remembers is published when its first can be: the rest of them is compared as
   * far as the ring goes. There are never that many collectives.)
   */
  mayAnnounce(arrivals: readonly Arrival[]): boolean {
    const first = arrivals[0];
    if (first === undefined) return true;
    if (arrivals.length === 1 && first.lane.kind === "collective")
      return first.seq < this.#limit || this.#reach(first.seq);
    let last = -1;
    const firsts = new Set<string>();
    for (const arrival of arrivals) {
      const { lane } = arrival;
      if (lane.kind === "collective") {
        last = arrival.seq;
        continue;
      }
      const key = `${lane.kind} ${lane.peer}`;
      if (firsts.has(key)) continue;
      firsts.add(key);
      const theirs = this.#control.issued(lane.peer, oppositeOf(lane, this.#control.member));
      if (arrival.seq >= theirs + ringOf(lane)) return false;
    }
    return last < this.#limit || this.#reach(last);
  }

  #reach(seq: number): boolean {
    this.#limit = this.#control.collectiveLimit();
    return seq < this.#limit;
  }

  /** Publishes calls, and compares them with none. */
  publish(arrivals: readonly Arrival[]): void {
    for (const { lane, seq, print } of arrivals) this.#control.publish(lane, seq, print);
  }

  /** Publishes calls and compares them with those of peers that came earlier. @returns the first disagreement */
  announce(arrivals: readonly Arrival[]): MismatchError | undefined {
    const control = this.#control;
    let found: MismatchError | undefined;
    for (const arrival of arrivals) {
      const { lane, seq, print } = arrival;
      control.publish(lane, seq, print);
      found ??= this.#disagreementOn(arrival);
    }
    return found;
  }

  /**
   * Compares calls with those that other members have published by now. Of members that all have come, one that differs
   * may not have told so yet: an engine that must never hold half a call asks before it is given one.
   * @returns the first disagreement
   */
  disagreement(arrivals: readonly Arrival[]): MismatchError | undefined {
    for (const arrival of arrivals) {
      const found = this.#disagreementOn(arrival);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #disagreementOn(arrival: Arrival): MismatchError | undefined {
    const control = this.#control;
    const { lane, seq, print } = arrival;
    if (lane.kind !== "collective") return this.#compare(lane.peer, oppositeOf(lane, control.member), arrival);
    for (let member = 0; member < control.size; member++) {
      if (member === control.member || control.agrees(member, seq, print)) continue;
      const found = this.#compare(member, lane, arrival);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** @param lane of the other member, in which its call of the same number is */
  #compare(member: number, lane: Lane, { seq, print: mine, hashed }: Arrival): MismatchError | undefined {
    const theirs = this.#control.read(member, lane, seq);
    if (theirs === undefined) return undefined;
    // A send and its receive must agree on the element type and on the flag; a collective's members on the whole word.
    const collective = lane.kind === "collective";
    const isMarked = !collective || (isAllReduce(mine.call) && isAllReduce(theirs.call) && theirs.count === mine.count);
    const apart = isMarked && ((theirs.call ^ mine.call) & MARK) !== 0;
    const differs = collective ? theirs.call !== mine.call : apart || dtypeBits(theirs.call) !== dtypeBits(mine.call);
    const open = collective && OPEN_OPS.has(unpackCall(mine.call).op);
    if (!differs && (open || (theirs.count === mine.count && theirs.hash === mine.hash))) return undefined;
    if (apart && collective) {
      const mixed = this.#compareJoining(member);
      if (mixed !== undefined) return mixed;
    }
    const [without, with_] = collective
      ? [" into another tensor", " in place"]
      : [" outside of a batch", " in a batch"];
    const where = (print: Fingerprint) => ((print.call & MARK) === 0 ? without : with_);
    const part = lane.kind === "give" || lane.kind === "take" ? "all_to_all_v: " : "";
    const side = (member: number, print: Fingerprint, hashed?: string) => ({
      rank: this.#ranks[member] ?? member,
      print,
      hashed,
      before: part,
      after: apart ? where(print) : "",
    });
    return disagreement(
      this.#group,
      placeOf({ lane, seq }),
      side(this.#control.member, mine, hashed?.()),
      side(member, theirs),
    );
  }

  /** The error of a member whose joining differs from this one's, where the engine explains marks by that. */
  #compareJoining(member: number): MismatchError | undefined {
    if (this.#joinedApart === undefined) return undefined;
    const joined = [this.#control.member, member].flatMap((one) => {
      const hash = this.#control.read(one, COLLECTIVE, JOIN_SEQ)?.hash;
      return hash === undefined ? [] : [{ rank: this.#ranks[one] ?? one, hash }];
    });
    if (new Set(joined.map(({ hash }) => hash)).size < 2) return undefined;
    return this.#joinedApart(joined.sort((x, y) => x.rank - y.rank));
  }

  /**
   * Whether all members have issued a collective, and the same, at the cost of one look at each other member.
   * @returns undefined where one of them has issued another call: `disagreement` says which
   */
  agreed({ seq, print }: Arrival): boolean | undefined {
    const control = this.#control;
    for (let member = 0; member < control.size; member++) {
      if (member === control.member) continue;
      const same = control.hasSame(member, seq, print);
      if (same !== true) return same === undefined ? false : undefined;
    }
    return true;
  }

  /** Whether every member that takes part in all of these calls has issued them. */
  complete(arrivals: readonly Arrival[]): boolean {
    for (const arrival of arrivals) if (!this.#arrived(arrival)) return false;
    return true;
  }

  #arrived(arrival: Arrival): boolean {
    const { lane } = arrival;
    if (lane.kind !== "collective") return this.#memberArrived(lane.peer, arrival);
    for (let member = 0; member < this.#control.size; member++) {
      if (!this.#memberArrived(member, arrival)) return false;
    }
    return true;
  }

  #memberArrived(member: number, { lane, seq }: Arrival): boolean {
    const control = this.#control;
    if (lane.kind === "collective") return control.hasIssued(member, lane, seq);
    if (member !== lane.peer) return true;
    return control.hasIssued(member, oppositeOf(lane, control.member), seq);
  }

  /**
   * Refuses to wait for a member that has closed the group and so will never make its part of a call. Mail is a copy, and
   * needs nobody to take it.
   * @throws RankFailedError
   */
  refuseDeparted({ op, arrivals, work }: QueueEntry): void {
    const control = this.#control;
    if (!control.someClosing) return;
    for (const arrival of arrivals) {
      const { lane, print } = arrival;
      if (lane.kind === "send" && (print.call & IN_BATCH) === 0) continue;
      for (let member = 0; member < control.size; member++) {
        // In this order: what a member does before it closes is seen.
        if (member === control.member || !control.hasClosed(member) || this.#memberArrived(member, arrival)) continue;
        // It left because the group had failed: that failure is the cause.
        if (control.failed) return;
        throw departed(this.#ranks[member] ?? member, this.#generation, this.#group, `${op} #${work.seq}`);
      }
    }
  }

  /**
   * The error for a member that has made a call which this one, having made all of its own, has not: it does not capture what this
   * one does. @param hasCaptured whether a member has come to that call in a capture of its own
   */
  apartFromCapture(op: string, hasCaptured: (member: number) => boolean): MismatchError | undefined {
    const control = this.#control;
    const seq = control.issued(control.member, COLLECTIVE);
    for (let member = 0; member < control.size; member++) {
      // In this order: what a member captures before it makes a call is seen.
      const isAhead = member !== control.member && control.issued(member, COLLECTIVE) > seq;
      if (!isAhead || hasCaptured(member)) continue;
      const theirs = control.read(member, COLLECTIVE, seq);
      const direct = theirs === undefined ? "a later call" : describeWords(theirs.call, theirs.count >>> 0);
      const sides = [
        { rank: this.#ranks[control.member] ?? control.member, call: `${op} in a capture` },
        { rank: this.#ranks[member] ?? member, call: `${direct}, not captured` },
      ];
      const problem = `ranks of ${this.#group} disagree: all of them capture a call, or none does`;
      return new MismatchError(
        problem,
        sides.sort((x, y) => x.rank - y.rank),
      );
    }
    return undefined;
  }

  /** Which members have issued the entry's calls, and what each did last. */
  activity(entry: QueueEntry): readonly RankActivity[] {
    const arrival = entry.arrivals[0];
    return this.activityOf((member) => arrival === undefined || this.#memberArrived(member, arrival));
  }

  /** What each member did last. @param hasCome whether another member has come to what is waited for */
  activityOf(hasCome: (member: number) => boolean): readonly RankActivity[] {
    return this.#ranks.map((rank, member) => {
      const last = this.#control.last(member, COLLECTIVE);
      const lastOp =
        // Call 0 is the member's joining.
        last === undefined || last.seq === 0
          ? {}
          : { lastOp: describeWords(last.print.call, last.print.count >>> 0), lastSeq: last.seq - 1 };
      return { rank, arrived: member === this.#control.member || hasCome(member), ...lastOp };
    });
  }
}
