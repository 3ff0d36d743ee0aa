/** The launching thread's side: makes a world's memory, and declares ranks dead. */
import { bytes as checkedBytes, InvalidArgumentError } from "../../../core/index.ts";
import { encodeFailure } from "../../comm/index.ts";
import {
  type ChoiceDocument,
  MAX_PAGES,
  machineChoices,
  newSharedMemory,
  PAGE_BYTES,
  PLAN_CHOICES,
  type WasmMemory,
  type WasmModule,
} from "../../executor/internal.ts";
import type { ThreadsHandle, ThreadsHostOptions } from "./handle.ts";
import { Heap } from "./heap.ts";
import { GROUP, LAUNCHER, LINE, MAGIC, RANK, WORLD } from "./layout.ts";
import { noteEnded } from "./memory-pressure.ts";
import { buildProtocol } from "./protocol.ts";
import type { SharedWorld } from "./shared-world.ts";

export const MAX_RANKS = 256;
const MAX_BYTES = MAX_PAGES * PAGE_BYTES;

let compiled: WasmModule | undefined;

/** Kernels and protocol, compiled once per process: it costs tens of milliseconds, and tests start worlds by the hundred. */
function protocolModule(): WasmModule {
  compiled ??= buildProtocol();
  return compiled;
}

/** Address of a rank's block. */
export function rankBlock(rank: number): number {
  return WORLD.sizeBytes + rank * RANK.sizeBytes;
}

/**
 * Makes the shared memory of a world of `ranks` threads. The handle goes to each of them through `workerData` or
 * `postMessage`. Address space is reserved up to the limit; memory is committed as it is used.
 * @throws InvalidArgumentError, FormatError for a broken file of this machine's choices
 */
export function createThreadsHost(options: ThreadsHostOptions): ThreadsHandle {
  const { ranks, memoryLimitBytes = MAX_BYTES, generation = 1 } = options;
  const { firstBytes, limitBytes, choices } = checkHost(ranks, memoryLimitBytes, options.choices);
  const memory = newSharedMemory(firstBytes / PAGE_BYTES, limitBytes / PAGE_BYTES);
  beginWorld(memory, { ranks, generation, memoryLimitBytes });
  return {
    kind: "threads",
    version: 1,
    ranks,
    generation,
    limitBytes: memoryLimitBytes,
    memory,
    module: protocolModule(),
    ...(choices === undefined ? {} : { choices }),
  };
}

/** What a world's memory is made of: its bytes at the beginning and at most, in whole pages, and the tables it is given. */
interface CheckedHost {
  readonly firstBytes: number;
  readonly limitBytes: number;
  readonly choices: ChoiceDocument | undefined;
}

/** @throws InvalidArgumentError, FormatError for a broken file of this machine's choices */
export function checkHost(ranks: number, memoryLimitBytes: number, wanted: ThreadsHostOptions["choices"]): CheckedHost {
  const given = wanted ?? machineChoices();
  const choices = given === "plans" ? PLAN_CHOICES : given === "shipped" ? undefined : given;
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > MAX_RANKS) {
    throw new InvalidArgumentError("ranks", ranks, `an integer from 1 to ${MAX_RANKS}`);
  }
  checkedBytes(memoryLimitBytes, "memoryLimitBytes");
  if (memoryLimitBytes > MAX_BYTES || memoryLimitBytes < 1024 * 1024) {
    throw new InvalidArgumentError("memoryLimitBytes", memoryLimitBytes, `from 1 MiB to ${MAX_BYTES} (4 GiB)`);
  }
  const heapStart = heapStartOf(ranks);
  const limitPages = Math.min(MAX_PAGES, Math.ceil((heapStart + memoryLimitBytes) / PAGE_BYTES));
  const firstPages = Math.min(limitPages, Math.ceil(heapStart / PAGE_BYTES) + 16);
  return { firstBytes: firstPages * PAGE_BYTES, limitBytes: limitPages * PAGE_BYTES, choices };
}

const heapStartOf = (ranks: number) => Math.ceil(rankBlock(ranks) / LINE) * LINE;

/** Writes a world's header into memory of zeros. */
export function beginWorld(
  memory: WasmMemory,
  world: { readonly ranks: number; readonly generation: number; readonly memoryLimitBytes: number },
): void {
  const { ranks, generation, memoryLimitBytes } = world;
  const heapStart = heapStartOf(ranks);
  const words = new Int32Array(memory.buffer);
  words[WORLD.ranks] = ranks;
  words[WORLD.generation] = generation;
  words[WORLD.heapStart] = heapStart / LINE;
  words[WORLD.heapTop] = heapStart / LINE;
  words[WORLD.highWater] = heapStart / LINE;
  words[WORLD.heapLimit] = Math.min(MAX_BYTES, heapStart + memoryLimitBytes) / LINE;
  words[WORLD.magic] = MAGIC;
}

/** How long the launching thread waits for the heap before it comes back later, ms. */
const PATIENCE_MS = 2;
/** A rank holds the heap's lock for microseconds: one that holds it longer than this is dead, ms. */
const DEAD_AFTER_MS = 10_000;

/**
 * Says that `rank` is dead: pending and later work of every group that it belongs to fails with `RankFailedError`, and
 * sleeping ranks are woken. From any thread; the launching one never waits for ranks here, which may be dead themselves,
 * but comes back. The first cause stays; a lock that the rank took since is broken again.
 * @param by `blamed`: the rank that the error names, another one where this one ended because that one died; `caller`: the
 * rank whose thread calls
 */
