/** Loads the library of algorithms before a call needs it. */
import { libraryPlans } from "./algorithm-names.ts";
import type { Choices } from "./choices.ts";
import { SERVED_COLLECTIVES } from "./served.ts";

/**
 * Loads the library of algorithms, 60 to 110 ms, on a turn of the event loop that has nothing else to do, where the choices
 * name a plan: otherwise the first call that one serves would. `isOpen`: whether anybody may still call.
 */
export function loadEarly(choices: Choices, isOpen: () => boolean): void {
  if (SERVED_COLLECTIVES.every((op) => choices.firstPlanBytes(op) === Number.POSITIVE_INFINITY)) return;
  setImmediate(() => {
    try {
      if (isOpen()) libraryPlans();
    } catch {
      // The call that needs it says what is wrong.
    }
  });
}
