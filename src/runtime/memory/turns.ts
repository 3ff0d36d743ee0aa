/**
 * Turns: which call that blocks its thread a rank may make next. A foreign engine blocks some calls until every member
 * has made them, so ranks that made such calls of several groups in different orders would wait for each other. Each
 * member offers its next call in shared words; what is granted is granted to all members of a call or to none, and to
 * one call of a rank at a time. Nothing here waits, but for a grant that is under way (`withdraw`).
 *
 * Words: one per rank of the world, which says what group has taken it, and one per member of a group, its offer. Of
 * sends and receives a member also says, in a word per lane, which is the first that its offer is about.
 *
 * Of a group that spans hosts a rank only offers itself: the launchers of the hosts hold and grant the offers (turn-arbiter.ts).
 */
import { ATTENDS } from "./attendance.ts";
import { markOf } from "./counts.ts";
import {
  GRANT_ACROSS_MS,
  GRANTED,
  grantAll,
  HELD,
  type HeldOffers,
  holdAll,
  type TakenPlace,
  withdrawOffer,
} from "./grant.ts";
import { type Lane, oppositeOf } from "./lanes.ts";
import { type GroupOutbox, laneWords, NOTICE } from "./outbox.ts";

/** Number of the "call" that frees the group. */
export const RECLAIM = -1;
/** Number for any call that has only sends and receives. */
const PAIRS = -2;
/** The offer of such a call. */
export const PAIRS_OFFER = -PAIRS;
const PHASES = HELD | GRANTED;
/** What an offer of a turn becomes. */
export const grantedOf = (offer: number): number => offer | GRANTED;
const isHeld = (offer: number) => (offer & PHASES) !== 0;
/**
 * An offer of call `seq`, RECLAIM or PAIRS; never zero. Members are hundreds of calls apart at most (`collectiveLimit`), so
 * that two that have wrapped are never taken for one.
 */
const offerOf = (seq: number) => (seq < 0 ? -seq : 3 + (seq % 2 ** 20));

/** The first send to, or receive from, a peer in a call. */
export interface FirstOfLane {
  readonly lane: Lane;
  readonly seq: number;
}

/** Where the turns of a group stand. */
interface TurnsPlace extends TakenPlace {
  /** First of the words of the members' offers. */
  readonly offersAt: number;
  /** The word of a member's lane of sends or receives that is for turns. */
  readonly firstAt: (member: number, lane: Lane) => number;
}

/** The turns of one group, as one member takes them. */
export class Turns {
  readonly #words: Int32Array;
  readonly #member: number;
  readonly #size: number;
  readonly #at: TurnsPlace;
  /** For the turn that frees the group. */
  readonly #attended: TurnsPlace;
  /** Of a group that spans hosts: where the other hosts are told of offers. */
  readonly #across: GroupOutbox | undefined;
  /** Lanes of the sends and receives that this member has offered to take a turn for. */
  #pairLanes: readonly Lane[] = [];

  constructor(words: Int32Array, member: number, size: number, at: TurnsPlace, across?: GroupOutbox) {
    this.#words = words;
    this.#member = member;
    this.#size = size;
    this.#at = at;
    this.#attended = { ...at, free: ATTENDS };
    this.#across = across;
  }

