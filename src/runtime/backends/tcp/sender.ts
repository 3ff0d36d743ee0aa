/**
 * Whether a rank has a thread that writes for it (send-thread.ts), which starts when the first large payload leaves or the first large
 * sum is made, and another one for sums.
 */
import { availableParallelism } from "node:os";
import type { SocketCalls } from "../../../foreign/native/index.ts";
import type { ReduceJob, WasmMemory } from "../../executor/internal.ts";
import type { ReduceHelper } from "../../hosts/index.ts";
import type { Writer } from "./connection.ts";
import type { PeerSockets } from "./meet.ts";
import { SendThread } from "./send-thread.ts";
import { SharedReductions } from "./shared-reductions.ts";
import type { SendThreadMode } from "./tcp-handle.ts";

/** Fewest other ranks with which it gains where both directions of a pair share a connection, which the kernel locks for each. */
const LEAST_PEERS = 3;
/** Connections of a pair where ranks have such a thread: one for what is small, and one for large payloads of each direction. */
const THREAD_CONNECTIONS = 3;
/** Ranks of a world above which pairs have one connection: with 8 ranks more gained nothing (tcp-gloo-16-cores-2026-11-28.md in bench/results/). */
const MOST_APART = 4;
/** Reductions of fewer bytes are made by the rank's own thread: to hand one over takes as long. */
const LEAST_REDUCED_BYTES = 96 * 1024;
/** Threads of a rank at most, its own aside. */
export const MOST_THREADS = 2;
/** Where a rank has so many cores, the second of them does nothing but reduce. */
const MOST_CORES = 3;

/** Threads that were closed and are not gone: on a slow machine they would become many, for each generation starts its own. */
let numLeaving = 0;

interface SenderOptions {
  readonly sendThread: SendThreadMode;
  readonly calls: SocketCalls;
  readonly peers: readonly (PeerSockets | undefined)[];
}

export class Sender implements ReduceHelper {
  readonly #options: SenderOptions;
  #numSlots = 0;
  /** The one that writes, and then, where there is another one, one that only reduces. */
  readonly #threads: SendThread[] = [];
  readonly #reductions = new SharedReductions();
  /** Whether `finish` may have ended some that `settle` has not heard of. */
  #hasFinished = false;
  #wants: boolean;
  /** How many of them reduce. */
  readonly #numReducing: number;

  constructor(options: SenderOptions) {
    const { sendThread, peers } = options;
    this.#options = options;
    this.#wants = sendThread === "on" || (sendThread === "auto" && gains(peers));
    const hasMore = sendThread === "on" || hasCores(numHere(peers), MOST_CORES);
    this.#numReducing = areApart(peers) && hasMore ? 2 : 1;
  }

