/** A pause of this thread, for loops that look at shared memory on which nothing can be waited for. */

const bed = new Int32Array(new SharedArrayBuffer(4));

/** Lets other threads run for `ms`, or about as long. Also on the main thread. */
export function nap(ms: number): void {
  Atomics.wait(bed, 0, 0, ms);
}
