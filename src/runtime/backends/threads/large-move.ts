/**
 * Large moves within a world's shared memory by the host's memcpy, which stores whole lines without loading them first. Of what
 * JavaScript has, `Buffer.fill` with a value as long as the range comes down to it, without FFI; `TypedArray.set` and
 * WebAssembly's `memory.copy` move shared memory word by word.
 */
import type { Heap } from "./heap.ts";

/** @returns `(to, from, bytes)` of stretches that lie apart; numbers above 2^31 may have wrapped into i32 */
export function largeMove(heap: Pick<Heap, "words">): (to?: number, from?: number, bytes?: number) => void {
  return (to = 0, from = 0, bytes = 0) => {
    const [target, source, length] = [to >>> 0, from >>> 0, bytes >>> 0];
    const { buffer } = heap.words(Math.max(target, source) + length);
    Buffer.from(buffer, target, length).fill(new Uint8Array(buffer, source, length));
  };
}
