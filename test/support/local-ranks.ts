/**
 * All ranks of a plan in one thread, over one memory: each runs as far as it gets, in an order that the seed decides. For
 * tests of the executor without threads, whose interleavings can be repeated.
 */
import type { ExecutionPlan } from "../../src/authoring/plan/index.ts";
import { type DType, type ReduceOp, sizeOf, type TypedArray, viewAs } from "../../src/core/index.ts";
import {
  buildExecutor,
  COUNTER_BYTES,
  type ExecutorMemory,
  instantiate,
  type KernelOp,
  type MachineExports,
  newSharedMemory,
  PreparedPlan,
  REACHES,
  type Reach,
  type WasmMemory,
  type WasmModule,
} from "../../src/runtime/executor/internal.ts";
import { Random } from "../oracle/random.ts";

let compiled: WasmModule | undefined;

/** Hands out memory and never takes it back. Every block is filled with `poison` unless zeros are asked for. */
export class Bump implements ExecutorMemory {
  readonly memory: WasmMemory;
  #top = 1024;
  constructor() {
    this.memory = newSharedMemory(64, 16_384);
  }
  words(): Int32Array {
    return new Int32Array(this.memory.buffer);
  }
  allocate(bytes: number, zeroed = true): number {
    const at = this.#top;
    this.#top = Math.ceil((at + bytes) / 128 + 1) * 128;
    const missing = this.#top - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / 65_536) + 64);
    new Uint8Array(this.memory.buffer, at, bytes).fill(zeroed ? 0 : 0xa5);
    return at;
  }
  free(): void {}
}

export interface LocalOptions {
  readonly dtype: DType;
  readonly op?: ReduceOp;
  readonly seed?: number;
  /** As where the ranks meet after every launch too: they do, as `launch` ends when all have. */
  readonly meets?: boolean;
}

/** Where a rank's buffers lie, in bytes, and how many they have. */
export interface LocalBuffers {
  readonly input: number;
  readonly inputBytes: number;
  readonly output: number;
  readonly outputBytes: number;
}

/** Ranks of a plan over one memory, whatever executes them. */
export interface RanksOfOneMemory {
  readonly plan: ExecutionPlan;
  readonly memory: {
    readonly memory: { readonly buffer: ArrayBufferLike };
    allocate(bytes: number, zeroed?: boolean): number;
  };
  launch(partBytes: number, buffers: readonly LocalBuffers[]): string | undefined;
  view(dtype: DType, address: number, bytes: number): TypedArray;
}

export class LocalRanks implements RanksOfOneMemory {
  readonly plan: ExecutionPlan;
  readonly memory = new Bump();
  readonly prepared: readonly PreparedPlan[];
  readonly #table: number;
  readonly #random: Random;

  constructor(plan: ExecutionPlan, { dtype, op, seed = 1, meets = false }: LocalOptions) {
    this.plan = plan;
    this.#random = new Random(seed);
    compiled ??= buildExecutor();
    const machine = instantiate<MachineExports>(compiled, this.memory.memory);
    const { memory } = this;
    this.#table = memory.allocate(16 * plan.ranks.length);
    const stride = PreparedPlan.counterBytes(plan);
    const counters = memory.allocate(stride * plan.ranks.length);
    const name = op === undefined ? undefined : typeof op === "string" ? op : "preMulSum";
    this.prepared = plan.ranks.map(({ rank }) => {
      const transport = {
        map: (of: number, buffer: Reach) => this.#table + 16 * of + 4 * REACHES.indexOf(buffer),
        signal: (of: number, counter: number) => counters + stride * of + COUNTER_BYTES * counter,
        state: memory.allocate(PreparedPlan.stateBytes(plan)),
        wait: (counter: number) => counters + stride * rank + COUNTER_BYTES * counter,
      };
      const more = name === undefined ? {} : { op: name as KernelOp };
      return new PreparedPlan({ plan, rank, dtype, memory, transport, machine, meets, ...more });
    });
  }

  /** Runs the plan once. @returns undefined, or where every strand stands when nothing moves any more */
  launch(partBytes: number, buffers: readonly LocalBuffers[]): string | undefined {
    buffers.forEach(({ input, output }, rank) => {
      this.memory.words().set([input, output], this.#table / 4 + 4 * rank);
    });
    for (const rank of this.prepared) rank.bind(partBytes);
    for (const rank of this.prepared) rank.launch();
    const open = new Set(this.prepared);
    let before = "";
    for (let round = 1; open.size > 0; round++) {
      for (const rank of [...open]) if (this.#random.chance(0.7) && rank.run(0)) open.delete(rank);
      // In so many rounds, everybody had a turn.
      if (round % 32 !== 0) continue;
      const now = JSON.stringify([...open].map((rank) => rank.positions()));
      if (now === before) break;
      before = now;
    }
    if (open.size === 0) return undefined;
    return [...open].map((rank) => `rank ${rank.rank}: ${JSON.stringify(rank.positions())}`).join("; ");
  }

  /** Views `bytes` of memory as elements. */
  view<D extends DType>(dtype: D, address: number, bytes: number) {
    return viewAs(dtype, this.memory.memory.buffer, address, bytes / sizeOf(dtype));
  }
}
