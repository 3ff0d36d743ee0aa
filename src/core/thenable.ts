/** The one check for functions that must be synchronous: their work must all be issued when they return. */

/**
 * Whether such a function returned a thenable. What that does later is its own affair: a failure of it is dropped, for
 * it would hide the error that the caller is about to throw.
 */
export function isThenable(returned: unknown): boolean {
  const then: unknown = (returned as PromiseLike<unknown> | null | undefined)?.then;
  if (typeof then !== "function") return false;
  void (returned as PromiseLike<unknown>).then(undefined, () => {});
  return true;
}
