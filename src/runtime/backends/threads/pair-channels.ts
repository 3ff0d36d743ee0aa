/**
 * Point to point: one ring of message descriptors per ordered pair of ranks. The receiver copies straight from the
 * sender's buffer when both are there. A sender that is waited for, and whose receiver does not come, copies its data
 * into communication memory and is done, at once for small messages, after a while for large ones, so two ranks that
 * both send first complete. At most `PAIR.numMessages` messages of a pair are under way; beyond that a sender waits
 * for its receiver.
 */
import { type ChoraleError, MismatchError, OutOfMemoryError } from "../../../core/index.ts";
import { unpackCall } from "../../comm/index.ts";
import type { FlightRing } from "./flight-ring.ts";
import type { Heap } from "./heap.ts";
import { rankBlock, wake } from "./host.ts";
import { type groupLayout, MESSAGE, MESSAGE_STATE, PAIR, RANK, WORLD } from "./layout.ts";
import type { ProtocolExports } from "./protocol.ts";
import { ThreadsWork, type WorkEngine } from "./threads-work.ts";

/** Messages up to this size are buffered as soon as the receiver is seen not to be there. */
const EAGER_BYTES = 256 * 1024;
/** How long a larger one waits for its receiver before it is buffered. */
const RENDEZVOUS_MS = 5;

export class PairWork<T> extends ThreadsWork<T> {
  readonly sending: boolean;
  /** Index of the message's first word; 0 until it is posted. */
  slot = 0;
  /** When the receiver was first missed; 0 before. */
  missedAt = 0;
  /** The input already lies in a block of its own, which the receiver frees. */
  detached = false;

  constructor(engine: WorkEngine, seq: number, op: "send" | "recv", peer: number) {
    super(engine, seq, op);
    this.sending = op === "send";
    this.peer = peer;
  }

  override nextLook(now: number): number {
    const late = this.sending && this.slot !== 0 && this.missedAt !== 0;
    return late ? Math.max(now + 0.1, this.missedAt + RENDEZVOUS_MS) : Number.POSITIVE_INFINITY;
  }
}

/** What this rank knows of one peer. */
interface Peer {
  readonly rank: number;
  readonly sends: PairWork<unknown>[];
  readonly receives: PairWork<unknown>[];
  /** Addresses of the two rings, 0 until they are needed, and views that cover them. */
  outgoing: number;
  incoming: number;
  outWords: Int32Array;
  inWords: Int32Array;
  numPosted: number;
  numTaken: number;
}

/** The group's engine, as far as its point-to-point messages use it. */
interface PairEngine extends WorkEngine {
  readonly me: number;
  readonly size: number;
  readonly ranks: readonly number[];
  readonly block: number;
  readonly words: Int32Array;
  readonly layout: ReturnType<typeof groupLayout>;
  readonly heap: Heap;
  readonly wasm: ProtocolExports;
  readonly flight: FlightRing;
  finishWork(work: ThreadsWork<unknown>): void;
  failGroup(error: ChoraleError): ChoraleError;
}

export class PairChannels {
  readonly #engine: PairEngine;
  readonly #firstMessage: number;
  readonly #peers: (Peer | undefined)[];
  /** Those with unfinished messages. */
  readonly #active: Peer[] = [];
  #pending = 0;

  constructor(engine: PairEngine, firstMessage: number) {
    this.#engine = engine;
    this.#firstMessage = firstMessage;
    this.#peers = new Array<Peer | undefined>(engine.size).fill(undefined);
  }

  get hasPending(): boolean {
    return this.#pending > 0;
  }
  get numPending(): number {
    return this.#pending;
  }

