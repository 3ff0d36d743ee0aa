/** What the members of a group say they do: published in the control segment, compared by whoever comes later. */
import { MismatchError, type RankActivity } from "../../../core/index.ts";
import { describeWords, unpackCall, type WireOp } from "../../comm/index.ts";
import type { Fingerprint, GroupControl, Lane } from "../control/segment.ts";
import type { Arrival, Entry } from "./entry.ts";

/** Operations whose other two words carry data that may differ: lengths, color and key. */
const OPEN_OPS: ReadonlySet<WireOp> = new Set(["broadcast_object", "gather_objects", "split"]);

/** Where `packCall` keeps the element type. */
const dtypeBits = (call: number) => (call >>> 6) & 15;

const COLLECTIVE: Lane = { kind: "collective" };

export class Agreement {
  readonly #control: GroupControl;
  readonly #ranks: readonly number[];
  readonly #group: string;

  /** @param ranks world ranks of the members */
  constructor(control: GroupControl, ranks: readonly number[], group: string) {
    this.#control = control;
    this.#ranks = ranks;
    this.#group = group;
  }

  /** Publishes calls and compares them with those of peers that came earlier. @returns the first disagreement */
  announce(arrivals: readonly Arrival[]): MismatchError | undefined {
    const control = this.#control;
    let found: MismatchError | undefined;
    for (const { lane, seq, print } of arrivals) {
      control.publish(lane, seq, print);
      if (lane.kind === "collective") {
        for (let member = 0; member < control.size; member++) {
          if (member === control.member || control.agrees(member, seq, print)) continue;
          found ??= this.#compare(member, lane, seq, print);
        }
      } else {
        const opposite = lane.kind === "send" ? "recv" : "send";
        found ??= this.#compare(lane.peer, { kind: opposite, peer: control.member }, seq, print);
      }
    }
    return found;
  }

  #compare(member: number, lane: Lane, seq: number, mine: Fingerprint): MismatchError | undefined {
    const theirs = this.#control.read(member, lane, seq);
    if (theirs === undefined) return undefined;
    // A send and its receive agree on the element type alone; a collective on everything in the word.
    const collective = lane.kind === "collective";
    const differs = collective ? theirs.call !== mine.call : dtypeBits(theirs.call) !== dtypeBits(mine.call);
    const open = collective && OPEN_OPS.has(unpackCall(mine.call).op);
    if (!differs && (open || (theirs.count === mine.count && theirs.hash === mine.hash))) return undefined;
    const side = (of: number, print: Fingerprint) => ({
      rank: this.#ranks[of] ?? of,
      call: describeWords(print.call, print.count >>> 0),
    });
    const sides = [side(this.#control.member, mine), side(member, theirs)].sort((a, b) => a.rank - b.rank);
    return new MismatchError(`ranks of ${this.#group} disagree on operation #${seq}`, sides);
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
    if (lane.kind === "collective") return control.issued(member, lane) > seq;
    if (member !== lane.peer) return true;
    return control.issued(member, { kind: lane.kind === "send" ? "recv" : "send", peer: control.member }) > seq;
  }

  /** Which members have issued the entry's calls, and what each did last. */
  activity(entry: Entry): readonly RankActivity[] {
    const arrival = entry.arrivals[0];
    return this.#ranks.map((rank, member) => {
      const last = this.#control.last(member, COLLECTIVE);
      const lastOp =
        // Call 0 is the member's joining.
        last === undefined || last.seq === 0
          ? {}
          : { lastOp: describeWords(last.print.call, last.print.count >>> 0), lastSeq: last.seq };
      return { rank, arrived: arrival === undefined || this.#memberArrived(member, arrival), ...lastOp };
    });
  }
}
