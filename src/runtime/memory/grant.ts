/**
 * Offers of ranks to do something together, which are granted to all of them at once or to none, and never two to one
 * rank: one step of turns.ts and joint-turn.ts. An offer is a word that says what is offered; HELD and GRANTED are bits of it.
 */
import { nap, pauseMs } from "./nap.ts";

/** Bits of an offer: while it is being granted, to all or none; and once it is. */
export const HELD = 2 ** 28;
export const GRANTED = 2 ** 29;

/** A grant takes microseconds: a rank that holds one for longer is dead. */
const GRANT_MS = 1000;
/** Among hosts it takes a message each way: whose launcher does not answer for so long is lost, which ends the world before. */
export const GRANT_ACROSS_MS = 60_000;
const NAP_MS = 0.05;

/** Where ranks are taken. */
export interface TakenPlace {
  /** First of the words of the world's ranks, which say who has taken each. */
  readonly takenAt: number;
  /** What stands there at a rank that is taken for a grant of this kind or group: not zero, and nobody else's. */
  readonly mark: number;
  /** What stands there at a rank that may be taken: zero, or that it attends (attendance.ts). */
  readonly free: number;
  /** Whether the world has failed. */
  readonly isOver: () => boolean;
}

/** One rank's offer, as it was read. */
interface Offer {
  /** Of the world. */
  readonly rank: number;
  /** Where it stands. */
  readonly at: number;
  readonly word: number;
}

/** Ranks that are taken, and their offers, which are held: to be granted or let go. */
export interface HeldOffers {
  /** @param grantedOf what an offer becomes */
  grant(grantedOf: (word: number) => number): void;
  release(): void;
}

/**
 * Takes the ranks of all these offers and holds them, or changes nothing: when a rank is taken, or an offer is not what it was.
 * @returns `undefined` when nothing was changed
 */
export function holdAll(
  words: Int32Array,
  { takenAt, mark, free }: TakenPlace,
  offers: readonly Offer[],
): HeldOffers | undefined {
  // In one order everywhere: of several that want the same ranks at the same time one always gets them.
  const order = [...offers].sort((a, b) => a.rank - b.rank);
  const taken = whileTrue(order, ({ rank }) => Atomics.compareExchange(words, takenAt + rank, free, mark) === free);
  const held =
    taken.length < order.length
      ? []
      : whileTrue(order, ({ at, word }) => Atomics.compareExchange(words, at, word, word | HELD) === word);
  const release = () => {
    for (const { at, word } of held) Atomics.compareExchange(words, at, word | HELD, word);
    for (const { rank } of taken) Atomics.compareExchange(words, takenAt + rank, mark, free);
  };
  if (held.length < order.length) {
    release();
    return undefined;
  }
  const grant = (grantedOf: (word: number) => number) => {
    for (const { at, word } of order) Atomics.store(words, at, grantedOf(word));
  };
  return { grant, release };
}

/** As `holdAll`, and grants them. @param grantedOf what an offer becomes @returns whether they are granted */
export function grantAll(
  words: Int32Array,
  place: TakenPlace,
  offers: readonly Offer[],
  grantedOf: (word: number) => number,
): boolean {
  const held = holdAll(words, place, offers);
  held?.grant(grantedOf);
  return held !== undefined;
}

/** Does `step` for each in turn until one fails. @returns those before that one */
function whileTrue<T>(list: readonly T[], step: (one: T) => boolean): readonly T[] {
  const failed = list.findIndex((one) => !step(one));
  return failed < 0 ? list : list.slice(0, failed);
}

/**
 * Takes the offer at `at` back, unless it is granted already.
 * @returns whether it is not granted; where who held it has died, it stays
 */
export function withdrawOffer(
  words: Int32Array,
  at: number,
  isOver: () => boolean,
  grantMs: number = GRANT_MS,
): boolean {
  let [looked, waitedMs] = [performance.now(), 0];
  for (let i = 0; ; i++) {
    const word = Atomics.load(words, at);
    if ((word & GRANTED) !== 0) return false;
    if (word === 0) return true;
    if ((word & HELD) === 0) {
      if (Atomics.compareExchange(words, at, word, 0) === word) return true;
      continue;
    }
    // Another rank is granting it, or will let go within microseconds, unless it has died or does not run now.
    if (i % 64 !== 63) continue;
    const now = performance.now();
    waitedMs += pauseMs(now - looked);
    looked = now;
    if (isOver() || waitedMs > grantMs) return true;
    nap(NAP_MS);
  }
}
