/** Functions whose work is all issued when they return: what an asynchronous one does later would be left out. */
import { InvalidArgumentError, isThenable } from "../../core/index.ts";
import { described } from "../../core/internal.ts";

/**
 * Runs `fn`.
 * @param isFine says of a thenable that it is no promise of an asynchronous function
 * @throws what `fn` throws; InvalidArgumentError when it is no function, or returns a promise
 */
export function callSynchronous<A extends readonly unknown[]>(
  fn: (...args: A) => void,
  args: A,
  isFine: (returned: object) => boolean = () => false,
): void {
  if (typeof fn !== "function") throw new InvalidArgumentError("fn", fn, "a synchronous function");
  const returned = (fn as (...args: A) => unknown)(...args);
  if ((typeof returned === "object" && returned !== null && isFine(returned)) || !isThenable(returned)) return;
  throw new InvalidArgumentError("fn", described("a function that returns a promise"), "a synchronous function");
}
