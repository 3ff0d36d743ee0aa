/** What every backend does with the groups of its world: it numbers their openings, and closes them when the world is closed. */
import type { Communicator } from "./contract.ts";

/** Counts how often this rank has opened a group of a name and ranks: the n-th openings of all members belong together. */
export class GroupOpenings {
  readonly #counts = new Map<string, number>();

  /** The number of this opening, from 0. */
  next(name: string, ranks: readonly number[]): number {
    const key = `${name}\n${ranks.join(",")}`;
    const nth = this.#counts.get(key) ?? 0;
    this.#counts.set(key, nth + 1);
    return nth;
  }
}

/** Closes communicators in order, the others too when one cannot. @returns the first failure, in an object: any value can be thrown */
export async function closeEach(
  communicators: Iterable<Pick<Communicator, "close">>,
): Promise<{ readonly error: unknown } | undefined> {
  let first: { readonly error: unknown } | undefined;
  for (const communicator of communicators) {
    try {
      await communicator.close();
    } catch (error) {
      first ??= { error };
    }
  }
  return first;
}
