/**
 * How processes sleep on words of the memory that they share: by futex where the system has it, in short naps elsewhere.
 * Both for a thread that blocks and for an event loop, which sleeps on a thread of Node's pool.
 */
import { addressOf, futexCalls } from "../../../foreign/native/index.ts";
import { nap } from "../../memory/index.ts";
import type { WordWaiting } from "../threads/internal.ts";

/**
 * Longest sleep of a thread of the pool, ms: `process.exit` waits for it, and so do others that need a thread when a wait
 * could not be ended.
 */
const MAX_ASYNC_MS = 100;
/** Longest nap where nobody can be woken, ms. */
const NAP_MS = 1;
/** As many as there are. */
const EVERYBODY = 2 ** 31 - 1;

/** @param memory that all of them have mapped; its address does not change */
export function processWaiting(memory: SharedArrayBuffer): WordWaiting {
  const futex = futexCalls();
  if (futex === undefined) return NAPS;
  const base = Number(addressOf(new Uint8Array(memory)));
  return {
    wait: (_, index, value, ms) => futex.wait(base + 4 * index, value, ms),
    waitAsync: (words, index, value) =>
      Atomics.load(words, index) === value ? futex.waitAsync(base + 4 * index, value, MAX_ASYNC_MS) : undefined,
    endAsync: (words, index) => {
      // Also when it has not begun to sleep: it finds another value then.
      Atomics.add(words, index, 1);
      futex.wake(base + 4 * index, 1);
    },
    notify: (_, index, count = EVERYBODY) => futex.wake(base + 4 * index, count),
  };
}

const NAPS: WordWaiting = {
  wait: (words, index, value, ms) => {
    if (Atomics.load(words, index) === value) nap(Math.min(ms, NAP_MS));
  },
  waitAsync: (words, index, value) =>
    Atomics.load(words, index) === value ? new Promise((resolve) => setTimeout(resolve, NAP_MS)) : undefined,
  endAsync: () => {},
  notify: () => {},
};
