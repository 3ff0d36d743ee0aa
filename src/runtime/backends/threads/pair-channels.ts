/**
 * Point to point: one ring of message descriptors per ordered pair of ranks. The receiver copies straight from the
 * sender's buffer when both are there. A sender whose receiver does not come copies its data into communication memory
 * and is done, at once for small messages, after a while for large ones, so two ranks that both send first complete.
 * At most `PAIR.numMessages` messages of a pair are under way; beyond that a sender waits for its receiver.
 */
import { DTYPE_NAMES, MismatchError, OutOfMemoryError } from "../../../core/index.ts";
import { unpackCall } from "../../comm/index.ts";
import type { GroupEngine } from "./group-engine.ts";
import { rankBlock, wake } from "./host.ts";
import { MESSAGE, MESSAGE_STATE, PAIR, RANK, WORLD } from "./layout.ts";
import { ThreadsWork } from "./threads-work.ts";

/** Messages up to this size are buffered as soon as the receiver is seen not to be there. */
const EAGER_BYTES = 256 * 1024;
/** How long a larger one waits for its receiver before it is buffered. */
const RENDEZVOUS_MS = 5;

export class PairWork<T> extends ThreadsWork<T> {
  readonly sending: boolean;
  /** Index of the message's first word; 0 until it is posted. */
  slot = 0;
  postedAt = 0;
  /** The input already lies in a block of its own, which the receiver frees. */
  detached = false;

  constructor(engine: GroupEngine, seq: number, op: "send" | "recv", peer: number) {
    super(engine, seq, op);
    this.sending = op === "send";
    this.peer = peer;
  }

  override nextLook(now: number): number {
    return this.sending && this.slot !== 0
      ? Math.max(now + 0.1, this.postedAt + RENDEZVOUS_MS)
      : Number.POSITIVE_INFINITY;
  }
}

export class PairChannels {
  readonly #engine: GroupEngine;
  /** Messages in order, by peer. */
  readonly #sends = new Map<number, PairWork<unknown>[]>();
  readonly #receives = new Map<number, PairWork<unknown>[]>();
  readonly #blocks = new Map<number, number>();
  readonly #posted = new Map<number, number>();
  readonly #taken = new Map<number, number>();
  #pending = 0;

  constructor(engine: GroupEngine) {
    this.#engine = engine;
  }

  get hasPending(): boolean {
    return this.#pending > 0;
  }
  get numPending(): number {
    return this.#pending;
  }

