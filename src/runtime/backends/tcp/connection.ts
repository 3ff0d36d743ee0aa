/**
 * One socket to another rank, after its handshake. Bytes are written and read by the C library's calls; the event loop's
 * own reads come as well, in turn, so that a rank which waits for nothing still serves its peers. Large payloads are
 * read to where they belong and written from where they are, without a copy.
 */
import type { Socket } from "node:net";
import { getSystemErrorName } from "node:util";
import { FormatError } from "../../../core/index.ts";
import { descriptorOf, type SocketCalls, WOULD_BLOCK } from "../../../foreign/native/index.ts";
import { COPIED_BYTES, HEAD_BYTES, type Head, readHead } from "./frame.ts";
import { addToSum, SUMMED_HEAD_BYTES, verifyHead, verifyPayload } from "./frame-checksum.ts";
import type { SendThread } from "./send-thread.ts";

/** What one read takes: the heads and small payloads of many messages. */
const STAGING_BYTES = 64 * 1024;
/** The same, behind a payload above COPIED_BYTES: the next is often as large, and what is read of it with its head must be copied. */
const BETWEEN_BYTES = 2 * 1024;
/** A payload with more than this to come is read to its place directly. */
const DIRECT_BYTES = 8 * 1024;
/** Of an idle connection: a host that vanished is noticed without traffic. */
const KEEP_ALIVE_MS = 5_000;
/** Reads of one turn, so that one connection does not keep the others waiting. */
const MAX_READS = 16;

/**
 * A payload from here on is written by the rank's other thread, where it has one: those of all-reduces from about 8 MiB on gained by
 * it, and smaller ones did not, nor the pieces of collectives made host by host (tcp-gloo-16-cores-2026-11-24.md in bench/results/).
 */
const LENT_BYTES = 320 * 1024;

/** The thread that writes large payloads for a connection. */
export interface Writer {
  /** The connection's number in `thread`. */
  readonly slot: number;
  /** `undefined` while there is none. */
  thread(): SendThread | undefined;
}

/** Who takes what arrives. */
export interface ConnectionListener {
  /** Says where a frame's payload goes: exactly `head.bytes` bytes. Called for every frame. @throws FormatError */
  begin(head: Head): Uint8Array;
  /** The payload is there. Called for every frame. @throws FormatError */
  end(head: Head, payload: Uint8Array): void;
  /** What came is no frame, or damaged: the connection ends, and can still be written to. */
  refuse?(error: FormatError): void;
  /** The connection is over. Called once. */
  over(error: Error | undefined): void;
}

/** What a connection is made of, beside its socket. */
export interface ConnectionOptions {
  /** Who is at the other end, for errors. */
  readonly peer: string;
  readonly calls: SocketCalls;
  readonly listener: ConnectionListener;
  /** Who writes large payloads, where that is not this thread. */
  readonly writer?: Writer;
  /** Whether frames have checksums, in both directions. */
  readonly hasSums: boolean;
}

interface Piece {
  bytes: Uint8Array;
  /** Another piece follows at once. */
  readonly more: boolean;
  readonly done: (() => void) | undefined;
}

/** One staging area a thread: what is read is taken out of it at once. */
const staging = new Uint8Array(STAGING_BYTES);
const betweenStaging = staging.subarray(0, BETWEEN_BYTES);

export class Connection {
  readonly socket: Socket;
  readonly fd: number;
  readonly #calls: SocketCalls;
  readonly #peer: string;
  readonly #listener: ConnectionListener;
  readonly #queue: Piece[] = [];
  readonly #writer: Writer | undefined;
  /** Who writes what is in the queue, where it is not this thread. */
  #thread: SendThread | undefined;
  /** How many pieces of the queue it has, and how many it had written when this thread looked last. */
  #numLent = 0;
  #numWritten = 0;
  /** Whether frames have checksums: their heads are longer then. */
  readonly hasSums: boolean;
  readonly #headBytes: Uint8Array<ArrayBuffer>;
  readonly #headWords: Int32Array;
  #headFill = 0;
  #head: Head | undefined;
  #payload: Uint8Array;
  /** Frames that have come; of the last one, the sum of what is there of its payload, and what that is to become. */
  #numFrames = 0;
  #sum = 0;
  #expectedSum = 0;
  #filled = 0;
  /** Whether the last payload was large. */
  #wasLarge = false;
  #isOver = false;
  /** Why nothing can be written any more; what the peer had sent before is still to be read. */
  #unwritable: Error | undefined;

  constructor(socket: Socket, { peer, calls, listener, writer, hasSums }: ConnectionOptions) {
    const fd = descriptorOf(socket);
    if (fd === undefined) throw new FormatError(peer, "has a connection without a descriptor");
    this.socket = socket;
    this.fd = fd;
    this.#calls = calls;
    this.#peer = peer;
    this.#listener = listener;
    this.#writer = writer;
    this.hasSums = hasSums;
    this.#headBytes = new Uint8Array(hasSums ? SUMMED_HEAD_BYTES : HEAD_BYTES);
    this.#headWords = new Int32Array(this.#headBytes.buffer);
    this.#payload = this.#headBytes;
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.unref();
    if (this.isLocal === true) calls.unpaced(fd);
  }

