/** Stretches of an address range that are free, in order and with no two that touch; the first that is long enough is used. */

/** What is given away begins on a cache line, and has whole ones. */
const UNIT_BYTES = 128;
export const wholeUnits = (bytes: number): number => Math.max(UNIT_BYTES, Math.ceil(bytes / UNIT_BYTES) * UNIT_BYTES);

export class FreeList {
  readonly #free: { at: number; bytes: number }[];
  readonly #taken = new Map<number, number>();

  constructor(from: number, to: number) {
    this.#free = to > from ? [{ at: from, bytes: to - from }] : [];
  }

  /** The most that can be taken at once, bytes. */
  get mostBytes(): number {
    return this.#free.reduce((most, { bytes }) => Math.max(most, bytes), 0);
  }

  /** @returns where it begins; `undefined` where no stretch is as long */
  take(bytes: number): number | undefined {
    const needed = wholeUnits(bytes);
    const i = this.#free.findIndex((one) => one.bytes >= needed);
    const found = this.#free[i];
    if (found === undefined) return undefined;
    const { at } = found;
    if (found.bytes === needed) this.#free.splice(i, 1);
    else {
      found.at += needed;
      found.bytes -= needed;
    }
    this.#taken.set(at, needed);
    return at;
  }

  /** Gives back what begins at an address; what was not taken there is ignored. */
  give(at: number): void {
    const bytes = this.#taken.get(at);
    if (bytes === undefined) return;
    this.#taken.delete(at);
    const free = this.#free;
    let [low, high] = [0, free.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((free[middle]?.at ?? 0) < at) low = middle + 1;
      else high = middle;
    }
    const [before, after] = [free[low - 1], free[low]];
    const joinsBefore = before !== undefined && before.at + before.bytes === at;
    const joinsAfter = after !== undefined && at + bytes === after.at;
    if (joinsBefore) before.bytes += bytes;
    if (joinsAfter) {
      after.at = at;
      after.bytes += bytes;
    }
    if (joinsBefore && joinsAfter) {
      before.bytes += after.bytes - bytes;
      free.splice(low, 1);
    } else if (!joinsBefore && !joinsAfter) free.splice(low, 0, { at, bytes });
  }
}
