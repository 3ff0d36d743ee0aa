/** Messages of one collective between hosts: what a rank sends to and receives from members of other hosts, in rounds. */

import type { Carrier } from "./carrier.ts";
import type { HostLayout } from "./host-layout.ts";

/** Slots of messages: behind those of schedules and of exchanges in two parts. */
const MEETING_SLOTS = 2 ** 25 + 2 ** 22;
const PIECE_SLOTS = 2 ** 25 + 2 ** 23;
const ROUNDS = 4;
/** Pieces whose messages can be told apart. */
export const MAX_PIECES = 2 ** 22;

export interface Parcel {
  /** Group rank of the other end. */
  readonly peer: number;
  readonly bytes: Uint8Array;
}

const NOTHING = new Uint8Array(0);

export class ColumnMessages {
  readonly #carrier: Carrier;
  readonly #layout: HostLayout;

  constructor(carrier: Carrier, layout: HostLayout) {
    this.#carrier = carrier;
    this.#layout = layout;
  }

  /** Sends and receives messages of a piece. @param round of the piece, from 0 @param done all have left and are there */
  swap(piece: number, round: number, sends: readonly Parcel[], receives: readonly Parcel[], done: () => void): void {
    this.#swap(PIECE_SLOTS + piece * ROUNDS + round, sends, receives, done);
  }

  /** Sends messages of a piece. @param done all have left */
  send(piece: number, round: number, sends: readonly Parcel[], done: () => void): void {
    this.#swap(PIECE_SLOTS + piece * ROUNDS + round, sends, [], done);
  }

  /**
   * Makes room for messages of a piece, so that the others need not wait for it when they have come to them.
   * @returns takes, once, what is to be done when they are there
   */
  expect(piece: number, round: number, receives: readonly Parcel[]): (done: () => void) => void {
    let areThere = false;
    let then: (() => void) | undefined;
    this.#swap(PIECE_SLOTS + piece * ROUNDS + round, [], receives, () => {
      areThere = true;
      then?.();
    });
    return (done) => {
      if (areThere) done();
      else then = done;
    };
  }

  /** Has the messages for which `fn` makes room be asked for together. */
  together<T>(fn: () => T): T {
    this.#carrier.hold?.();
    try {
      return fn();
    } finally {
      // All groups of the rank share what is held: a call that throws must not leave the others without their grants.
      this.#carrier.release?.();
    }
  }

  /** Hears of the same column of every other host, through others. Columns that not all hosts have do nothing. */
  meet(done: () => void): void {
    const { hosts, host, column, numColumns } = this.#layout;
    const numHosts = hosts.length;
    const at = (index: number) => hosts[(index + numHosts) % numHosts]?.[column] ?? 0;
    const from = (step: number): void => {
      if (step >= numHosts || column >= numColumns) {
        done();
        return;
      }
      const sends = [{ peer: at(host + step), bytes: NOTHING }];
      const receives = [{ peer: at(host - step), bytes: NOTHING }];
      this.#swap(MEETING_SLOTS + Math.log2(step), sends, receives, () => from(2 * step));
    };
    from(1);
  }

  #swap(slot: number, sends: readonly Parcel[], receives: readonly Parcel[], done: () => void): void {
    let left = sends.length + receives.length + 1;
    const one = () => {
      if (--left === 0) done();
    };
    for (const { peer, bytes } of sends) this.#carrier.send(peer, slot, bytes, 0, one);
    for (const { peer, bytes } of receives) this.#carrier.receive(peer, slot, bytes, 0, one);
    one();
  }
}