  /** Queues a send or receive and lets it begin. */
  submit(work: PairWork<unknown>): void {
    const { driver, flight, block } = this.#engine;
    work.entry = flight.note(block, work.seq, work.call, work.count, 0);
    const peer = this.#peer(work.peer);
    if (peer.sends.length + peer.receives.length === 0) this.#active.push(peer);
    (work.sending ? peer.sends : peer.receives).push(work);
    this.#pending++;
    work.state = "running";
    if (work.sending) this.#pumpSends(peer, false);
    else this.#pumpReceives(peer);
    this.#retire();
    if (!work.settled) driver.activate(this.#engine);
  }

  /** The oldest unfinished message of every pair: the ones that deadlines are checked for. */
  heads(): PairWork<unknown>[] {
    return this.#active.flatMap(({ sends, receives }) => [...sends.slice(0, 1), ...receives.slice(0, 1)]);
  }

  /** The message that waits for member `r` to send, or to make room: if it has left, for ever. */
  waitingFor(r: number): PairWork<unknown> | undefined {
    const peer = this.#peers[r];
    const receive = peer?.receives[0];
    if (peer === undefined) return undefined;
    if (receive !== undefined) {
      const isThere =
        peer.incoming !== 0 &&
        ((Atomics.load(peer.inWords, (peer.incoming + PAIR.posted) / 4) - peer.numTaken) | 0) > 0;
      if (!isThere) return receive;
    }
    return peer.sends.find((work) => work.slot === 0);
  }

  /** Every unfinished message. */
  all(): PairWork<unknown>[] {
    return this.#active.flatMap(({ sends, receives }) => [...sends, ...receives]);
  }

  takePending(): PairWork<unknown>[] {
    const all = this.#active.flatMap(({ sends, receives }) => [...sends.splice(0), ...receives.splice(0)]);
    this.#active.length = 0;
    this.#pending = 0;
    return all;
  }

  /** Moves what can be moved; with `buffering`, also copies sends away whose receivers do not come. */
  pump(buffering: boolean): boolean {
    if (this.#pending === 0) return false;
    const before = this.#pending;
    for (let i = 0; i < this.#active.length; i++) {
      const peer = this.#active[i] as Peer;
      if (peer.receives.length > 0) this.#pumpReceives(peer);
      if (peer.sends.length > 0) this.#pumpSends(peer, buffering);
    }
    this.#retire();
    return this.#pending !== before;
  }

  /** Drops peers without unfinished messages from the active ones. */
  #retire(): void {
    for (let i = this.#active.length - 1; i >= 0; i--) {
      const peer = this.#active[i] as Peer;
      if (peer.sends.length + peer.receives.length === 0) this.#active.splice(i, 1);
    }
  }

  #settle(queue: PairWork<unknown>[]): void {
    const work = queue.shift();
    if (work === undefined) return;
    this.#pending--;
    this.#engine.finishWork(work);
  }

  #pumpSends(peer: Peer, buffering: boolean): void {
    const { sends } = peer;
    for (const work of sends) if (work.slot === 0 && !this.#post(peer, work)) break;
    while (sends.length > 0 && this.#isSent(peer, sends[0] as PairWork<unknown>, buffering)) this.#settle(sends);
  }

  /** Puts a message into the ring. @returns false when the ring is full */
  #post(peer: Peer, work: PairWork<unknown>): boolean {
    if (peer.outgoing === 0) {
      peer.outgoing = this.#ring(this.#engine.me, peer.rank);
      peer.outWords = this.#engine.heap.words(peer.outgoing + PAIR.sizeBytes);
    }
    const { outWords: words, outgoing: block, numPosted: index } = peer;
    if (((index - Atomics.load(words, (block + PAIR.consumed) / 4)) | 0) >= PAIR.numMessages) return false;
    const slot = messageWord(block, index);
    words[slot + MESSAGE.dtype / 4] = work.call;
    words[slot + MESSAGE.count / 4] = work.count;
    words[slot + MESSAGE.address / 4] = work.input;
    words[slot] = work.detached ? MESSAGE_STATE.buffered : MESSAGE_STATE.posted;
    Atomics.store(words, (block + PAIR.posted) / 4, index + 1);
    peer.numPosted = index + 1;
    work.slot = slot;
    work.message = index;
    this.#wake(peer.rank);
    return true;
  }

