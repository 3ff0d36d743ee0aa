/** The numbers of a communicator's calls: what each is as a fingerprint, and its place in its lane. */
import { type DType, type ReduceOp, show } from "../../core/index.ts";
import { hashNumbers, packCall, type WireOp } from "../comm/index.ts";
import { COLLECTIVE, type Fingerprint, type Lane } from "../memory/index.ts";

/** One call of a lane. */
export interface Arrival {
  readonly lane: Lane;
  readonly seq: number;
  readonly print: Fingerprint;
  /** Text for what the fingerprint holds only as a hash. */
  readonly hashed?: () => string;
}

/** Number of the members' joining among a group's collectives. */
export const JOIN_SEQ = 0;

/** Flag in the first word of a send or receive: it is part of a batch, which engines may transfer differently. */
export const IN_BATCH = 1 << 30;
/** Flag in the first word of an all-reduce, on engines where all members must agree on it: it is in place. */
export const IN_PLACE = IN_BATCH;
/** Both flags are this bit of the first word: no call has both. */
export const MARK = IN_BATCH;

/** The third word of calls below 2^32 elements that have nothing else to agree on. */
const SMALL_HASH = hashNumbers([0]);

/** A call's place in the group's order of operations, from 0: collective 0 of the lane is the members' joining. */
export const placeOf = ({ lane, seq }: Pick<Arrival, "lane" | "seq">): number =>
  lane.kind === "collective" ? seq - 1 : seq;

/** What a call has besides its buffers. */
export interface Extras {
  readonly root?: number | undefined;
  readonly peer?: number | undefined;
  /** For a send or receive: it is in no batch, and meets a call that is in none. */
  readonly outsideBatch?: boolean;
  readonly redop?: ReduceOp | undefined;
  readonly counts?: readonly number[] | undefined;
  /** What is done behind it, on all ranks the same. */
  readonly epilogue?: { readonly agreed: string } | undefined;
  /** What the call names to serve it. */
  readonly algorithm?: string | undefined;
  readonly inPlace?: boolean;
  readonly sendCounts?: readonly number[] | undefined;
  readonly recvCounts?: readonly number[] | undefined;
}

/** How words end that tell of an epilogue. */
export const BEHIND_IT = " behind it";

/** What all ranks agree on and whose hash alone is published. */
function hashedInWords(extras: Extras): string {
  const { redop, counts } = extras;
  const scalar = typeof redop === "object" ? [`scalar ${show(redop.scalar)}`] : [];
  return [...scalar, ...wordsOf(extras), ...(counts === undefined ? [] : [`counts [${counts.join(", ")}]`])].join(
    " and ",
  );
}

/** Of that, what is text. */
function wordsOf({ epilogue, algorithm }: Extras): readonly string[] {
  return [
    ...(epilogue === undefined ? [] : [`${epilogue.agreed}${BEHIND_IT}`]),
    ...(algorithm === undefined ? [] : [`algorithm ${algorithm}`]),
  ];
}

/** Counts the calls of one communicator by lane. */
export class CallSequence {
  /** Call 0 is the members' joining. */
  #collective = 1;
  readonly #sent: number[];
  readonly #received: number[];
  /** What pairs of members agree on within collectives. */
  readonly #exchanged: number[];

  constructor(size: number) {
    this.#sent = Array(size).fill(0);
    this.#received = Array(size).fill(0);
    this.#exchanged = Array(size).fill(0);
  }

  /** Place of the next collective. */
  get next(): number {
    return this.#collective - 1;
  }

  /** The next collective, with the three words of its fingerprint. */
  collective(call: number, count: number, hash: number): Arrival {
    return { lane: COLLECTIVE, seq: this.#collective++, print: { call, count, hash } };
  }

  /** The next collective, which says what an earlier one said. */
  again({ print }: Arrival): Arrival {
    return { lane: COLLECTIVE, seq: this.#collective++, print };
  }

  /** The next collective without counts or scalar. @param part elements of a part @param mark IN_PLACE, or 0 */
  plain(op: WireOp, dtype: DType, part: number, redop: ReduceOp | undefined, mark: number): Arrival {
    const hash = part < 2 ** 32 ? SMALL_HASH : hashNumbers([Math.floor(part / 2 ** 32)]);
    return this.collective(packCall(op, dtype, redop, 0) | mark, part | 0, hash);
  }

  /** The next call of an operation. @param part elements of a part, on which all ranks must agree */
  of(op: WireOp, dtype: DType, part: number, extras: Extras): Arrival {
    const { redop, root = 0, peer } = extras;
    const scalar = typeof redop === "object" ? [redop.scalar] : [];
    const words = wordsOf(extras);
    const text = words.flatMap((one) => [...Buffer.from(one)]);
    const hash = hashNumbers([...(extras.counts ?? []), ...scalar, ...text, Math.floor(part / 2 ** 32)]);
    if (peer === undefined) {
      const call = packCall(op, dtype, redop, root) | (extras.inPlace === true ? IN_PLACE : 0);
      const arrival = this.collective(call, part | 0, hash);
      const isPlain = scalar.length === 0 && extras.counts === undefined && words.length === 0;
      return isPlain ? arrival : { ...arrival, hashed: () => hashedInWords(extras) };
    }
    const counters = op === "send" ? this.#sent : this.#received;
    const seq = counters[peer] ?? 0;
    counters[peer] = seq + 1;
    const lane: Lane = { kind: op === "send" ? "send" : "recv", peer };
    const call = packCall(op, dtype, undefined, peer) | (extras.outsideBatch === true ? 0 : IN_BATCH);
    return { lane, seq, print: { call, count: part | 0, hash } };
  }

  /** What an all-to-all of varying sizes sends and receives, pair by pair: its counts differ between ranks and must fit. */
  pairs(dtype: DType, member: number, sendCounts: readonly number[], recvCounts: readonly number[]): Arrival[] {
    const side = (kind: "give" | "take", peer: number, seq: number, count: number): Arrival => {
      const call = packCall(kind === "give" ? "send" : "recv", dtype, undefined, peer);
      const hash = hashNumbers([Math.floor(count / 2 ** 32)]);
      return { lane: { kind, peer }, seq, print: { call, count: count | 0, hash } };
    };
    return sendCounts.flatMap((count, peer) => {
      if (peer === member) return [];
      const seq = this.#exchanged[peer] ?? 0;
      this.#exchanged[peer] = seq + 1;
      return [side("give", peer, seq, count), side("take", peer, seq, recvCounts[peer] ?? 0)];
    });
  }

  /** Runs `fn`; if it throws, the numbers of its calls are taken back. */
  atomically<T>(fn: () => T): T {
    const goBack = this.#mark();
    try {
      return fn();
    } catch (error) {
      goBack();
      throw error;
    }
  }

  /** Runs `fn`, whose calls are not made now and take no numbers. */
  apart<T>(fn: () => T): T {
    const goBack = this.#mark();
    try {
      return fn();
    } finally {
      goBack();
    }
  }

  #mark(): () => void {
    const collective = this.#collective;
    const lists = [this.#sent, this.#received, this.#exchanged].map((list) => ({ list, before: [...list] }));
    return () => {
      this.#collective = collective;
      for (const { list, before } of lists) list.splice(0, list.length, ...before);
    };
  }
}
