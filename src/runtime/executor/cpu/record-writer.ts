/** Writes the records of a rank's plan into memory, as words: `image.ts` says where each of them stands. */
import type { PlanReduceOp } from "../../../authoring/plan/index.ts";
import { type DType, InvalidArgumentError } from "../../../core/index.ts";
import { COPY_KERNEL, KERNEL_INDEX, type KernelOp } from "../wasm/reduce-kernels.ts";
import { BARRIER, CODE, DATA, LOOP, RECORD, SEMAPHORES, SIGNAL, WAIT } from "./image.ts";
import type { PartedRecord, Stretch } from "./records.ts";

/** Words of a record. */
export function wordsOf(record: PartedRecord["record"]): number {
  switch (record.code) {
    case "signal":
      return SIGNAL.addresses + record.counters.length;
    case "wait":
      return WAIT.entries + 3 * record.counters.length;
    case "acquire":
    case "release":
      return SEMAPHORES.entries + 2 * record.semaphores.length;
    case "barrier":
      return BARRIER.numStrands + 1;
    case "loop":
    case "repeat":
      return LOOP.after + 1;
    case "end":
    case "fence":
      return RECORD.operands;
    default:
      return DATA.ranges + 2 * (record.ins.length + record.outs.length);
  }
}

/** Where what records name lies. */
interface RecordPlaces {
  readonly dtype: DType;
  readonly op: (op: PlanReduceOp) => KernelOp;
  /** Of the word that holds a base address; 0 where that is at a far rank. */
  readonly base: (stretch: Stretch) => number;
  readonly signal: (counter: { readonly rank: number; readonly counter: number }) => number;
  readonly wait: (counter: number) => number;
  readonly taken: (counter: number) => number;
  readonly semaphore: (id: number) => number;
  readonly barrier: (id: number) => number;
}

export class RecordWriter {
  readonly #words: Int32Array;
  readonly #places: RecordPlaces;

  constructor(words: Int32Array, places: RecordPlaces) {
    this.#words = words;
    this.#places = places;
  }

  write(address: number, next: number, record: PartedRecord["record"], after: number): void {
    const at = address / 4;
    const places = this.#places;
    const put = (field: number, ...values: readonly number[]) => this.#words.set(values, at + field);
    put(RECORD.code, CODE[record.code], next);
    switch (record.code) {
      case "signal":
        put(SIGNAL.relaxed, Number(record.relaxed), record.counters.length, ...record.counters.map(places.signal));
        break;
      case "wait": {
        const entries = record.counters.flatMap(({ id, times }) => [places.wait(id), places.taken(id), times]);
        put(WAIT.count, record.counters.length, ...entries);
        break;
      }
      case "acquire": {
        const entries = record.semaphores.flatMap(({ id, times }) => [places.semaphore(id), times]);
        put(SEMAPHORES.count, record.semaphores.length, ...entries);
        break;
      }
      case "release":
        put(
          SEMAPHORES.count,
          record.semaphores.length,
          ...record.semaphores.flatMap((id) => [places.semaphore(id), 1]),
        );
        break;
      case "barrier":
        put(BARRIER.address, places.barrier(record.barrier), record.numStrands);
        break;
      case "loop":
      case "repeat":
        put(LOOP.after, after);
        break;
      case "end":
      case "fence":
        break;
      default: {
        const { ins, outs } = record;
        const kernel = record.op === undefined ? COPY_KERNEL : KERNEL_INDEX[places.dtype][places.op(record.op)];
        if (kernel === undefined) {
          throw new InvalidArgumentError("op", record.op, `an operator that ${places.dtype} has`);
        }
        put(DATA.windowed, Number(record.windowed), ins.length, outs.length, kernel, Number(record.raw));
        for (const [i, stretch] of [...ins, ...outs].entries()) put(DATA.ranges + 2 * i, places.base(stretch));
      }
    }
  }
}
