/**
 * A world of ranks that share memory, as one of them sees it, or its launcher: threads of one process, or processes that
 * have mapped the same file. All else in this folder is the same for both.
 */
import type { ChoiceDocument, WasmMemory } from "../../executor/internal.ts";

/**
 * How ranks sleep on words of the shared memory and wake each other. Words are counted from the memory's beginning. A sleep
 * may end early: whoever sleeps looks again.
 */
export interface WordWaiting {
  /** Blocks this thread for at most `ms`, unless the word is not `value` any more. */
  wait(words: Int32Array, index: number, value: number, ms: number): void;
  /** As `wait`, without blocking; `undefined` when the word has changed already. Only one at a time. */
  waitAsync(words: Int32Array, index: number, value: number): Promise<unknown> | undefined;
  /** Ends this thread's own `waitAsync`. */
  endAsync(words: Int32Array, index: number): void;
  notify(words: Int32Array, index: number, count?: number): void;
}

/** How much of a memory may be used, where it does not grow by itself. */
export interface Growth {
  /** Bytes that may be used now, on all ranks. */
  readonly sizeBytes: number;
  /**
   * Makes more of it usable: `wantedBytes` in all, or `leastBytes` where there is no room for so many. One rank at a time
   * calls it. @throws Error that says why there is no room
   */
  grow(leastBytes: number, wantedBytes: number): void;
}

export interface SharedWorld {
  /** The backend's name. */
  readonly kind: string;
  readonly ranks: number;
  readonly generation: number;
  readonly limitBytes: number;
  readonly memory: WasmMemory;
  /** Of processes: threads wait by `Atomics`, and their memory grows by itself. */
  readonly waiting?: WordWaiting;
  readonly growth?: Growth;
  /** Called when the rank's end is closed. */
  readonly onClosed?: () => void;
  /** Tables that go before the shipped ones. */
  readonly choices?: ChoiceDocument;
}

/** Threads of one process: V8 knows who waits. */
export const THREAD_WAITING: WordWaiting = {
  wait: (words, index, value, ms) => void Atomics.wait(words, index, value, ms),
  waitAsync: (words, index, value) => {
    const result = Atomics.waitAsync(words, index, value);
    return result.async ? result.value : undefined;
  },
  endAsync: (words, index) => void Atomics.notify(words, index),
  notify: (words, index, count) => void Atomics.notify(words, index, count),
};