  /** Queues a send or receive and lets it begin. */
  submit(work: PairWork<unknown>): void {
    const { flight, block, driver } = this.#engine;
    flight.issue(work, block);
    const queues = work.sending ? this.#sends : this.#receives;
    const queue = queues.get(work.peer);
    if (queue === undefined) queues.set(work.peer, [work]);
    else queue.push(work);
    this.#pending++;
    work.state = "running";
    this.pump();
    if (!work.settled) driver.activate(this.#engine);
  }

  /** The oldest unfinished message of every pair: the ones that deadlines are checked for. */
  heads(): PairWork<unknown>[] {
    if (this.#pending === 0) return [];
    return [...this.#sends.values(), ...this.#receives.values()].flatMap((queue) => queue.slice(0, 1));
  }

  takePending(): PairWork<unknown>[] {
    const all = [...this.#sends.values(), ...this.#receives.values()].flat();
    this.#sends.clear();
    this.#receives.clear();
    this.#pending = 0;
    return all;
  }

  pump(): boolean {
    if (this.#pending === 0) return false;
    let progressed = false;
    for (const queue of this.#receives.values()) if (this.#pumpReceives(queue)) progressed = true;
    for (const queue of this.#sends.values()) if (this.#pumpSends(queue)) progressed = true;
    return progressed;
  }

  #settle(work: PairWork<unknown>): void {
    this.#pending--;
    this.#engine.finishWork(work);
  }

  #pumpSends(queue: PairWork<unknown>[]): boolean {
    let progressed = false;
    for (const work of queue) {
      if (work.slot === 0) {
        if (!this.#post(work)) break;
        progressed = true;
      }
    }
    while (queue.length > 0) {
      const work = queue[0] as PairWork<unknown>;
      if (work.slot === 0 || !this.#sent(work)) break;
      queue.shift();
      this.#settle(work);
      progressed = true;
    }
    return progressed;
  }

  /** Puts a message into the ring. @returns false when the ring is full */
  #post(work: PairWork<unknown>): boolean {
    const { me } = this.#engine;
    const block = this.#block(me, work.peer);
    const words = this.#engine.heap.words(block + PAIR.sizeBytes);
    const index = this.#posted.get(work.peer) ?? 0;
    if (index - Atomics.load(words, (block + PAIR.consumed) / 4) >= PAIR.numMessages) return false;
    const slot = messageWord(block, index);
    words[slot + MESSAGE.dtype / 4] = work.call;
    words[slot + MESSAGE.count / 4] = work.count;
    words[slot + MESSAGE.address / 4] = work.input;
    words[slot] = work.detached ? MESSAGE_STATE.buffered : MESSAGE_STATE.posted;
    Atomics.store(words, (block + PAIR.posted) / 4, index + 1);
    this.#posted.set(work.peer, index + 1);
    work.slot = slot;
    work.message = index;
    work.postedAt = performance.now();
    this.#ring(work.peer);
    return true;
  }

  /** Whether a posted message no longer needs the sender's buffer; buffers it when it is time to. */
  #sent(work: PairWork<unknown>): boolean {
    if (work.detached) return true;
    const { heap, wasm } = this.#engine;
    const words = heap.words(work.slot * 4 + PAIR.sizeBytes);
    const state = Atomics.load(words, work.slot);
    if (state === MESSAGE_STATE.consumed) return true;
    if (state !== MESSAGE_STATE.posted) return false;
    const bytes = work.bytes;
    if (bytes > EAGER_BYTES && performance.now() - work.postedAt < RENDEZVOUS_MS) return false;
    let copy: number;
    try {
      copy = heap.allocate(bytes, false);
    } catch (error) {
      // No room: the message waits for its receiver, as a rendezvous.
      if (error instanceof OutOfMemoryError) return false;
      throw error;
    }
    if (
      Atomics.compareExchange(words, work.slot, MESSAGE_STATE.posted, MESSAGE_STATE.buffering) !== MESSAGE_STATE.posted
    ) {
      heap.free(copy);
      return false;
    }
    wasm.copy(copy, work.input, bytes);
    words[work.slot + MESSAGE.address / 4] = copy;
    Atomics.store(words, work.slot, MESSAGE_STATE.buffered);
    this.#ring(work.peer);
    return true;
  }

  #pumpReceives(queue: PairWork<unknown>[]): boolean {
    let progressed = false;
    while (queue.length > 0 && this.#receive(queue[0] as PairWork<unknown>)) {
      const work = queue.shift() as PairWork<unknown>;
      this.#settle(work);
      progressed = true;
    }
    return progressed;
  }

  #receive(work: PairWork<unknown>): boolean {
    const { heap, wasm, me } = this.#engine;
    const block = this.#block(work.peer, me);
    const words = heap.words(block + PAIR.sizeBytes);
    const index = this.#taken.get(work.peer) ?? 0;
    if (Atomics.load(words, (block + PAIR.posted) / 4) <= index) return false;
    const slot = messageWord(block, index);
    if (!this.#agrees(work, words, slot)) return false;
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
    this.#taken.set(work.peer, index + 1);
    this.#ring(work.peer);
    return true;
  }

  /** Fails the group when sender and receiver mean different messages. */
  #agrees(work: PairWork<unknown>, words: Int32Array, slot: number): boolean {
    const theirs = unpackCall(words[slot + MESSAGE.dtype / 4]!).dtype;
    const ours = unpackCall(work.call).dtype;
    const count = words[slot + MESSAGE.count / 4]! >>> 0;
    if (theirs === ours && count === work.count) return true;
    const { ranks, me, name } = this.#engine;
    const index = this.#taken.get(work.peer) ?? 0;
    const text = (dtype: string | undefined, n: number) => `${dtype ?? DTYPE_NAMES[0]}[${n}]`;
    this.#engine.failGroup(
      new MismatchError(
        `mismatch at message #${index} from rank ${ranks[work.peer]} to rank ${ranks[me]} of group ${name}: the sizes or dtypes differ`,
        [
          { rank: ranks[work.peer] as number, call: `send(${text(theirs, count)}, peer ${me})` },
          { rank: ranks[me] as number, call: `recv(${text(ours, work.count)}, peer ${work.peer})` },
        ],
      ),
    );
    return false;
  }

  /** Wakes a peer that sleeps. */
  #ring(peer: number): void {
    const words = this.#engine.words;
    if (Atomics.load(words, WORLD.sleepers) === 0) return;
    const rank = this.#engine.ranks[peer] as number;
    if (Atomics.load(words, (rankBlock(rank) + RANK.sleeping) / 4) > 0) wake(words, rank);
  }

  /** The ring from one rank to another, made by whoever needs it first. */
  #block(from: number, to: number): number {
    const { size, layout, heap, words } = this.#engine;
    const key = from * size + to;
    const known = this.#blocks.get(key);
    if (known !== undefined) return known;
    const at = (this.#engine.block + layout.pairs) / 4 + key;
    let block = Atomics.load(words, at) >>> 0;
    if (block === 0) {
      const made = heap.allocate(PAIR.sizeBytes);
      const before = Atomics.compareExchange(words, at, 0, made) >>> 0;
      if (before !== 0) heap.free(made);
      block = before === 0 ? made : before;
    }
    this.#blocks.set(key, block);
    return block;
  }
}

function messageWord(block: number, index: number): number {
  return (block + PAIR.messages + (index % PAIR.numMessages) * PAIR.messageBytes) / 4;
}
