/**
 * Verdicts on plans in the memory that the ranks of a world share: whoever asks first finds out, the others wait for it. A
 * hash table that nothing leaves; when it is full, or an answer takes too long, a rank finds out for itself.
 */
import type { SharedVerdicts } from "../../../authoring/plan/index.ts";
import { runningTime } from "../../comm/index.ts";
import type { Heap } from "./heap.ts";
import { causeOf } from "./host.ts";
import { VERDICT, WORLD } from "./layout.ts";
import type { WordWaiting } from "./shared-world.ts";

/** States of an entry; of a free one's key nothing is known, and of a claimed one's neither. */
const STATE = { free: 0, claimed: 1, open: 2, no: 3, yes: 4 } as const;

/** Entries that are looked at for one question. */
const MAX_PROBES = 16;
/** Longest wait for a peer's answer: it may be stopped, or have died unnoticed, ms. */
const PATIENCE_MS = 2000;
/** How often a wait looks whether the peer has died. Each look also counts as time of this rank's deadlines. */
const LOOK_MS = 50;
/** Looks at an entry that a peer is writing; it takes far fewer, unless it died over it. */
const MAX_LOOKS = 100_000;

export class VerdictTable implements SharedVerdicts {
  readonly #words: Int32Array;
  readonly #waiting: WordWaiting;
  readonly #rank: number;
  /** Entries that this rank has to fill, by question. */
  readonly #own = new Map<string, number>();

  constructor(heap: Heap, rank: number) {
    this.#rank = rank;
    this.#words = heap.words();
    this.#waiting = heap.waiting;
  }

  ask(question: string): boolean | undefined {
    const words = this.#words;
    const [a, b] = hashesOf(question);
    for (let probe = 0; probe < MAX_PROBES; probe++) {
      const at = WORLD.verdicts + VERDICT.words * (((a >>> 0) + probe) % VERDICT.numEntries);
      const state = at + VERDICT.state;
      const key = at + VERDICT.key;
      if (Atomics.compareExchange(words, state, STATE.free, STATE.claimed) === STATE.free) {
        words[key] = a;
        words[key + 1] = b;
        words[at + VERDICT.owner] = this.#rank;
        Atomics.store(words, state, STATE.open);
        this.#own.set(question, state);
        return undefined;
      }
      for (let looks = 0; Atomics.load(words, state) === STATE.claimed; looks++)
        if (looks > MAX_LOOKS) return undefined;
      if (words[key] === a && words[key + 1] === b) return this.#answer(at, question);
    }
    return undefined;
  }

  tell(question: string, answer: boolean): void {
    const state = this.#own.get(question);
    if (state === undefined) return;
    this.#own.delete(question);
    Atomics.store(this.#words, state, answer ? STATE.yes : STATE.no);
    this.#waiting.notify(this.#words, state);
  }

  #answer(at: number, question: string): boolean | undefined {
    const words = this.#words;
    const state = at + VERDICT.state;
    const isOpen = () => Atomics.load(words, state) === STATE.open;
    const until = runningTime() + PATIENCE_MS;
    // Asked again by the rank that is to answer: nobody else will.
    const isMine = this.#own.has(question);
    while (!isMine && isOpen() && runningTime() < until && causeOf(words, words[at + VERDICT.owner]!) === undefined) {
      this.#waiting.wait(words, state, STATE.open, LOOK_MS);
    }
    if (!isOpen()) return Atomics.load(words, state) === STATE.yes;
    // Whoever waits for it as well need not find out too.
    this.#own.set(question, state);
    return undefined;
  }
}

/** Two hashes of a text (FNV-1a, Fowler, Noll, Vo, with different offsets). */
export function hashesOf(text: string): readonly [number, number] {
  let [a, b] = [0x811c9dc5, 0x9747b28c];
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 0x01000193);
    b = Math.imul(b ^ code, 0x01000193) ^ (b >>> 15);
  }
  return [a | 0, b | 0];
}
