/** C's memcpy: V8's own copies to and from shared memory take three times as long. */
import { koffi } from "./koffi.ts";

/** Copies bytes to one address from another. */
export type MemoryCopy = (to: number, from: number, bytes: number) => void;

let bound: MemoryCopy | undefined;

/** Binds it. @throws UnavailableError without FFI */
export function copyMemory(): MemoryCopy {
  if (bound === undefined) {
    const memcpy = koffi().load(null).func("memcpy", "intptr_t", ["intptr_t", "intptr_t", "size_t"]);
    bound = (to, from, bytes) => void memcpy(to, from, bytes);
  }
  return bound;
}