export function failRank(
  handle: SharedWorld,
  rank: number,
  cause: string,
  by: { readonly blamed?: number | undefined; readonly caller?: number } = {},
): void {
  const { blamed = rank, caller = LAUNCHER } = by;
  const heap = new Heap(handle, caller);
  if (declareDead(handle, heap, rank, { blamed, cause })) {
    markGroups({ handle, heap, rank, caller }, (ranks) => ranks.includes(rank));
  }
}

/**
 * Says that this generation of the world is over, because of `rank`: as `failRank`, but for every group, so that ranks
 * that talk only among themselves learn of it too. From the launching thread.
 */
export function failWorld(handle: SharedWorld, rank: number, cause: string, blamed = rank): void {
  const heap = new Heap(handle, LAUNCHER);
  declareDead(handle, heap, rank, { blamed, cause });
  if (Atomics.compareExchange(heap.words(), WORLD.failedRank, 0, rank + 1) !== 0) return;
  markGroups({ handle, heap, rank, caller: LAUNCHER }, () => true);
}

/** Repairs what a rank's thread left half done when it ended: it may have held the heap's lock. */
export function buryRank(handle: SharedWorld, rank: number): void {
  const heap = new Heap(handle, LAUNCHER);
  heap.breakLockOf(rank);
  // It may have ended while it wrote down its own death.
  Atomics.compareExchange(heap.words(), (rankBlock(rank) + RANK.failed) / 4, -1, 1);
}

/** Why a rank is dead, and which one its peers are told of. */
interface Death {
  readonly blamed: number;
  readonly cause: string;
}

/** Writes a rank's cause of death where all can read it. @returns false when it was dead already */
function declareDead(handle: SharedWorld, heap: Heap, rank: number, { blamed, cause }: Death): boolean {
  const words = heap.words();
  const at = rankBlock(rank);
  const isFirst = Atomics.compareExchange(words, (at + RANK.failed) / 4, 0, -1) === 0;
  if (isFirst) {
    const text = new TextEncoder().encode(cause).subarray(0, RANK.maxCauseBytes);
    new Uint8Array(handle.memory.buffer, at + RANK.cause, text.length).set(text);
    words[(at + RANK.causeBytes) / 4] = text.length;
    words[(at + RANK.blamed) / 4] = blamed + 1;
    Atomics.store(words, (at + RANK.failed) / 4, 1);
  }
  heap.breakLockOf(rank);
  return isFirst;
}

interface Marking {
  readonly handle: SharedWorld;
  readonly heap: Heap;
  /** Ranks that are dead. */
  readonly rank: number;
  readonly caller: number;
}

function markGroups(marking: Marking, concerns: (ranks: Int32Array) => boolean, since = performance.now()): void {
  const { handle, heap, rank, caller } = marking;
  const words = heap.words();
  const mark = () => {
    const death = deathOf(words, rank) ?? { blamed: rank, cause: "unknown" };
    for (let group = words[WORLD.firstGroup]! >>> 0; group !== 0; ) {
      const all = heap.words(group + GROUP.ranks + 4 * handle.ranks);
      const size = all[(group + GROUP.size) / 4]!;
      const ranks = all.subarray((group + GROUP.ranks) / 4, (group + GROUP.ranks) / 4 + size);
      if (concerns(ranks)) markRankFailed(heap, group, death, handle.generation);
      group = all[(group + GROUP.next) / 4]! >>> 0;
    }
  };
  if (caller !== LAUNCHER) heap.locked(mark);
  else if (!heap.tryLocked(mark, PATIENCE_MS)) {
    if (performance.now() - since > DEAD_AFTER_MS) heap.breakLock();
    setTimeout(() => markGroups(marking, concerns, since), PATIENCE_MS);
    return;
  }
  for (let r = 0; r < handle.ranks; r++) wake(heap, r);
}

/** Says that the launching thread is done with a world: V8 may collect its memory. */
export function releaseThreadsHost(handle: ThreadsHandle): void {
  noteEnded(handle.memory);
}

/** Wakes a rank whether or not it says that it sleeps. */
export function wake(heap: Heap, rank: number): void {
  const words = heap.words();
  const door = (rankBlock(rank) + RANK.doorbell) / 4;
  Atomics.add(words, door, 1);
  heap.waiting.notify(words, door);
}

/** Writes a failure into a group block, unless it has one. */
export function markFailure(heap: Heap, group: number, text: Uint8Array): boolean {
  const words = heap.words(group + GROUP.ranks);
  if (Atomics.compareExchange(words, (group + GROUP.state) / 4, 0, -1) !== 0) return false;
  new Uint8Array(words.buffer, group + GROUP.failure, text.length).set(text);
  words[(group + GROUP.failureBytes) / 4] = text.length;
  Atomics.store(words, (group + GROUP.state) / 4, 1);
  return true;
}

export function markRankFailed(heap: Heap, group: number, { blamed, cause }: Death, generation: number): void {
  const failure = { code: "RANK_FAILED", rank: blamed, generation, cause } as const;
  markFailure(heap, group, encodeFailure(failure, GROUP.maxFailureBytes));
}

/** Why `rank` is dead, or undefined while it lives. */
export function causeOf(words: Int32Array, rank: number): string | undefined {
  const at = rankBlock(rank);
  if (Atomics.load(words, (at + RANK.failed) / 4) !== 1) return undefined;
  const length = words[(at + RANK.causeBytes) / 4]!;
  return new TextDecoder().decode(new Uint8Array(words.buffer, at + RANK.cause, length).slice());
}

/** As `causeOf`, with the rank that is to blame. */
export function deathOf(words: Int32Array, rank: number): Death | undefined {
  const cause = causeOf(words, rank);
  if (cause === undefined) return undefined;
  const blamed = words[(rankBlock(rank) + RANK.blamed) / 4]! - 1;
  return { blamed: blamed < 0 ? rank : blamed, cause };
}
