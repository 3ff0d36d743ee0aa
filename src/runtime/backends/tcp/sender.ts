/** Whether a rank has a thread that writes for it (send-thread.ts), which starts when the first large payload leaves. */
import { availableParallelism } from "node:os";
import type { SocketCalls } from "../../../foreign/native/index.ts";
import type { ReduceJob, WasmMemory } from "../../executor/internal.ts";
import type { ReduceHelper } from "../../hosts/index.ts";
import type { Writer } from "./connection.ts";
import type { PeerSockets } from "./meet.ts";
import { SendThread, WAKE_EVENTS } from "./send-thread.ts";
import type { SendThreadMode } from "./tcp-handle.ts";

/** Fewest other ranks with which it gains where both directions of a pair share a connection, which the kernel locks for each. */
const LEAST_PEERS = 3;
/** Connections of a pair where ranks have such a thread: one for what is small, and one for large payloads of each direction. */
const THREAD_CONNECTIONS = 3;
/** Ranks of a world above which pairs have one connection: with 8 ranks more gained nothing (tcp-gloo-16-cores-2026-11-28.md in bench/results/). */
const MOST_APART = 4;
/** Reductions of fewer bytes are made by the rank's own thread: to hand one over takes as long. */
const LEAST_REDUCED_BYTES = 192 * 1024;
/** Descriptors below zero are none for poll(2). */
const NOTHING_WATCHED = [-1, 0] as const;

/** Threads that were closed and are not gone: on a slow machine they would become many, for each generation starts its own. */
let numLeaving = 0;

export interface SenderOptions {
  readonly sendThread: SendThreadMode;
  readonly calls: SocketCalls;
  readonly peers: readonly (PeerSockets | undefined)[];
}

export class Sender implements ReduceHelper {
  readonly #options: SenderOptions;
  #numSlots = 0;
  #thread: SendThread | undefined;
  #wants: boolean;
  /** Whether the thread reduces: with 8 ranks it gained nothing (tcp-gloo-hosts-16-cores-2026-11-29.md in bench/results/). */
  readonly #reduces: boolean;

  constructor(options: SenderOptions) {
    this.#options = options;
    this.#wants = options.sendThread === "on" || (options.sendThread === "auto" && gains(options.peers));
    this.#reduces = areApart(options.peers);
  }

  /** Makes what a connection asks for the thread. All are made before the first one writes. */
  writer(): Writer {
    return { slot: this.#numSlots++, thread: () => this.#whenReady() };
  }

  #whenReady(): SendThread | undefined {
    if (!this.#wants || (this.#thread === undefined && numLeaving > 0)) return undefined;
    try {
      this.#thread ??= new SendThread(this.#numSlots, this.#options.calls);
    } catch {
      // Out of descriptors or threads: the rank's own thread writes, as it does without.
      this.#wants = false;
    }
    return this.#thread?.isReady === true ? this.#thread : undefined;
  }

  /** What to poll for it: a descriptor and its events. */
  get watched(): readonly [number, number] {
    return this.#thread === undefined ? NOTHING_WATCHED : [this.#thread.wakeFd, WAKE_EVENTS];
  }

  /** Whether it has written something since this was asked last. */
  get hasNews(): boolean {
    return this.#thread?.hasNews === true;
  }

  /** The rank's thread is about to poll for up to `waitMs`. @returns for how long it may */
  rest(waitMs: number): number {
    return waitMs > 0 && this.#thread?.rest() === false ? 0 : waitMs;
  }

  /** The rank's thread has polled. @param isWoken whether what is watched was ready */
  rise(isWoken: boolean): void {
    this.#thread?.rise(isWoken);
  }

  /** Has a reduction made by the thread, where it is large and the thread is free. */
  reduce(memory: WasmMemory, job: () => ReduceJob, bytes: number, done: (isMade: boolean) => void): boolean {
    if (bytes < LEAST_REDUCED_BYTES || !this.#reduces) return false;
    const thread = this.#whenReady();
    if (thread?.isFree !== true) return false;
    thread.reduce(memory, job(), bytes, done);
    return true;
  }

  /** Goes on after a reduction that the thread has made. */
  settle(): void {
    this.#thread?.settle();
  }

  forget(memory: WasmMemory): void {
    this.#thread?.forget(memory);
  }

  /** Ends it at once. @returns when its own resources are free too */
  async close(): Promise<void> {
    const thread = this.#thread;
    this.#wants = false;
    this.#thread = undefined;
    if (thread === undefined) return;
    numLeaving++;
    void thread.gone.then(() => numLeaving--);
    await thread.close();
  }
}

/** Whether this machine has two cores for each of so many ranks. */
const hasCores = (numRanks: number) => availableParallelism() >= 2 * numRanks;

/** How many connections pairs have, if nobody says: more than one where both ends have a thread that writes, wherever they are. */
export const connectionsOf = (worldSize: number) =>
  worldSize <= MOST_APART && hasCores(worldSize) ? THREAD_CONNECTIONS : 1;

/** Those over which a rank sends large payloads: where there are enough, none over which the other end sends any. */
export function forLarge<T>(connections: readonly T[], isLower: boolean): readonly T[] {
  if (connections.length < THREAD_CONNECTIONS) return connections;
  return connections.filter((_, index) => index > 0 && index % 2 === (isLower ? 1 : 0));
}

/** Whether the payloads of a world can be written beside what is read, and this machine has two cores for each rank on it. */
function gains(all: readonly (PeerSockets | undefined)[]): boolean {
  const peers = all.filter((peer) => peer !== undefined);
  const isHere = ({ sockets: [first] }: PeerSockets) => first?.socket.remoteAddress === first?.socket.localAddress;
  return (areApart(all) || peers.length >= LEAST_PEERS) && hasCores(1 + peers.filter(isHere).length);
}

/** Whether each direction of a pair has a connection of its own for large payloads. */
const areApart = (all: readonly (PeerSockets | undefined)[]) =>
  all.some((peer) => peer !== undefined && peer.sockets.length >= THREAD_CONNECTIONS);
