/**
 * Sends ranks that share a core apart, where there is a core for each.
 *
 * Two threads that wait for each other may end up on one core and stay: one runs until it waits and sleeps, which wakes the other
 * on the core where it slept. Linux looks for an idle core as it wakes a thread, but, with few cores of which half is busy, at
 * none (select_idle_cpu with SIS_UTIL), and its balancing moves no thread that ran within the last half a millisecond. A call
 * then takes two switches of threads, some 15 us each, where it takes 1 us when both spin. So a rank that sleeps at most of its
 * calls says on which CPU it is; of two that say the same one goes to another. It may run everywhere as before: the system
 * moves it on when that core has more to do.
 */
import { oneOf } from "../../../core/internal.ts";
import { type ThreadPlace, threadPlace } from "../../../foreign/native/internal.ts";
import { rankBlock } from "./host.ts";
import { RANK } from "./layout.ts";

/** What a rank said is believed for so long, ms. */
const FRESH_MS = 50;
/** From one move to the next at least, ms, twice as long after each that did not help. */
const FIRST_PAUSE_MS = 20;
const LAST_PAUSE_MS = 2000;

/** Whether ranks may be sent to other cores: CHORALE_SPREAD. @throws InvalidArgumentError for a value that it does not have */
export function maySpread(env: NodeJS.ProcessEnv): boolean {
  return oneOf(env["CHORALE_SPREAD"] || "on", "CHORALE_SPREAD", ["on", "off"]) === "on";
}

export class CoreSharing {
  readonly #words: Int32Array;
  readonly #rank: number;
  readonly #numRanks: number;
  readonly #findPlace: () => ThreadPlace | undefined;
  #place: ThreadPlace | undefined | "unknown" = "unknown";
  #pauseMs = FIRST_PAUSE_MS;
  #movedAt = Number.NEGATIVE_INFINITY;

  constructor(words: Int32Array, rank: number, numRanks: number, findPlace = threadPlace) {
    this.#words = words;
    this.#rank = rank;
    this.#numRanks = numRanks;
    this.#findPlace = findPlace;
  }

  /** The rank has slept at few of its last calls. */
  clear(): void {
    this.#pauseMs = FIRST_PAUSE_MS;
  }

  /** The rank has slept at most of its last calls: moves it if a rank before it does so on the same CPU. `now`: ms, the same for all. */
  note(now: number): void {
    if (this.#place === "unknown") this.#place = this.#findPlace();
    const place = this.#place;
    if (place === undefined) return;
    const here = place.current();
    if (here < 0) return;
    this.#say(here, now);
    if (now - this.#movedAt < this.#pauseMs) return;
    const others = Array.from({ length: this.#numRanks }, (_, rank) =>
      rank === this.#rank ? -1 : this.#said(rank, now),
    );
    if (!others.slice(0, this.#rank).includes(here)) return;
    const free = place.allowed().filter((cpu) => cpu !== here && !others.includes(cpu));
    const target = free[this.#rank % free.length];
    if (target === undefined) return;
    place.moveTo(target);
    this.#say(target, now);
    this.#movedAt = now;
    this.#pauseMs = Math.min(LAST_PAUSE_MS, 2 * this.#pauseMs);
  }

  #say(cpu: number, now: number): void {
    const at = rankBlock(this.#rank) / 4;
    this.#words[at + RANK.cpu / 4] = 1 + cpu;
    this.#words[at + RANK.cpuNotedAt / 4] = now | 0;
  }

  /** The CPU of another rank, -1 when it has not said one lately. */
  #said(rank: number, now: number): number {
    const at = rankBlock(rank) / 4;
    const age = ((now | 0) - this.#words[at + RANK.cpuNotedAt / 4]!) | 0;
    return age >= -FRESH_MS && age <= FRESH_MS ? this.#words[at + RANK.cpu / 4]! - 1 : -1;
  }
}