  /** Whether the other end is on this machine; `undefined` where that cannot be known. */
  get isLocal(): boolean | undefined {
    const { remoteAddress, localAddress } = this.socket;
    return remoteAddress === undefined ? undefined : remoteAddress === localAddress;
  }

  /** Begins to take what arrives. @param rest what the handshake read beyond its own end */
  open(rest: Uint8Array): void {
    const { socket } = this;
    if (socket.destroyed) {
      this.finish(undefined);
      return;
    }
    socket.on("data", (chunk: Uint8Array) => this.take(chunk));
    socket.on("end", () => this.finish(undefined));
    socket.on("error", (error) => this.finish(error));
    socket.on("close", () => this.finish(undefined));
    this.take(rest);
    // What the stream had read before it was paused comes before what the descriptor still has.
    for (let chunk: unknown = socket.read(); chunk instanceof Uint8Array; chunk = socket.read()) this.take(chunk);
    socket.resume();
  }

  get isOver(): boolean {
    return this.#isOver;
  }
  /** Whether something waits to be written. */
  get isBlocked(): boolean {
    return !this.#isOver && this.#queue.length > 0;
  }
  /** Bytes that the other end's system does not have yet. */
  get backlogBytes(): number {
    if (this.#isOver) return 0;
    return this.#queue.reduce((sum, { bytes }) => sum + bytes.length, this.#calls.unacknowledged(this.fd));
  }
  /** Whether another thread writes it. */
  get isLent(): boolean {
    return this.#thread !== undefined;
  }

  /**
   * Writes a frame: as much as the kernel takes at once, the rest as it takes it. A payload must stay as it is until
   * `done` was called; without `done`, what is left is copied.
   */
  write(head: Uint8Array, payload: Uint8Array | undefined, done?: () => void): void {
    const hasPayload = payload !== undefined && payload.length > 0;
    this.#put(head, hasPayload, hasPayload ? undefined : done);
    if (hasPayload) this.#put(payload, false, done, done !== undefined);
  }

  #put(bytes: Uint8Array, more: boolean, done: (() => void) | undefined, keeps = false): void {
    // The piece before may have found the connection broken.
    if (this.#isOver || this.#unwritable !== undefined) return;
    let from = 0;
    if (keeps && bytes.length >= LENT_BYTES) this.#thread ??= this.#writer?.thread();
    if (this.#queue.length === 0 && this.#thread === undefined) {
      const sent = this.#calls.send(this.fd, bytes, more);
      if (sent === bytes.length) {
        done?.();
        return;
      }
      if (sent < 0 && sent !== WOULD_BLOCK) {
        this.#stopWriting(sent);
        return;
      }
      from = Math.max(0, sent);
    }
    const left = from === 0 ? bytes : bytes.subarray(from);
    this.#queue.push({ bytes: keeps ? left : left.slice(), more, done });
    this.#lend();
  }

  /** Gives what is in the queue to the thread that writes it, as far as that has room. */
  #lend(): void {
    const thread = this.#thread;
    if (thread === undefined || this.#writer === undefined) return;
    const { slot } = this.#writer;
    if (this.#numLent === 0) this.#numWritten = thread.written(slot);
    for (let next = this.#queue[this.#numLent]; next !== undefined && thread.hasRoom(slot); ) {
      thread.give(slot, this.fd, next.bytes, next.more);
      next = this.#queue[++this.#numLent];
    }
  }

  /** Hears what the other thread has written. */
  #settleLent(thread: SendThread, slot: number): void {
    while (!this.#isOver && this.#numLent > 0 && thread.written(slot) !== this.#numWritten) this.#settleOne();
    if (this.#isOver || this.#thread === undefined) return;
    const error = thread.error(slot);
    if (error < 0 && this.#numLent > 0) {
      this.#stopWriting(error);
      return;
    }
    if (this.#queue.length === 0) this.#thread = undefined;
    else this.#lend();
  }

  #settleOne(): void {
    this.#numWritten = (this.#numWritten + 1) | 0;
    this.#numLent--;
    this.#queue.shift()?.done?.();
  }

  /** Takes back what another thread has and has not written yet. */
  #takeBack(): void {
    const thread = this.#thread;
    if (thread === undefined || this.#writer === undefined) return;
    this.#thread = undefined;
    if (this.#numLent === 0) return;
    const { written, sent } = thread.take(this.#writer.slot);
    const done: (Piece | undefined)[] = [];
    for (; this.#numWritten !== written; this.#numWritten = (this.#numWritten + 1) | 0) done.push(this.#queue.shift());
    this.#numLent = 0;
    const first = this.#queue[0];
    if (first !== undefined && sent > 0) first.bytes = first.bytes.subarray(sent);
    for (const piece of done) piece?.done?.();
  }

  /** Writes what waits, as far as the kernel takes it. */
  flush(): void {
    if (this.#thread !== undefined && this.#writer !== undefined) {
      this.#settleLent(this.#thread, this.#writer.slot);
      return;
    }
    while (!this.#isOver) {
      const piece = this.#queue[0];
      if (piece === undefined) return;
      const sent = this.#calls.send(this.fd, piece.bytes, piece.more);
      if (sent === WOULD_BLOCK) return;
      if (sent < 0) {
        this.#stopWriting(sent);
        return;
      }
      if (sent < piece.bytes.length) {
        piece.bytes = piece.bytes.subarray(sent);
        continue;
      }
      this.#queue.shift();
      piece.done?.();
    }
  }

  /** Reads what is there. */
  receive(): void {
    for (let reads = 0; reads < MAX_READS && !this.#isOver; reads++) {
      const isDirect = this.#head !== undefined && this.#head.bytes - this.#filled > DIRECT_BYTES;
      const into = isDirect ? this.#payload.subarray(this.#filled) : this.#wasLarge ? betweenStaging : staging;
      const count = this.#calls.receive(this.fd, into);
      if (count === WOULD_BLOCK) return;
      if (count === 0) this.finish(undefined);
      else if (count < 0) this.finish(broken(count));
      else if (!isDirect) this.take(into.subarray(0, count));
      else this.#guarded(() => this.#fill(count));
      if (count < into.length) return;
    }
  }

  /** Takes bytes that were read. */
  take(bytes: Uint8Array): void {
    this.#guarded(() => {
      for (let at = 0; at < bytes.length && !this.#isOver; ) {
        if (this.#head === undefined) {
          const count = Math.min(this.#headBytes.length - this.#headFill, bytes.length - at);
          this.#headBytes.set(bytes.subarray(at, at + count), this.#headFill);
          this.#headFill += count;
          at += count;
          if (this.#headFill === this.#headBytes.length) this.#begin();
        } else {
          const count = Math.min(this.#head.bytes - this.#filled, bytes.length - at);
          this.#payload.set(bytes.subarray(at, at + count), this.#filled);
          at += count;
          this.#fill(count);
        }
      }
    });
  }

  #begin(): void {
    this.#headFill = 0;
    this.#numFrames++;
    if (this.hasSums) this.#expectedSum = verifyHead(this.#headBytes, this.#headWords, this.#peer, this.#numFrames);
    this.#sum = 0;
    const head = readHead(this.#headWords, this.#peer);
    this.#payload = this.#listener.begin(head);
    if (head.bytes > 0) this.#wasLarge = head.bytes > COPIED_BYTES;
    this.#filled = 0;
    this.#head = head;
    if (head.bytes === 0) this.#fill(0);
  }

  #fill(count: number): void {
    const head = this.#head;
    const from = this.#filled;
    this.#filled += count;
    // Part by part, while it is in the cache.
    if (this.hasSums && count > 0) this.#sum = addToSum(this.#payload.subarray(from, this.#filled), this.#sum);
    if (head === undefined || this.#filled < head.bytes) return;
    if (this.hasSums) verifyPayload(head, this.#sum, this.#expectedSum, this.#peer, this.#numFrames);
    this.#head = undefined;
    this.#listener.end(head, this.#payload);
  }

  /** What is no frame ends the connection, and nothing else. */
  #guarded(fn: () => void): void {
    try {
      fn();
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      if (!this.#isOver) this.#listener.refuse?.(error);
      this.finish(error);
    }
  }

  /**
   * Takes a program's memory out of use, because its call has ended: what is still to be written is copied, and what
   * arrives of a payload that `isOf` is thrown away.
   */
  letGo(isOf: (head: Head) => boolean): void {
    this.#takeBack();
    for (const piece of this.#queue) if (piece.done !== undefined) piece.bytes = piece.bytes.slice();
    if (this.#head !== undefined && isOf(this.#head)) this.#payload = new Uint8Array(this.#head.bytes);
  }

  /** Lets a peer that is gone say why first: it does so before it ends, and reading finds the end after that. */
  #stopWriting(code: number): void {
    this.#unwritable = broken(code);
    this.#thread = undefined;
    this.#numLent = 0;
    this.#queue.length = 0;
  }

  /** Ends it. What waits to be written is lost. */
  finish(error: Error | undefined): void {
    if (this.#isOver) return;
    this.#takeBack();
    this.#isOver = true;
    this.#queue.length = 0;
    this.socket.destroy();
    this.#listener.over(error ?? this.#unwritable);
  }
}

function broken(code: number): Error {
  return new Error(`the connection broke: ${getSystemErrorName(code)}`);
}
