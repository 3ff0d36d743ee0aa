/** One rank's door to a threads world: its memory, its groups, its way of waiting. */
import { availableParallelism } from "node:os";
import { shareVerdicts } from "../../../authoring/plan/index.ts";
import { OPERATION_NAMES } from "../../../collectives/index.ts";
import {
  AbortedError,
  ChoraleError,
  ClosedError,
  rank as checkRank,
  DTYPE_NAMES,
  type DType,
  InvalidArgumentError,
  isLegal,
  numElements,
  parseDType,
  REDUCE_OPS,
  sizeOf,
  Tensor,
} from "../../../core/index.ts";
import { described, tensorInUse } from "../../../core/internal.ts";
import { type CpuTopology, cpuTopology } from "../../../machine/cost/index.ts";
import {
  type Backend,
  type Capabilities,
  type Communicator,
  checkGroup,
  closeEach,
  DEFAULT_TIMEOUT_MS,
  GroupOpenings,
  type Operand,
  refuseCalls,
} from "../../comm/index.ts";
import { instantiate, loadEarly, type WasmModule } from "../../executor/internal.ts";
import { CoreSharing, maySpread } from "./core-sharing.ts";
import { FlightRing } from "./flight-ring.ts";
import { GroupEngine } from "./group-engine.ts";
import type { AttachOptions, ThreadsHandle } from "./handle.ts";
import { Heap } from "./heap.ts";
import { deathOf, failRank, MAX_RANKS, markRankFailed, rankBlock, wake } from "./host.ts";
import { largeMove } from "./large-move.ts";
import { GROUP, groupLayout, LINE, MAGIC, MEETING, MESSAGE, MESSAGE_STATE, PAIR, RANK, SLOT, WORLD } from "./layout.ts";
import { noteEnded } from "./memory-pressure.ts";
import { messageWord } from "./pair-channels.ts";
import type { ProtocolExports } from "./protocol.ts";
import { choicesOf } from "./served-call.ts";
import type { SharedWorld } from "./shared-world.ts";
import { Driver } from "./spin-then-sleep.ts";
import { type Arena, SharedStorage } from "./storage.ts";
import { ThreadsGroup } from "./threads-group.ts";
import { VerdictTable } from "./verdict-table.ts";

const CAPABILITIES: Omit<Capabilities, "backend"> = Object.freeze({
  dtypes: DTYPE_NAMES,
  reduceOps: Object.fromEntries(
    DTYPE_NAMES.map((dtype) => [dtype, [...REDUCE_OPS.filter((op) => isLegal(op, dtype)), "preMulSum"]]),
  ) as Capabilities["reduceOps"],
  operations: [...OPERATION_NAMES, "broadcast_object", "gather_objects", "batch", "split", "shrink", "run"],
  deviceTensors: false,
  hostTensors: true,
  maxRanks: MAX_RANKS,
  features: { zeroCopy: true, sharedMemory: true },
});

export class ThreadsBackend implements Backend {
  readonly name: string;
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly world: Communicator;
  readonly arena: Arena;
  readonly timeoutMs: number;
  readonly strictWork: boolean;
  readonly #handle: SharedWorld;
  readonly #capabilities: Capabilities;
  readonly #heap: Heap;
  readonly #wasm: ProtocolExports;
  readonly #driver: Driver;
  readonly #topology: CpuTopology;
  readonly #flight: FlightRing;
  readonly #firstCall: number;
  readonly #open = new Set<ThreadsGroup>();
  #abandoned = false;
  readonly #openings = new GroupOpenings();
  /** Gives back the memory of tensors that nobody can reach any more. */
  readonly #lost: FinalizationRegistry<SharedStorageRecord>;
  /** Whoever holds `tensor.data` can reach the memory, also without the tensor. (A `subarray` of it does not count.) */
  readonly #views = new WeakMap<object, SharedStorage>();

