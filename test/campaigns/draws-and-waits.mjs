/** What campaigns draw, wait and tell with: the same draws for a seed, so that a run can be repeated. */

/** Numbers from 0 to 1 (Numerical Recipes' generator). */
export function drawsOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** The same for many draws (mulberry32): ranks draw the calls that they make with it, all of them alike. */
export function manyDrawsOf(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Waits until `what` holds, for `ms` at most. @returns whether it does */
export async function until(what, ms) {
  const end = Date.now() + ms;
  while (!what() && Date.now() < end) await sleep(10);
  return what();
}

/** Prints a record for whoever reads this process's lines. */
export const say = (what) => console.log(JSON.stringify(what));
