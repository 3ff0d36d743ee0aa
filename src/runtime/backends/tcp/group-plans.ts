/** The plans of one group on this rank: prepared, kept for the next call, and run. */
import { bodyOf, type ExecutionPlan, type RankPlan, type SimpleOp } from "../../../authoring/plan/index.ts";
import type { DType, Tensor } from "../../../core/index.ts";
import { sizeOf } from "../../../core/index.ts";
import type { PlanCall } from "../../comm/index.ts";
import {
  type Carriage,
  COUNTER_BYTES,
  carriageOf,
  FarRun,
  type KernelOp,
  PlanBuffers,
  PreparedPlan,
  REACHES,
  type Reach,
  scalarOf,
  strandLines,
} from "../../executor/internal.ts";
import { dissemination, farewell } from "./algorithms.ts";
import type { Print } from "./frame.ts";
import type { PlanFrames } from "./plan-frames.ts";
import type { PlanMemory } from "./plan-memory.ts";
import type { Schedule } from "./schedule.ts";

/** Plans that a rank keeps prepared in a group; the one that was not run for longest makes room, on all ranks alike. */
const MAX_PREPARED = 32;

/** A plan that is ready to run. */
interface ReadyPlan {
  readonly run: FarRun;
  readonly prepared: PreparedPlan;
  /** Address of the words for the addresses of this rank's buffers; behind it, what else the plan counts in. */
  readonly words: number;
  /** Ranks read what others have: nobody may go on before all are done, whatever was proved of inputs and outputs. */
  readonly readsFar: boolean;
}

/** What a run asks of its group: to carry a schedule that lets the ranks meet. */
type RunSchedule = (schedule: Schedule, firstSlot: number, done: () => void) => void;

/** Slots of the messages by which ranks tell each other that they are done. */
const LAST_PART = 2 ** 24;

export class GroupPlans {
  readonly #memory: PlanMemory;
  readonly #frames: PlanFrames;
  readonly #place: { readonly rank: number; readonly size: number };
  readonly #ready = new Map<string, ReadyPlan>();
  /** Made room: freed when all ranks have come to the next call. */
  readonly #retired: ReadyPlan[] = [];

  constructor(memory: PlanMemory, frames: PlanFrames, place: { readonly rank: number; readonly size: number }) {
    this.#memory = memory;
    this.#frames = frames;
    this.#place = place;
  }

  /** Prepares a call. @throws InvalidArgumentError, OutOfMemoryError, UnsupportedError */
  prepare(call: PlanCall): PlanRunning {
    const carriage = carriageOf(call);
    const ready = this.#open(call.plan, call.hash, carriage.dtype, carriage.op);
    return new PlanRunning(call, carriage, ready, {
      memory: this.#memory,
      frames: this.#frames,
      place: this.#place,
      met: () => this.#free(),
    });
  }

  #open(plan: ExecutionPlan, hash: string, dtype: DType, op: KernelOp): ReadyPlan {
    const name = `${hash} ${dtype} ${op}`;
    const known = this.#ready.get(name);
    if (known !== undefined) {
      // The last one of a Map is the one used last.
      this.#ready.delete(name);
      this.#ready.set(name, known);
      return known;
    }
    const made = this.#make(plan, dtype, op);
    this.#ready.set(name, made);
    const [oldest] = this.#ready;
    if (this.#ready.size > MAX_PREPARED && oldest !== undefined) {
      this.#ready.delete(oldest[0]);
      this.#retired.push(oldest[1]);
    }
    return made;
  }

  #make(plan: ExecutionPlan, dtype: DType, op: KernelOp): ReadyPlan {
    const { rank, size } = this.#place;
    const memory = this.#memory;
    const counterBytes = PreparedPlan.counterBytes(plan);
    const numCounters = counterBytes / COUNTER_BYTES;
    const [counters, outbox] = [4 * REACHES.length, 4 * REACHES.length + 4 * numCounters];
    const state = Math.ceil((outbox + 4 * numCounters * size) / 16) * 16;
    const words = memory.allocate(state + PreparedPlan.stateBytes(plan));
    const isFar = (of: number) => of !== rank;
    const counter = (id: number) => words + counters + 4 * id;
    const { exports } = memory;
    try {
      const prepared = new PreparedPlan({
        plan,
        rank,
        dtype,
        op,
        memory,
        machine: exports,
        transport: {
          map: (_, buffer: Reach) => words + 4 * REACHES.indexOf(buffer),
          signal: (of, id) => (isFar(of) ? words + outbox + 4 * (of * numCounters + id) : counter(id)),
          wait: counter,
          state: words + state,
          isFar,
        },
      });
      const { reduce } = exports;
      const run = new FarRun({ prepared, memory, port: this.#frames, isFar, counter, numCounters, reduce });
      return { run, prepared, words, readsFar: plan.ranks.some(readsOthers) };
    } catch (error) {
      memory.free(words);
      throw error;
    }
  }

  #free(): void {
    for (const { run, prepared, words } of this.#retired.splice(0)) {
      run.free();
      prepared.close();
      this.#memory.free(words);
    }
  }

  /** Gives everything back. */
  close(): void {
    this.#retired.push(...this.#ready.values());
    this.#ready.clear();
    this.#free();
  }
}