  /** Whether a posted message no longer needs the sender's buffer; copies it away when it is time to. */
  #isSent(peer: Peer, work: PairWork<unknown>, buffering: boolean): boolean {
    if (work.slot === 0) return false;
    if (work.detached) return true;
    const words = peer.outWords;
    const state = Atomics.load(words, work.slot);
    if (state === MESSAGE_STATE.consumed) return true;
    if (state !== MESSAGE_STATE.posted || !buffering) return false;
    const { bytes } = work;
    if (bytes > EAGER_BYTES) {
      const now = performance.now();
      if (work.missedAt === 0) work.missedAt = now;
      if (now - work.missedAt < RENDEZVOUS_MS) return false;
    }
    const { heap, wasm } = this.#engine;
    let copy: number;
    try {
      copy = heap.allocate(bytes, false);
    } catch (error) {
      // No room: the message waits for its receiver, as a rendezvous.
      if (error instanceof OutOfMemoryError) return false;
      throw error;
    }
    const { posted, buffering: claimed, buffered } = MESSAGE_STATE;
    if (Atomics.compareExchange(words, work.slot, posted, claimed) !== posted) {
      heap.free(copy);
      return false;
    }
    wasm.copy(copy, work.input, bytes);
    words[work.slot + MESSAGE.address / 4] = copy;
    Atomics.store(words, work.slot, buffered);
    this.#wake(peer.rank);
    return true;
  }

  #pumpReceives(peer: Peer): void {
    const { receives } = peer;
    while (receives.length > 0 && this.#receive(peer, receives[0] as PairWork<unknown>)) this.#settle(receives);
  }

  #receive(peer: Peer, work: PairWork<unknown>): boolean {
    const { heap, wasm, me } = this.#engine;
    if (peer.incoming === 0) {
      peer.incoming = this.#ring(peer.rank, me);
      peer.inWords = heap.words(peer.incoming + PAIR.sizeBytes);
    }
    const { inWords: words, incoming: block, numTaken: index } = peer;
    if (((Atomics.load(words, (block + PAIR.posted) / 4) - index) | 0) <= 0) return false;
    const slot = messageWord(block, index);
    if (!this.#agrees(peer, work, words, slot)) return false;
    let state = Atomics.load(words, slot);
    if (state === MESSAGE_STATE.posted) {
      state = Atomics.compareExchange(words, slot, MESSAGE_STATE.posted, MESSAGE_STATE.taking);
    }
    if (state === MESSAGE_STATE.buffering) return false;
    const address = words[slot + MESSAGE.address / 4]! >>> 0;
    wasm.copy(work.output, address, work.bytes);
    if (state === MESSAGE_STATE.buffered) heap.free(address);
    Atomics.store(words, slot, MESSAGE_STATE.consumed);
    Atomics.store(words, (block + PAIR.consumed) / 4, index + 1);
    peer.numTaken = index + 1;
    this.#wake(peer.rank);
    return true;
  }

  /** Fails the group when sender and receiver mean different messages. */
  #agrees(peer: Peer, work: PairWork<unknown>, words: Int32Array, slot: number): boolean {
    const theirs = words[slot + MESSAGE.dtype / 4]!;
    const count = words[slot + MESSAGE.count / 4]! >>> 0;
    if (count === work.count && ((theirs ^ work.call) & DTYPE_BITS) === 0) return true;
    const { ranks, me, name } = this.#engine;
    const [from, to] = [ranks[peer.rank] as number, ranks[me] as number];
    const text = (call: number, n: number) => `${unpackCall(call).dtype}[${n}]`;
    this.#engine.failGroup(
      new MismatchError(
        `mismatch at message #${peer.numTaken} from rank ${from} to rank ${to} of group ${name}: the sizes or dtypes differ`,
        [
          { rank: from, call: `send(${text(theirs, count)}, peer ${me})` },
          { rank: to, call: `recv(${text(work.call, work.count)}, peer ${peer.rank})` },
        ],
      ),
    );
    return false;
  }

  /** Wakes a peer that sleeps. */
  #wake(peer: number): void {
    const { heap, words, ranks } = this.#engine;
    if (Atomics.load(words, WORLD.sleepers) === 0) return;
    const rank = ranks[peer] as number;
    if (Atomics.load(words, (rankBlock(rank) + RANK.sleeping) / 4) > 0) wake(heap, rank);
  }

  #peer(rank: number): Peer {
    const known = this.#peers[rank];
    if (known !== undefined) return known;
    const { words } = this.#engine;
    const peer: Peer = {
      rank,
      sends: [],
      receives: [],
      outgoing: 0,
      incoming: 0,
      outWords: words,
      inWords: words,
      numPosted: this.#firstMessage,
      numTaken: this.#firstMessage,
    };
    this.#peers[rank] = peer;
    return peer;
  }

  /** The ring from one rank to another, made by whoever needs it first. */
  #ring(from: number, to: number): number {
    const { size, layout, heap, words, block } = this.#engine;
    const at = (block + layout.pairs) / 4 + from * size + to;
    const known = Atomics.load(words, at) >>> 0;
    if (known !== 0) return known;
    const made = heap.allocate(PAIR.sizeBytes);
    const ring = heap.words(made + PAIR.sizeBytes);
    ring[(made + PAIR.posted) / 4] = this.#firstMessage;
    ring[(made + PAIR.consumed) / 4] = this.#firstMessage;
    const before = Atomics.compareExchange(words, at, 0, made) >>> 0;
    if (before === 0) return made;
    heap.free(made);
    return before;
  }
}

/** Where `packCall` keeps the dtype. */
const DTYPE_BITS = 15 << 6;

/** Where message `index` of a ring stands, as an index of words; `index` may have wrapped. */
export function messageWord(block: number, index: number): number {
  return (block + PAIR.messages + (index & (PAIR.numMessages - 1)) * PAIR.messageBytes) / 4;
}
