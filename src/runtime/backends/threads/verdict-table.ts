/**
 * Verdicts on plans in the memory that the ranks of a world share: whoever asks first finds out, the others wait for it. A
 * hash table that nothing leaves; when it is full, or an answer takes too long, a rank finds out for itself.
 */
import type { SharedVerdicts } from "../../../authoring/plan/index.ts";
import type { Heap } from "./heap.ts";
import { VERDICT, WORLD } from "./layout.ts";
import type { WordWaiting } from "./shared-world.ts";

/** States of an entry; of a free one's key nothing is known, and of a claimed one's neither. */
const STATE = { free: 0, claimed: 1, open: 2, no: 3, yes: 4 } as const;

/** Entries that are looked at for one question. */
const MAX_PROBES = 16;
/** Longest wait for a peer's answer: it may have died over it, ms. */
const PATIENCE_MS = 5000;

export class VerdictTable implements SharedVerdicts {
  readonly #words: Int32Array;
  readonly #waiting: WordWaiting;
  /** Entries that this rank has to fill, by question. */
  readonly #own = new Map<string, number>();

  constructor(heap: Heap) {
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
        Atomics.store(words, state, STATE.open);
        this.#own.set(question, state);
        return undefined;
      }
      while (Atomics.load(words, state) === STATE.claimed);
      if (words[key] === a && words[key + 1] === b) return this.#answer(state, question);
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

  #answer(state: number, question: string): boolean | undefined {
    const words = this.#words;
    // Asked again by the rank that is to answer: nobody else will.
    if (!this.#own.has(question)) this.#waiting.wait(words, state, STATE.open, PATIENCE_MS);
    const now = Atomics.load(words, state);
    return now === STATE.open ? undefined : now === STATE.yes;
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
