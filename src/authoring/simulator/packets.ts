/** Which packets lie where, and since when: intervals of a rank's scratch, in chunks (fractions for parts of chunks). */

interface Interval {
  readonly begin: number;
  readonly end: number;
  /** The record of the operation that sent them. */
  readonly record: number;
}

/** Cuts of chunks into parts are compared with this tolerance. */
const EPSILON = 1e-9;

/** What a reader of packets waits for: the first chunk that is not there, or nothing. */
export class PacketBoard {
  readonly #arrived = new Map<number, Interval[]>();
  readonly #waiting = new Map<number, (() => void)[]>();

  /** Packets for [begin, end) are there; wakes whoever waits for one of the chunks. */
  add(begin: number, end: number, record: number): void {
    for (let chunk = Math.floor(begin + EPSILON); chunk < end - EPSILON; chunk++) {
      const list = this.#arrived.get(chunk) ?? [];
      const piece = { begin: Math.max(begin, chunk), end: Math.min(end, chunk + 1), record };
      const at = list.findIndex((other) => other.begin > piece.begin);
      if (at < 0) list.push(piece);
      else list.splice(at, 0, piece);
      this.#arrived.set(chunk, list);
      const waiting = this.#waiting.get(chunk);
      if (waiting === undefined) continue;
      this.#waiting.delete(chunk);
      for (const wake of waiting) wake();
    }
  }

  /** The record that completed [begin, end), or undefined (then `wake` is called when it may be worth another look). */
  covers(begin: number, end: number, wake: () => void): number | undefined {
    let record = -1;
    for (let chunk = Math.floor(begin + EPSILON); chunk < end - EPSILON; chunk++) {
      let reach = Math.max(begin, chunk);
      const goal = Math.min(end, chunk + 1);
      for (const piece of this.#arrived.get(chunk) ?? []) {
        if (piece.begin > reach + EPSILON) break;
        if (piece.end > reach) {
          reach = piece.end;
          record = Math.max(record, piece.record);
        }
        if (reach >= goal - EPSILON) break;
      }
      if (reach < goal - EPSILON) {
        const waiting = this.#waiting.get(chunk);
        if (waiting === undefined) this.#waiting.set(chunk, [wake]);
        else waiting.push(wake);
        return undefined;
      }
    }
    return record;
  }
}
