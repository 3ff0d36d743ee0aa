/** Leaving a process in which a foreign library is stuck. */
import { koffi } from "./koffi.ts";

/**
 * Ends the process at once. `process.exit` waits for the pool's threads, hence for ever when one of them is stuck in a
 * foreign library; `_exit` of the C library does not. Output must have been written before.
 */
export function exitNow(code: number): never {
  if (process.platform !== "win32") {
    try {
      koffi().load(null).func("_exit", "void", ["int"])(code);
    } catch {
      // Without FFI nothing can be stuck in it.
    }
  }
  process.exit(code);
}
