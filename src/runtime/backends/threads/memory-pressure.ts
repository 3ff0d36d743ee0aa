/**
 * Tells V8 what shared memory weighs. V8 does not count the bytes of a shared WebAssembly memory as its own, so nothing
 * makes it look for the memory of generations that ended: fifty rebuilds would hold fifty of them. A private buffer of
 * the same size, which is never touched and hence takes address space only, is counted, and lives as long as the memory.
 */
import type { WasmMemory } from "../../executor/index.ts";

const weights = new WeakMap<WasmMemory, ArrayBuffer>();
/** Enough for V8 to look at once; more would only take address space. */
const MAX_BYTES = 256 * 1024 * 1024;

/** Notes that this thread will not use `memory` any more. Never throws. */
export function weigh(memory: WasmMemory): void {
  try {
    weights.set(memory, new ArrayBuffer(Math.min(memory.buffer.byteLength, MAX_BYTES)));
  } catch {
    // No address space is left: V8 looks for garbage then by itself.
  }
}
