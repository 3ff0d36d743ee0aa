/**
 * Objects that hold a handle of the driver are made by this room's factories alone, because the driver follows a wrong
 * handle to wherever it points. Other classes of the room call their constructors, which TypeScript therefore cannot hide:
 * each asks for a key that the package does not export.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";

/** The key of the constructors; never exported from the room. */
export const MADE_HERE: unique symbol = Symbol("made by chorale");
export type MadeHere = typeof MADE_HERE;

/** @throws InvalidArgumentError naming `factory`, for whoever calls the constructor of `what` without the key */
export function checkMade(key: unknown, what: string, factory: string): void {
  if (key === MADE_HERE) return;
  throw new InvalidArgumentError(
    `new ${what}()`,
    described("a handle that chorale did not make"),
    `a call of ${factory}`,
  );
}