  /** Makes what a connection asks for the thread that writes. All are made before the first one writes. */
  writer(): Writer {
    return { slot: this.#numSlots++, thread: () => this.#whenReady(0) };
  }

  /** @returns `undefined` where it is not there yet, or the one before it has not been started */
  #whenReady(nth: number): SendThread | undefined {
    if (!this.#wants || nth > this.#threads.length || (this.#threads.length === 0 && numLeaving > 0)) return undefined;
    try {
      this.#threads[nth] ??= this.#start(nth === 0 ? this.#numSlots : 0);
    } catch {
      // Out of descriptors or threads: the rank's own thread does what they would, as it does without.
      this.#wants = false;
    }
    const thread = this.#threads[nth];
    return thread?.isReady === true ? thread : undefined;
  }

  #start(numSlots: number): SendThread {
    const { calls, peers } = this.#options;
    const thread = new SendThread(numSlots, calls, this.#reductions.words, firstSlotOf(peers));
    for (const [memory, number] of this.#reductions.memories) thread.note({ number, memory });
    return thread;
  }

  /** What to poll for them: descriptors, for WAKE_EVENTS. */
  get watched(): readonly number[] {
    return this.#threads.map(({ wakeFd }) => wakeFd);
  }

  /** Whether they, or `finish`, have done something since this was asked last. */
  get hasNews(): boolean {
    let hasAny = this.#hasFinished;
    this.#hasFinished = false;
    for (const thread of this.#threads) if (thread.hasNews) hasAny = true;
    return hasAny;
  }

  /** The rank's thread is about to poll for up to `waitMs`. @returns for how long it may */
  rest(waitMs: number): number {
    return waitMs > 0 && !this.#threads.every((thread) => thread.rest()) ? 0 : waitMs;
  }

  /** The rank's thread has polled. @param isWoken whether what is watched of a thread, by number, was ready */
  rise(isWoken: (nth: number) => boolean): void {
    for (const [nth, thread] of this.#threads.entries()) thread.rise(isWoken(nth));
  }

  /** Has a reduction made by the threads, where it is large, beside what this one does itself of it in `help`. */
  reduce(
    memory: WasmMemory,
    job: (place: number) => ReduceJob,
    bytes: number,
    done: (isMade: boolean) => void,
  ): boolean {
    if (bytes < LEAST_REDUCED_BYTES) return false;
    let numReady = 0;
    for (let nth = 0; nth < this.#numReducing; nth++) if (this.#whenReady(nth) !== undefined) numReady++;
    if (numReady === 0) return false;
    if (!this.#reductions.give(this.#numberOf(memory), job, bytes, done)) return false;
    for (const thread of this.#threads) thread.wake();
    return true;
  }

  #numberOf(memory: WasmMemory): number {
    const known = this.#reductions.memories.get(memory);
    if (known !== undefined) return known;
    const number = this.#reductions.learn(memory);
    for (const thread of this.#threads) thread.note({ number, memory });
    return number;
  }

  /** Whether there may be something to reduce that no thread has begun. */
  get hasWork(): boolean {
    return this.#reductions.hasBlocks;
  }

  /** Does a part of that. @returns whether there was any */
  help(): boolean {
    const helps = this.#reductions.help();
    if (helps) this.settle();
    return helps;
  }

  finish(): void {
    // What follows those of other groups comes in the next turn.
    this.#hasFinished = !this.#reductions.isEmpty;
    this.#reductions.finish(() => !this.#threads.some(({ isReducing }) => isReducing));
  }

  /** Goes on after reductions that threads have made. */
  settle(): void {
    if (this.#reductions.isEmpty) return;
    const isLost = this.#threads.some(({ isGone }) => isGone);
    if (isLost) this.finish();
    this.#reductions.settle(isLost);
  }

  forget(memory: WasmMemory): void {
    const number = this.#reductions.forget(memory);
    if (number === undefined) return;
    for (const thread of this.#threads) {
      thread.note({ number });
      thread.wake();
    }
  }

  /** Ends them at once. @returns when their own resources are free too */
  async close(): Promise<void> {
    this.#wants = false;
    const threads = this.#threads.splice(0);
    numLeaving += threads.length;
    for (const { gone } of threads) void gone.then(() => numLeaving--);
    await Promise.all(threads.map((thread) => thread.close()));
  }
}

/** The slot of the next rank's first connection, so that not everybody writes to the same rank first. */
export function firstSlotOf(peers: readonly (PeerSockets | undefined)[]): number {
  const own = peers.indexOf(undefined);
  return peers.slice(0, Math.max(0, own)).reduce((sum, peer) => sum + (peer?.sockets.length ?? 0), 0);
}

/** Whether this machine has so many cores for each of so many ranks. */
const hasCores = (numRanks: number, each = 2) => availableParallelism() >= each * numRanks;

/** How many connections pairs have, if nobody says: more than one where both ends have a thread that writes, wherever they are. */
export const connectionsOf = (worldSize: number) =>
  worldSize <= MOST_APART && hasCores(worldSize) ? THREAD_CONNECTIONS : 1;

/** Those over which a rank sends large payloads: where there are enough, none over which the other end sends any. */
export function forLarge<T>(connections: readonly T[], isLower: boolean): readonly T[] {
  if (connections.length < THREAD_CONNECTIONS) return connections;
  return connections.filter((_, index) => index > 0 && index % 2 === (isLower ? 1 : 0));
}

/** Ranks of this machine. */
const numHere = (all: readonly (PeerSockets | undefined)[]) =>
  1 + all.filter((one) => one !== undefined && isHere(one)).length;
const isHere = ({ sockets: [first] }: PeerSockets) => first?.socket.remoteAddress === first?.socket.localAddress;

/** Whether the payloads of a world can be written beside what is read, and this machine has two cores for each rank on it. */
function gains(all: readonly (PeerSockets | undefined)[]): boolean {
  const numPeers = all.filter((peer) => peer !== undefined).length;
  return (areApart(all) || numPeers >= LEAST_PEERS) && hasCores(numHere(all));
}

/** Whether each direction of a pair has a connection of its own for large payloads. */
const areApart = (all: readonly (PeerSockets | undefined)[]) =>
  all.some((peer) => peer !== undefined && peer.sockets.length >= THREAD_CONNECTIONS);
