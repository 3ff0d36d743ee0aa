/**
 * Batches: several operations issued by one synchronous function, started together or not at all. The function's scope
 * is the batch, so none can be left open, whatever the function does.
 */
import { InvalidArgumentError, isThenable } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { Communicator } from "./contract.ts";
import { SettledWork } from "./work.ts";

/**
 * Runs a batch's function to its end.
 * @param cancel takes back what was collected; called with the reason before anything is thrown
 * @throws what `fn` throws
 * @throws InvalidArgumentError when `fn` is no function, and when it returns a thenable: its later part would run outside the batch
 */
export function collectBatch(
  fn: (group: Communicator) => void,
  group: Communicator,
  cancel: (reason: string) => void,
): void {
  if (typeof fn !== "function") throw new InvalidArgumentError("fn", fn, "a function that makes the batch's calls");
  let returned: unknown;
  try {
    returned = (fn as (group: Communicator) => unknown)(group);
  } catch (error) {
    cancel("the batch's function threw, so nothing of it was sent");
    throw error;
  }
  if (isThenable(returned)) {
    cancel("the batch's function was asynchronous, so nothing of it was sent");
    throw new InvalidArgumentError(
      "fn",
      described("a function that returns a promise"),
      "a synchronous function; await the batch's work instead",
    );
  }
}

/** One call that an inert batch took note of. */
export interface InertCall {
  /** The Communicator's method. */
  readonly method: string;
  readonly args: readonly unknown[];
}

/**
 * Runs a batch's function against a communicator that sends nothing and takes note of the calls: for tests of code
 * that fills batches.
 * @param place what the communicator says of itself; rank 0 of 1 by default
 * @throws as `Communicator.batch` does
 * @example
 * inertBatch((group) => { group.send(new Float32Array(4), 1); }).map((call) => call.method) // ["send"]
 */
export function inertBatch(
  fn: (group: Communicator) => void,
  place: { readonly rank?: number; readonly size?: number; readonly group?: string } = {},
): readonly InertCall[] {
  const { rank = 0, size = 1, group = "inert" } = place;
  const calls: InertCall[] = [];
  const facts: Readonly<Record<string | symbol, unknown>> = {
    backend: "inert",
    group,
    rank,
    size,
    ranks: Object.freeze(Array.from({ length: size }, (_, r) => r)),
    generation: 1,
  };
  const inert = new Proxy(facts, {
    get(target, key) {
      if (typeof key === "symbol" || key === "then" || key in target) return target[key];
      return (...args: unknown[]) => {
        calls.push({ method: key, args });
        return new SettledWork<undefined>(calls.length - 1, key, group, { value: undefined });
      };
    },
  });
  collectBatch(fn, inert as unknown as Communicator, () => {});
  return calls;
}