  /**
   * Asks for the turn of call `seq`, which will block this thread until all members make it. A rank may offer itself to
   * calls of several groups, but only one is granted at a time: otherwise ranks could block in different ones, each
   * waiting for the other. When every member of a group offers the same call, member 0 takes all their ranks or none.
   * An offer commits to nothing until it is granted, so that a group whose members are not there yet holds no other up.
   * Ask again until it is granted; then make the call, and say so with `endTurn`. The turn that frees a group of one host is
   * granted while all its members attend (attendance.ts).
   * @param seq number of the call, or `RECLAIM`, which frees the group
   * @param ranks world ranks of the members
   * @returns whether it is this call's turn
   */
  turn(seq: number, ranks: readonly number[]): boolean {
    if (!this.#offer(offerOf(seq))) return this.granted;
    const isAttended = seq === RECLAIM;
    // Of ranks that attend, each does it: another one may lack a core.
    if ((this.#member !== 0 && !isAttended) || this.#across !== undefined) return false;
    const all = Array.from({ length: this.#size }, (_, member) => member);
    return this.#grant(ranks, all, isAttended ? this.#attended : this.#at);
  }

  /** Whether all members offer to free the group, so that it is freed once they attend; never of one that spans hosts. */
  get mayReclaim(): boolean {
    if (this.#across !== undefined) return false;
    for (let member = 0; member < this.#size; member++) {
      if ((Atomics.load(this.#words, this.#offerAt(member)) & ~HELD) !== offerOf(RECLAIM)) return false;
    }
    return true;
  }

  /**
   * As `turn`, for a call made of sends and receives alone, which other members need not make: it is granted together
   * with the calls of the members that it sends to or receives from, of those that these do, and so on.
   * @param lanes the first send and receive of the call per peer, at most one each
   */
  turnOfPairs(lanes: readonly FirstOfLane[], ranks: readonly number[]): boolean {
    const offers = offerOf(PAIRS);
    const before = Atomics.load(this.#words, this.#offerAt(this.#member));
    // What the offer is about must stand before the offer does.
    if (before !== offers && !isHeld(before)) {
      for (const { lane, seq } of lanes) Atomics.store(this.#words, this.#at.firstAt(this.#member, lane), markOf(seq));
      this.#pairLanes = lanes.map(({ lane }) => lane);
    }
    if (!this.#offer(offers, lanes)) return this.granted;
    if (this.#across !== undefined) return false;
    const together = this.#together();
    if (together === undefined || Math.min(...together) !== this.#member) return false;
    return this.#grant(ranks, together);
  }

  /** Whether the turn that this member has offered itself for is granted and has not ended. */
  get granted(): boolean {
    return (Atomics.load(this.#words, this.#offerAt(this.#member)) & PHASES) === GRANTED;
  }

  /** Ends this member's turn, or takes its offer back. */
  endTurn(ranks: readonly number[]): void {
    if (this.withdraw()) return;
    Atomics.store(this.#words, this.#offerAt(this.#member), 0);
    this.#forgetPairs();
    Atomics.compareExchange(this.#words, this.#at.takenAt + (ranks[this.#member] ?? 0), this.#at.mark, 0);
  }

  /**
   * Takes this member's offer back, unless the turn is granted already: then the call must be made.
   * @returns whether no turn is granted to this member
   */
  withdraw(): boolean {
    const own = this.#offerAt(this.#member);
    const across = this.#across;
    const isOffered = across !== undefined && Atomics.load(this.#words, own) !== 0;
    const { isOver } = this.#at;
    const isOverAcross = () => {
      // Who holds the offer may be heard of by this thread alone.
      across?.look();
      return isOver();
    };
    if (!withdrawOffer(this.#words, own, isOverAcross, across && GRANT_ACROSS_MS)) return false;
    // An offer that could not be taken back, since its holder may be dead, keeps its lanes: it may still be granted.
    if (Atomics.load(this.#words, own) === 0) this.#forgetPairs();
    if (isOffered) across.tell(NOTICE.withdraw);
    return true;
  }

  /**
   * Takes the ranks of `members`, which are of this host, and holds what each of them offers: for a turn that is granted to
   * members on several hosts, or to none.
   * @returns `undefined` when one of them is taken, or offers something else (any more): nothing is changed then
   */
  hold(offer: number, members: readonly number[], ranks: readonly number[]): HeldOffers | undefined {
    const offers = members.map((member) => ({ rank: ranks[member] ?? 0, at: this.#offerAt(member), word: offer }));
    return holdAll(this.#words, this.#at, offers);
  }

  /** Offers this member. @returns false when it is being granted a turn already, of this call or another */
  #offer(offer: number, lanes: readonly FirstOfLane[] = []): boolean {
    const own = this.#offerAt(this.#member);
    const current = Atomics.load(this.#words, own);
    if (current === offer) return true;
    if (isHeld(current)) return false;
    if (Atomics.compareExchange(this.#words, own, current, offer) !== current) return false;
    this.#across?.tell(NOTICE.offer, [offer, ...lanes.flatMap(({ lane, seq }) => [...laneWords(lane), markOf(seq)])]);
    return true;
  }

  /** Takes the ranks of `members` and grants all of them the turn that this one offers, or changes nothing. */
  #grant(ranks: readonly number[], members: readonly number[], place = this.#at): boolean {
    const words = this.#words;
    const offer = Atomics.load(words, this.#offerAt(this.#member));
    for (const member of members) if (Atomics.load(words, this.#offerAt(member)) !== offer) return false;
    const offers = members.map((member) => ({ rank: ranks[member] ?? 0, at: this.#offerAt(member), word: offer }));
    return grantAll(words, place, offers, grantedOf);
  }

  /** The members whose calls of sends and receives go with this one's; `undefined` until all offer them. */
  #together(): readonly number[] | undefined {
    const words = this.#words;
    const found = [this.#member];
    for (const member of found) {
      if (Atomics.load(words, this.#offerAt(member)) !== offerOf(PAIRS)) return undefined;
      for (let peer = 0; peer < this.#size; peer++) {
        if (peer === member) continue;
        for (const kind of ["send", "recv"] as const) {
          const lane: Lane = { kind, peer };
          const first = Atomics.load(words, this.#at.firstAt(member, lane));
          if (first === 0) continue;
          if (Atomics.load(words, this.#at.firstAt(peer, oppositeOf(lane, member))) !== first) return undefined;
          if (!found.includes(peer)) found.push(peer);
        }
      }
    }
    return found;
  }

  #forgetPairs(): void {
    for (const lane of this.#pairLanes) Atomics.store(this.#words, this.#at.firstAt(this.#member, lane), 0);
    this.#pairLanes = [];
  }

  #offerAt(member: number): number {
    return this.#at.offersAt + member;
  }
}
