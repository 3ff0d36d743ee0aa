/**
 * A thread that writes large payloads for a rank. To write bytes to a socket is to copy them, and so is to read them: where a rank
 * has a second core, this thread does the one while the rank's own does the other and reduces. It knows no frames: it writes
 * pieces of memory in the order in which it is given them, for each connection. Between its writes it makes blocks of the rank's
 * reductions (shared-reductions.ts).
 *
 * Memory that it has been given is in use until it was written, or until `take` has returned, which asks for it back.
 */
import { constants } from "node:os";
import { Worker } from "node:worker_threads";
import { POLL_IN, type SocketCalls, socketPair } from "../../../foreign/native/index.ts";
import { HostAddresses } from "../../memory/index.ts";
import {
  type MemoryNote,
  newSlots,
  OWNER,
  RING,
  type SendWorkerData,
  SLOT,
  slotAt,
  THREAD,
  WORD,
} from "./send-slots.ts";

/** How long the thread may take to hear that it is to stop, ms: it is within one system call that does not block, but may wait for a core. */
const STOP_MS = 10_000;
/** What a rank polls of it. */
export const WAKE_EVENTS = POLL_IN;

export class SendThread {
  /** Becomes readable when pieces were written after `rest`. */
  readonly wakeFd: number;
  readonly #calls: SocketCalls;
  readonly #slots;
  readonly #words: Int32Array;
  readonly #addresses = new HostAddresses();
  readonly #fds: readonly number[];
  readonly #worker: Worker | undefined;
  /** When the thread itself is gone: after `close` has returned, where that found it still starting. */
  readonly gone: Promise<void>;
  readonly #byte = new Uint8Array(1);
  readonly #bytes = new Uint8Array(64);
  #seen = 0;
  #isClosed = false;