interface RunningParts {
  readonly memory: PlanMemory;
  readonly frames: PlanFrames;
  readonly place: { readonly rank: number; readonly size: number };
  /** All ranks have come to the call. */
  readonly met: () => void;
}

/** One call that runs a plan, from its buffers to its end. */
export class PlanRunning {
  readonly #call: PlanCall;
  readonly #carriage: Carriage;
  readonly #ready: ReadyPlan;
  readonly #parts: RunningParts;
  #buffers: PlanBuffers | undefined;
  #isOver = false;

  constructor(call: PlanCall, carriage: Carriage, ready: ReadyPlan, parts: RunningParts) {
    this.#call = call;
    this.#carriage = carriage;
    this.#ready = ready;
    this.#parts = parts;
  }

  /** Begins it. @throws OutOfMemoryError, InvalidArgumentError for a size that the plan cannot do */
  start(seq: number, print: Print, schedule: RunSchedule, done: () => void): void {
    const { run, prepared, words, readsFar } = this.#ready;
    const { memory, frames, place, met } = this.#parts;
    const { op, partBytes, dtype, endsAlone } = this.#call;
    const carriage = this.#carriage;
    const buffers = new PlanBuffers(memory.host(place.rank, place.size), this.#call, carriage);
    this.#buffers = buffers;
    prepared.bind(carriage.widened ? (4 * partBytes) / sizeOf(dtype) : partBytes);
    if (carriage.op === "avg") prepared.parameter("avg", place.size);
    if (carriage.op === "preMulSum") prepared.parameter("preMulSum", scalarOf(op, dtype));
    memory.words().set([buffers.input, buffers.output], words / 4);
    run.launch(buffers);
    frames.begin({ seq, print, run });
    const here = { ...place, elementBytes: 1 };
    const ended = () => {
      if (this.#isOver) return;
      this.#isOver = true;
      run.close();
      // Where a rank must not go on before all are done, each tells all others, behind all that it has put there.
      if (endsAlone && !readsFar) done();
      else schedule(farewell(here), LAST_PART, done);
    };
    schedule({ ...MEETING, strand: () => dissemination(here) }, 0, () => {
      met();
      if (this.#isOver) return;
      const advance = () => {
        if (run.advance()) ended();
      };
      run.open(advance);
      advance();
    });
  }

  /** Brings the result to where the caller wants it. */
  finish(): Tensor | undefined {
    const result = this.#buffers?.finish();
    this.drop();
    return result;
  }

  /** Gives its memory back. */
  drop(): void {
    this.#isOver = true;
    this.#ready.run.close();
    this.#buffers?.free();
  }

  /** Where this rank's strands stand: for reports of a run that hangs. */
  get strands(): readonly string[] {
    const { prepared } = this.#ready;
    return this.#isOver ? [] : strandLines(prepared.plan, prepared.rank, prepared.positions());
  }
}

/** Whether a rank reads buffers of others. */
function readsOthers({ strands }: RankPlan): boolean {
  const reads = (op: SimpleOp) =>
    op.kind === "get" ||
    op.kind === "switch-reduce" ||
    op.kind === "switch-reduce-broadcast" ||
    (op.kind === "reduce" && op.remoteSrc.length > 0);
  return strands.some(({ ops }) => ops.some((op) => bodyOf(op).some(reads)));
}

const MEETING: Omit<Schedule, "strand"> = { name: "dissemination", numStrands: 1, window: 1, scratchBytes: 0 };