  /**
   * @param firstCall the number that calls and messages begin with, the same on all ranks: for tests of numbers that take
   * hours to reach. Not one or two before a multiple of 2^32, whose stamp is what slots that were never used hold
   */
  constructor(
    handle: SharedWorld & { readonly module: WasmModule },
    rank: number,
    options: AttachOptions = {},
    firstCall = 0,
  ) {
    this.name = handle.kind;
    this.rank = checkRank(rank, handle.ranks);
    this.worldSize = handle.ranks;
    this.generation = handle.generation;
    this.arena = { generation: handle.generation, closed: undefined };
    this.timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.strictWork = options.strictWork ?? false;
    this.#firstCall = firstCall;
    this.#handle = handle;
    const features = { ...CAPABILITIES.features, memoryLimitBytes: handle.limitBytes };
    this.#capabilities = Object.freeze({ ...CAPABILITIES, backend: this.name, features: Object.freeze(features) });
    this.#heap = new Heap(handle, rank);
    const words = this.#heap.words();
    if (Atomics.exchange(words, (rankBlock(rank) + RANK.attached) / 4, 1) === 1) {
      throw new InvalidArgumentError("rank", rank, `a rank that is not attached yet in generation ${this.generation}`);
    }
    const { waiting } = this.#heap;
    this.#wasm = instantiate<ProtocolExports>(handle.module, handle.memory, {
      wake: (door = 0) => waiting.notify(words, (door >>> 0) / 4),
      moveLarge: largeMove(this.#heap),
    });
    this.#heap.useZero((address, bytes) => {
      this.#wasm.zero(address, bytes);
    });
    if (handle.ranks > 1) shareVerdicts(new VerdictTable(this.#heap, rank));
    const cores = options.cores ?? availableParallelism();
    const isCrowded = handle.ranks > cores;
    const sharing =
      maySpread(process.env) && handle.ranks > 1 && !isCrowded ? new CoreSharing(words, rank, handle.ranks) : undefined;
    this.#driver = new Driver(words, waiting, rank, handle.ranks, isCrowded, sharing);
    this.#topology = cpuTopology(handle.ranks, cores);
    this.#flight = new FlightRing(words, rank, firstCall);
    const heap = this.#heap;
    this.#lost = new FinalizationRegistry((record) => {
      if (!record.freed && !this.#abandoned) heap.free(record.address);
    });
    this.world = this.open(
      "world",
      Array.from({ length: handle.ranks }, (_, r) => r),
      "world",
    );
  }

  async group(name: string, ranks: readonly number[]): Promise<Communicator> {
    checkGroup(name, ranks, this.worldSize, this.rank);
    return this.open(name, ranks, "group");
  }

  /** Opens this rank's end of a group. All members come to the same block by the same key. */
  open(name: string, ranks: readonly number[], purpose: string): Communicator {
    this.checkOpen();
    const kind = `${name}\n${ranks.join(",")}\n${purpose}`;
    const nth = this.#openings.next(`${purpose} ${name}`, ranks);
    const key = new TextEncoder().encode(`${kind}\n${nth}`);
    const block = this.#findOrMakeGroup(key, new TextEncoder().encode(name).length, ranks);
    const engine = new GroupEngine({
      name,
      ranks: Object.freeze([...ranks]),
      me: ranks.indexOf(this.rank),
      generation: this.generation,
      block,
      keyBytes: key.length,
      heap: this.#heap,
      wasm: this.#wasm,
      driver: this.#driver,
      flight: this.#flight,
      firstCall: this.#firstCall,
      choices: choicesOf({
        backend: this.name,
        name,
        size: ranks.length,
        me: ranks.indexOf(this.rank),
        topology: this.#topology,
        machine: this.#handle.choices,
      }),
    });
    if (this.#handle.choices !== undefined) loadEarly(engine.choices, () => this.arena.closed === undefined);
    const group = new ThreadsGroup(this, engine);
    this.#open.add(group);
    return group.communicator;
  }

  #findOrMakeGroup(key: Uint8Array, nameBytes: number, ranks: readonly number[]): number {
    const heap = this.#heap;
    const layout = groupLayout(ranks.length, key.length);
    const find = (): number => {
      let group = heap.words()[WORLD.firstGroup]! >>> 0;
      while (group !== 0) {
        const words = heap.words(group + GROUP.ranks);
        const at = words[(group + GROUP.key) / 4]! >>> 0;
        const length = words[(group + GROUP.keyBytes) / 4]!;
        if (length === key.length) {
          const bytes = new Uint8Array(heap.words(at + length).buffer, at, length);
          if (key.every((byte, i) => byte === bytes[i])) return group;
        }
        group = words[(group + GROUP.next) / 4]! >>> 0;
      }
      return 0;
    };
    const found = heap.locked(find);
    if (found !== 0) return found;
    const block = heap.allocate(layout.sizeBytes);
    const words = heap.words(block + layout.sizeBytes);
    const at = block / 4;
    words[at + GROUP.size / 4] = ranks.length;
    // Every member counts from the start: one that closes early must not take the group from one that opens late.
    words[at + GROUP.references / 4] = ranks.length;
    words[at + GROUP.keyBytes / 4] = key.length;
    words[at + GROUP.key / 4] = block + layout.key;
    words[at + GROUP.nameBytes / 4] = nameBytes;
    words[at + GROUP.spread / 4] = Number(!this.#driver.oversubscribed);
    if (this.#firstCall !== 0) fillStamps(words, block, layout, ranks.length, this.#firstCall | 0);
    ranks.forEach((r, i) => {
      words[at + GROUP.ranks / 4 + i] = r;
    });
    new Uint8Array(words.buffer, block + layout.key, key.length).set(key);
    const winner = heap.locked(() => {
      const other = find();
      if (other !== 0) return other;
      const control = heap.words();
      words[at + GROUP.next / 4] = control[WORLD.firstGroup]!;
      control[WORLD.firstGroup] = block;
      const ended = control[WORLD.failedRank]! - 1;
      for (const r of ended < 0 ? ranks : [...ranks, ended]) {
        const death = deathOf(control, r);
        if (death !== undefined) markRankFailed(heap, block, death, this.generation);
      }
      return block;
    });
    if (winner !== block) heap.free(block);
    return winner;
  }

  /** Gives back a closed group's memory on this rank; the last member's also what all share. */
  release(closed: ThreadsGroup, engine: GroupEngine): void {
    this.#open.delete(closed);
    if (this.#abandoned) return;
    const heap = this.#heap;
    const { block, words } = engine;
    heap.free(engine.member);
    engine.plans.close(engine.failure !== undefined);
    const last = heap.locked(() => {
      const references = (block + GROUP.references) / 4;
      words[references]! -= 1;
      if (words[references]! > 0) return false;
      let at: number = WORLD.firstGroup;
      for (;;) {
        const next = heap.words()[at]! >>> 0;
        if (next === 0) return false;
        const nextWord = (next + GROUP.next) / 4;
        if (next === block) {
          heap.words()[at] = heap.words()[nextWord]!;
          return true;
        }
        heap.words(next + GROUP.ranks);
        at = nextWord;
      }
    });
    if (!last) return;
    const n = engine.size;
    for (let i = 0; i < n * n; i++) {
      const pair = words[(block + engine.layout.pairs) / 4 + i]! >>> 0;
      if (pair !== 0) freePair(heap, pair);
    }
    const rings = words[(block + GROUP.rings) / 4]! >>> 0;
    if (rings !== 0) heap.free(rings);
    heap.free(block);
  }

  tensor<D extends DType>(dtype: D, shape: readonly number[]): Tensor<D> {
    return this.#allocate(parseDType(dtype), shape, true) as Tensor<D>;
  }
  /** A tensor whose first contents do not matter, for results. */
  scratchTensor<D extends DType>(dtype: D, count: number): Tensor<D> {
    return this.#allocate(dtype, [count], false);
  }

  #allocate<D extends DType>(dtype: D, shape: readonly number[], zeroed: boolean): Tensor<D> {
    this.checkOpen();
    const bytes = numElements(shape) * sizeOf(dtype);
    const address = this.#heap.allocate(bytes, zeroed);
    const storage = new SharedStorage(this.arena, this.bufferFor(address + bytes), address, bytes);
    this.#lost.register(storage, storage.record, storage);
    const tensor = new Tensor(dtype, shape, storage, address);
    this.#views.set(tensor.data, storage);
    return tensor;
  }

  free(tensor: Tensor): void {
    if (!(tensor instanceof Tensor))
      throw new InvalidArgumentError("tensor", tensor, "a tensor that this world allocated");
    const { storage } = tensor;
    if (!(storage instanceof SharedStorage) || storage.arena !== this.arena) {
      throw new InvalidArgumentError("tensor", storage.kind, "a tensor that this world allocated");
    }
    if (storage.closed !== undefined) throw new ClosedError("tensor", storage.closed);
    for (const group of this.#open) {
      const work = group.pendingIn(storage.address, storage.sizeBytes);
      if (work === undefined) continue;
      throw tensorInUse(`${work.op} #${work.seq} of group ${work.group}`);
    }
    storage.freed = "was freed";
    storage.record.freed = true;
    this.#lost.unregister(storage);
    this.#heap.free(storage.address);
  }

  /** The memory's bytes, at least up to `endAddress`. */
  bufferFor(endAddress: number): ArrayBufferLike {
    return this.#heap.words(endAddress).buffer;
  }

  /**
   * The elements of the world's tensors may be given as arrays; the world's own words, before the heap, may not.
   * @throws InvalidArgumentError
   */
  checkMemory(given: Operand | undefined): void {
    const tensor = given?.tensor;
    const array = given?.array ?? (tensor?.storage.kind === "private" ? tensor.data : undefined);
    if (array !== undefined && array.byteOffset < this.#heap.firstByte && this.#heap.isIn(array.buffer)) {
      const where = `bytes from ${array.byteOffset} of the world's memory`;
      throw new InvalidArgumentError("array", described(where), "elements of a tensor: `tensor.data`, or a part of it");
    }
  }

  checkOpen(): void {
    if (this.arena.closed !== undefined) throw new ClosedError("world", this.arena.closed);
  }

  fail(rank: number, cause: string, blamed?: number): void {
    failRank(this.#handle, checkRank(rank, this.worldSize), cause, { blamed, caller: this.rank });
  }

  capabilities(): Capabilities {
    return this.#capabilities;
  }

  /** Nothing is given back to the shared heap: the generation's whole memory goes when its last rank lets go of it. */
  abandon(cause: Error): void {
    if (this.#abandoned || this.arena.closed !== undefined) return;
    this.#abandoned = true;
    const reason = cause instanceof AbortedError ? cause.reason : cause.message;
    this.arena.closed = `belongs to generation ${this.generation}, which ended: ${reason}`;
    const error = cause instanceof ChoraleError ? cause : new AbortedError(cause.message, { cause });
    for (const group of this.#open) {
      refuseCalls(group.communicator, this.arena.closed);
      group.abandon(error);
    }
    this.#open.clear();
    this.#driver.close();
    shareVerdicts(undefined);
    noteEnded(this.#handle.memory);
    this.#handle.onClosed?.();
  }

  async close(): Promise<void> {
    if (this.arena.closed !== undefined) return;
    const failed = await closeEach([...this.#open].map(({ communicator }) => communicator));
    this.arena.closed = `belongs to generation ${this.generation}, which ended`;
    this.#driver.close();
    shareVerdicts(undefined);
    wake(this.#heap, this.rank);
    this.#handle.onClosed?.();
    if (failed !== undefined) throw failed.error;
  }
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Has all words that count calls say that the call before the first one was made: later stamps are told by a difference. */
function fillStamps(
  words: Int32Array,
  block: number,
  layout: ReturnType<typeof groupLayout>,
  n: number,
  stamp: number,
): void {
  const lines = (from: number, to: number, step: number) => {
    for (let at = block + from; at < block + to; at += step) words[at / 4] = stamp;
  };
  lines(layout.slots, layout.slots + 2 * n * SLOT.sizeBytes, SLOT.sizeBytes);
  lines(layout.done, layout.links, LINE);
  lines(layout.links + MEETING.arrived, layout.counts, LINE);
  lines(layout.links + MEETING.finished, layout.counts, LINE);
}

/** Frees a ring of messages, and the copies of those that nobody received. */
function freePair(heap: Heap, pair: number): void {
  const words = heap.words(pair + PAIR.sizeBytes);
  const consumed = words[(pair + PAIR.consumed) / 4]!;
  const numLeft = (words[(pair + PAIR.posted) / 4]! - consumed) | 0;
  for (let i = 0; i < numLeft; i++) {
    const at = messageWord(pair, consumed + i);
    if (words[at] === MESSAGE_STATE.buffered) heap.free(words[at + MESSAGE.address / 4]! >>> 0);
  }
  heap.free(pair);
}

/** What must outlive a storage to free its memory. */
interface SharedStorageRecord {
  readonly address: number;
  freed: boolean;
}

/**
 * Opens this thread's end of a threads world as `rank`. Synchronous: nothing waits for the other ranks.
 * @throws InvalidArgumentError for a rank out of range, or attached before
 */
export function attachThreads(handle: ThreadsHandle, rank: number, options?: AttachOptions): Backend {
  if (handle?.kind !== "threads" || new Int32Array(handle.memory.buffer)[WORLD.magic] !== MAGIC) {
    throw new InvalidArgumentError("handle", described(`of type ${typeof handle}`), "what createThreadsHost returned");
  }
  return new ThreadsBackend(handle, rank, options);
}

/** As `attachThreads`, of any world of shared memory. @param world.module what `buildProtocol` made for its way of waiting */
export function attachShared(
  world: SharedWorld & { readonly module: WasmModule },
  rank: number,
  options: AttachOptions,
): Backend {
  return new ThreadsBackend(world, rank, options);
}