  /** Starts it; it is there a little later. @param firstSlot the slot that has the first turn @throws UnavailableError out of descriptors, or an error out of threads */
  constructor(numSlots: number, calls: SocketCalls, reductions: Int32Array, firstSlot = 0) {
    this.#calls = calls;
    this.#slots = newSlots(numSlots);
    this.#words = this.#slots.words;
    this.#fds = socketPair();
    const [near, far] = this.#fds as readonly [number, number];
    this.wakeFd = near;
    const workerData: SendWorkerData = { slots: this.#slots, firstSlot, wakeFd: far, reductions };
    try {
      const worker = new Worker(new URL("./send-worker.js", import.meta.url), { workerData, execArgv: [] });
      worker.unref();
      worker.on("error", () => this.#fail());
      this.gone = new Promise((resolve) => worker.once("exit", () => resolve()));
      this.#worker = worker;
    } catch (error) {
      this.gone = Promise.resolve();
      void this.close();
      throw error;
    }
  }

  get isReady(): boolean {
    return Atomics.load(this.#words, WORD.state) === THREAD.runs;
  }

  /** Whether a connection has room for another piece. */
  hasRoom(slot: number): boolean {
    return ((this.#given(slot) - this.written(slot)) | 0) < RING;
  }

  /** Has a piece written behind those that were given before. */
  give(slot: number, fd: number, bytes: Uint8Array, more: boolean): void {
    const at = slotAt(slot);
    const words = this.#words;
    const given = this.#given(slot);
    const piece = given & (RING - 1);
    words[at + SLOT.fd] = fd;
    words[at + SLOT.pieces + piece] = 2 * bytes.length + (more ? 1 : 0);
    this.#slots.addresses[slot * RING + piece] = this.#addresses.of(bytes);
    Atomics.store(words, at + SLOT.given, given + 1);
    this.#ask();
  }

  /** How many pieces of a connection were ever written, modulo 2 ** 32. */
  written(slot: number): number {
    return Atomics.load(this.#words, slotAt(slot) + SLOT.written);
  }

  /** The number of the error with which writing ended, negative; 0 while all is well. */
  error(slot: number): number {
    const error = Atomics.load(this.#words, slotAt(slot) + SLOT.error);
    const isFailed = Atomics.load(this.#words, WORD.state) === THREAD.failed;
    return error === 0 && isFailed ? -constants.errno.EIO : error;
  }

  /** Takes back what was not written yet. @returns how much was written of the first piece of that, after `written` pieces */
  take(slot: number): { readonly written: number; readonly sent: number } {
    const at = slotAt(slot);
    const words = this.#words;
    Atomics.store(words, at + SLOT.state, OWNER.asked);
    this.#ask();
    const until = performance.now() + STOP_MS;
    for (let left = STOP_MS; left > 0 && this.isReady; left = until - performance.now()) {
      if (Atomics.wait(words, at + SLOT.state, OWNER.asked, left) !== "timed-out") break;
    }
    const sent = words[at + SLOT.sent] as number;
    const written = this.written(slot);
    words[at + SLOT.sent] = 0;
    words[at + SLOT.given] = written;
    Atomics.store(words, at + SLOT.state, OWNER.thread);
    return { written, sent };
  }

  /** Whether it was there, and is there no longer. */
  get isGone(): boolean {
    return Atomics.load(this.#words, WORD.state) >= THREAD.ended;
  }

  /** Whether it makes a block of a reduction. */
  get isReducing(): boolean {
    return !this.isGone && Atomics.load(this.#words, WORD.reduces) === 1;
  }

  /** Tells it of a memory on which it is to reduce, or that it is to forget. */
  note(note: MemoryNote): void {
    this.#worker?.postMessage(note);
    Atomics.add(this.#words, WORD.memories, 1);
  }

  /** Says that there is something to reduce, or that there are memories to learn. */
  wake(): void {
    this.#ask();
  }

  /** Whether pieces were written, or a reduction made, since this was asked last. */
  get hasNews(): boolean {
    const written = Atomics.load(this.#words, WORD.written);
    const isNew = written !== this.#seen;
    this.#seen = written;
    return isNew;
  }

  /** The rank's thread is about to block in poll(2). @returns whether it may: nothing was written meanwhile */
  rest(): boolean {
    Atomics.store(this.#words, WORD.waits, 1);
    return Atomics.load(this.#words, WORD.written) === this.#seen;
  }

  /** The rank's thread has come back. @param isWoken whether `wakeFd` is readable */
  rise(isWoken: boolean): void {
    Atomics.store(this.#words, WORD.waits, 0);
    if (isWoken) this.#calls.receive(this.wakeFd, this.#bytes);
  }

  /** Ends it. What it has been given and not written is not written any more. @returns when it is gone, unless it was still starting */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const words = this.#words;
    const was = Atomics.compareExchange(words, WORD.state, THREAD.starts, THREAD.ended);
    if (was === THREAD.runs) {
      Atomics.compareExchange(words, WORD.state, THREAD.runs, THREAD.ends);
      this.#ask();
      Atomics.wait(words, WORD.state, THREAD.ends, STOP_MS);
    }
    for (const fd of this.#fds) this.#calls.close(fd);
    // It finds that it need not begin. Were it terminated while it opens its file, Node would never close that.
    if (was !== THREAD.starts) await this.#worker?.terminate();
  }

  #given(slot: number): number {
    return this.#words[slotAt(slot) + SLOT.given] as number;
  }

  #ask(): void {
    Atomics.add(this.#words, WORD.asked, 1);
    Atomics.notify(this.#words, WORD.asked);
    if (Atomics.exchange(this.#words, WORD.polls, 0) === 1) this.#calls.send(this.wakeFd, this.#byte, false);
  }

  /** It could not be started, or has died. */
  #fail(): void {
    Atomics.store(this.#words, WORD.state, THREAD.failed);
    Atomics.add(this.#words, WORD.written, 1);
  }
}
