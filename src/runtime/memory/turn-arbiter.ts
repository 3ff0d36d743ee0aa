/**
 * Turns of groups that span hosts. Offers are in the segment of their rank's host, and every launcher has read of them; the
 * first host's decides: when the members of a call offer it, their hosts are asked to hold those offers, and grant them once
 * all are held (turns.ts). This is what a launcher knows of one group's offers.
 */
import { type Lane, oppositeOf, sameLane } from "./lanes.ts";
import { laneOf } from "./outbox.ts";
import { PAIRS_OFFER } from "./turns.ts";

interface KnownOffer {
  readonly offer: number;
  /** Which of its member's offers it is: a rank may take one back and make another of the same words. */
  readonly serial: number;
  /** Of sends and receives, the first of each lane. */
  readonly firsts: readonly { readonly lane: Lane; readonly mark: number }[];
}

/** A turn that may be granted: the same offer of all these members. */
export interface ReadyTurn {
  readonly offer: number;
  readonly members: readonly { readonly member: number; readonly serial: number }[];
}

export class GroupOffers {
  readonly #size: number;
  readonly #known = new Map<number, KnownOffer>();
  readonly #numOffers = new Map<number, number>();

  constructor(size: number) {
    this.#size = size;
  }

  /** @param words of the notice: the offer, then lane, peer and mark of each first send or receive */
  offered(member: number, words: Int32Array): void {
    const serial = (this.#numOffers.get(member) ?? 0) + 1;
    this.#numOffers.set(member, serial);
    const firsts = Array.from({ length: Math.floor((words.length - 1) / 3) }, (_, i) => {
      const [code = 0, peer = 0, mark = 0] = words.subarray(1 + 3 * i, 4 + 3 * i);
      return { lane: laneOf(code, peer), mark };
    });
    this.#known.set(member, { offer: words[0] ?? 0, serial, firsts });
  }

  withdrawn(member: number): void {
    this.#known.delete(member);
  }

  /** Whether this offer of a member still stands. */
  stands(member: number, offer: number, serial: number): boolean {
    const known = this.#known.get(member);
    return known !== undefined && known.offer === offer && known.serial === serial;
  }

  /** Says that a turn was granted: the offers are used up. */
  granted({ members }: ReadyTurn): void {
    for (const { member } of members) this.#known.delete(member);
  }

  /** A turn whose members all offer it, if there is one. */
  ready(): ReadyTurn | undefined {
    const [first] = this.#known.values();
    if (first === undefined) return undefined;
    if (first.offer !== PAIRS_OFFER) {
      const isWhole =
        this.#known.size === this.#size && [...this.#known.values()].every((o) => o.offer === first.offer);
      if (isWhole) return this.#turnOf(first.offer, [...this.#known.keys()]);
    }
    for (const [member, { offer }] of this.#known) {
      const together = offer === PAIRS_OFFER ? this.#together(member) : undefined;
      if (together !== undefined) return this.#turnOf(PAIRS_OFFER, together);
    }
    return undefined;
  }

  #turnOf(offer: number, members: readonly number[]): ReadyTurn {
    return { offer, members: members.map((member) => ({ member, serial: this.#known.get(member)?.serial ?? 0 })) };
  }

  /** The members whose sends and receives go with those of `first`; `undefined` until all offer them. */
  #together(first: number): readonly number[] | undefined {
    const found = [first];
    for (const member of found) {
      const known = this.#known.get(member);
      if (known === undefined || known.offer !== PAIRS_OFFER) return undefined;
      for (const { lane, mark } of known.firsts) {
        if (lane.kind === "collective") continue;
        const opposite = oppositeOf(lane, member);
        const theirs = this.#known.get(lane.peer)?.firsts.find((one) => sameLane(one.lane, opposite));
        if (theirs?.mark !== mark) return undefined;
        if (!found.includes(lane.peer)) found.push(lane.peer);
      }
    }
    return found;
  }
}
