/**
 * For tests of collectives on devices, in functions that are sent to ranks: the tensors that they call with, what these hold
 * and what they should. The tensors lie within larger ones, all at the same place, which is an even one or not.
 */
import type { Tensor, World } from "chorale";

/** Element `i` of what rank `of` brings. */
export const value = (of: number, i: number): number => 1000 * of + i;

/** Tensors of an own part and of as many parts as there are ranks, to read from (`own`, `wide`) and to write to (`result`, `parts`). */
export function rankBuffers(world: World, part: number, skip: number) {
  const { rank, size } = world;
  const make = (count: number) => world.tensor("i32", [count + skip]).slice(skip);
  const [own, wide, result, parts] = [make(part), make(size * part), make(part), make(size * part)];
  /** Fills those that are read with this rank's values, the others with -1. */
  const fill = () => {
    for (const t of [own, wide]) {
      world.upload(
        t,
        Int32Array.from({ length: t.size }, (_, i) => value(rank, i)),
      );
    }
    for (const t of [result, parts]) world.upload(t, new Int32Array(t.size).fill(-1));
  };
  return { own, wide, result, parts, fill };
}

/** Gives what compares a device's tensor, or an array of the host's, with what it should hold, and adds what is wrong to `found`. */
export const checker =
  (world: World, found: string[]) =>
  (what: string, got: Tensor<"i32"> | Int32Array, want: (i: number) => number): void => {
    const values = got instanceof Int32Array ? got : (world.download(got) as Int32Array);
    const at = values.findIndex((one, i) => one !== want(i));
    if (at >= 0) found.push(`${what}: element ${at} is ${values[at]}, not ${want(at)}`);
  };
