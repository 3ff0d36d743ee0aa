/** Whether foreign libraries can be called. Separate from koffi.ts, so that the package's types do not need koffi's. */
import { type Unavailable, UnavailableError } from "../../core/index.ts";
import { koffi } from "./koffi.ts";

/** Says why no foreign library can be called here; `undefined` where they can. */
export function ffiProblem(): Unavailable | undefined {
  try {
    koffi();
    return undefined;
  } catch (error) {
    if (error instanceof UnavailableError) return error.unavailable;
    throw error;
  }
}
