/**
 * Has V8 look for the memory of generations that ended. It does not count the bytes of a shared WebAssembly memory as its
 * own, so nothing else makes it look: fifty rebuilds would hold fifty generations.
 */
import type { WasmMemory } from "../../executor/internal.ts";

/** How much may wait in this thread, bytes. Looking takes 5 to 20 ms. */
const MAX_WAITING_BYTES = 64 * 2 ** 20;
/**
 * More than any heap's limit: V8 looks for garbage before it makes such a buffer. The buffer is never touched, so it
 * takes address space only, and it is garbage at once. Lesser sizes, kept as long as the memory, were left to the
 * heuristics of V8, which differ: over 100 rebuilds of 16 MiB the process grew by 367 MB on Node 20 and by 612 MB on 24.
 */
const TOO_MUCH_BYTES = 2 ** 32;

/** What leaves a generation may refer to it a little longer, ms: an error that is handled, a call that is awaited. */
const LATER_MS = 200;

let waitingBytes = 0;
let later: NodeJS.Timeout | undefined;

/** Notes that this thread will not use `memory` any more. Never throws. */
export function noteEnded(memory: WasmMemory): void {
  waitingBytes += memory.buffer.byteLength;
  if (waitingBytes < MAX_WAITING_BYTES) return;
  waitingBytes = 0;
  // Not yet: what ends the generation still refers to it, and through it often to those before.
  setImmediate(look).unref();
  clearTimeout(later);
  later = setTimeout(look, LATER_MS).unref();
}

function look(): void {
  try {
    new ArrayBuffer(TOO_MUCH_BYTES);
  } catch {
    // No address space is left: V8 has looked before it says so.
  }
}
