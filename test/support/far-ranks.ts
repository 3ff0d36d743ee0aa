/**
 * All ranks of a plan in one thread, each far from all others: what one does to another is a message, and messages between
 * two ranks keep their order and no other. Who runs and which message arrives next is decided by the seed.
 */
import type { ExecutionPlan } from "../../src/authoring/plan/index.ts";
import { type DType, sizeOf, viewAs } from "../../src/core/index.ts";
import {
  buildExecutor,
  COUNTER_BYTES,
  type ExecutorExports,
  type FarPlace,
  type FarPort,
  FarRun,
  instantiate,
  type KernelOp,
  PreparedPlan,
  REACHES,
  type Reach,
  type WasmModule,
} from "../../src/runtime/executor/internal.ts";
import { Random } from "../oracle/random.ts";
import { Bump, type LocalBuffers, type LocalOptions, type RanksOfOneMemory } from "./local-ranks.ts";

let compiled: WasmModule | undefined;

export class FarRanks implements RanksOfOneMemory {
  readonly plan: ExecutionPlan;
  readonly memory = new Bump();
  readonly runs: readonly FarRun[];
  /** Messages that needed no answer, and fences. */
  numPuts = 0;
  numFences = 0;
  readonly #random: Random;
  readonly #tables: readonly number[];
  /** By sender, then receiver. */
  readonly #wires: (() => void)[][][];

  constructor(plan: ExecutionPlan, { dtype, op, seed = 1 }: LocalOptions) {
    this.plan = plan;
    this.#random = new Random(seed);
    compiled ??= buildExecutor();
    const { memory } = this;
    const machine = instantiate<ExecutorExports>(compiled, memory.memory);
    const { reduce } = machine;
    const n = plan.ranks.length;
    const numCounters = PreparedPlan.counterBytes(plan) / COUNTER_BYTES;
    this.#wires = plan.ranks.map(() => plan.ranks.map(() => []));
    this.#tables = plan.ranks.map(() => memory.allocate(16));
    const name = op === undefined ? undefined : typeof op === "string" ? op : "preMulSum";
    this.runs = plan.ranks.map(({ rank }) => {
      const counters = memory.allocate(COUNTER_BYTES * numCounters);
      const outbox = memory.allocate(4 * numCounters * n);
      const isFar = (of: number) => of !== rank;
      const counter = (id: number) => counters + COUNTER_BYTES * id;
      const prepared = new PreparedPlan({
        plan,
        rank,
        dtype,
        memory,
        machine,
        transport: {
          map: (of: number, buffer: Reach) => {
            if (of !== rank) throw new Error(`rank ${rank} asks for the memory of rank ${of}`);
            return (this.#tables[rank] as number) + 4 * REACHES.indexOf(buffer);
          },
          signal: (of: number, id: number) => (of === rank ? counter(id) : outbox + 4 * (of * numCounters + id)),
          wait: counter,
          state: memory.allocate(PreparedPlan.stateBytes(plan)),
          isFar,
        },
        ...(name === undefined ? {} : { op: name as KernelOp }),
      });
      return new FarRun({ prepared, memory, port: this.#port(rank), isFar, counter, numCounters, reduce });
    });
  }

  #port(me: number): FarPort {
    const send = (from: number, to: number, message: () => void) => this.#wires[from]?.[to]?.push(message);
    const run = (rank: number) => this.runs[rank] as FarRun;
    const bytes = (at: number, length: number) => new Uint8Array(this.memory.memory.buffer, at, length);
    const placeOf = ({ rank, buffer, offset }: FarPlace, length: number) => {
      const at = run(rank).place(buffer, offset, length);
      if (at === undefined) throw new Error(`${length} bytes at ${offset} are not in ${buffer} of rank ${rank}`);
      return at;
    };
    return {
      put: (to, form, from, length, done) => {
        this.numPuts++;
        const data = bytes(from, form === "raw" ? 8 * Math.ceil(length / 4) : length).slice();
        send(me, to.rank, () => {
          const at = placeOf(to, length);
          if (form === "packets") run(to.rank).pack(at, data);
          else bytes(at, data.length).set(data);
          run(to.rank).changed();
        });
        // The memory may change again at once, or later.
        if (this.#random.chance(0.5)) done();
        else send(me, me, done);
      },
      get: (from, to, length, done) => {
        send(me, from.rank, () => {
          const data = bytes(placeOf(from, length), length).slice();
          send(from.rank, me, () => {
            bytes(to, length).set(data);
            done();
          });
        });
      },
      signal: (rank, counter, times) =>
        send(me, rank, () => {
          if (!run(rank).raised(counter, times)) throw new Error(`rank ${rank} has no counter ${counter}`);
          run(rank).changed();
        }),
      fence: (rank, done) => {
        this.numFences++;
        send(me, rank, () => send(rank, me, done));
      },
    };
  }

  launch(partBytes: number, buffers: readonly LocalBuffers[]): string | undefined {
    const open = new Set<number>();
    buffers.forEach((own, rank) => {
      this.memory.words().set([own.input, own.output], (this.#tables[rank] as number) / 4);
      const run = this.runs[rank] as FarRun;
      run.prepared.bind(partBytes);
      run.launch(own);
      open.add(rank);
    });
    const advance = (rank: number) => {
      if (open.has(rank) && this.runs[rank]?.advance() === true) open.delete(rank);
    };
    for (const [rank, run] of this.runs.entries()) run.open(() => advance(rank));
    for (const rank of [...open]) if (this.#random.chance(0.7)) advance(rank);
    const wires = this.#wires.flat();
    for (;;) {
      const full = wires.filter((wire) => wire.length > 0);
      if (full.length > 0 && this.#random.chance(0.9)) {
        this.#random.pick(full).shift()?.();
        continue;
      }
      if (open.size === 0 && full.length === 0) break;
      const before = JSON.stringify(this.runs.map(({ prepared }) => prepared.positions()));
      for (const rank of [...open]) advance(rank);
      const after = JSON.stringify(this.runs.map(({ prepared }) => prepared.positions()));
      if (before === after && full.length === 0 && wires.every((wire) => wire.length === 0)) break;
    }
    for (const run of this.runs) run.close();
    if (open.size === 0) return undefined;
    return [...open].map((rank) => `rank ${rank}: ${JSON.stringify(this.runs[rank]?.prepared.positions())}`).join("; ");
  }

  view<D extends DType>(dtype: D, address: number, bytes: number) {
    return viewAs(dtype, this.memory.memory.buffer, address, bytes / sizeOf(dtype));
  }
}
