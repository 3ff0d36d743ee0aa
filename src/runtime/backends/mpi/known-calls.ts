/**
 * What a group keeps of the calls that it has made: the next one of the same tensors needs no more than comparisons, where checking
 * and preparing it anew takes as long as a small call lasts. One for each operation, the last. What is not the same, or cannot be used
 * any more, goes the long way (prepare-calls.ts), which says what is wrong with it.
 */
import type { OperationName } from "../../../collectives/index.ts";
import type { ReduceOp, Storage, Tensor } from "../../../core/index.ts";
import type { Data, OutputOptions, ReduceOptions, RootOptions, TensorCall } from "../../comm/index.ts";
import type { Arrival, CallSequence } from "../../progress/index.ts";
import { PIECE_BYTES } from "./move-calls.ts";
import type { Prepared } from "./prepare-calls.ts";

/** Whether a call may use this memory as it is: host memory of this generation that is not freed, detached or made smaller. */
export function isUsable({ closed, generation, buffer, kind, sizeBytes }: Storage, own: number): boolean {
  return (
    closed === undefined &&
    buffer !== undefined &&
    kind !== "device" &&
    buffer.byteLength >= sizeBytes &&
    (generation === 0 || generation === own)
  );
}

/** Whether a call has no options but those that say where its result goes and how it is reduced. */
export const isPlainCall = ({ algorithm, dtype, signal, timeoutMs }: OutputOptions): boolean =>
  algorithm === undefined && dtype === undefined && signal === undefined && timeoutMs === undefined;

/** The options of calls that are kept. */
export type KnownOptions = ReduceOptions & RootOptions;

/** It holds the tensors. */
interface KnownCall extends Pick<Prepared, "regions" | "result" | "sizeBytes" | "finish"> {
  readonly input: Tensor;
  readonly output: Tensor | undefined;
  readonly redop: ReduceOp | undefined;
  readonly root: number;
  readonly arrival: Arrival;
  readonly make: NonNullable<Prepared["make"]>;
}

export class KnownCalls {
  readonly #sequence: CallSequence;
  /** Of the world. */
  readonly #generation: number;
  readonly #calls = new Map<OperationName, KnownCall>();
  /**
   * Of large tensors, by input and then output: it goes with either, as none is held for a call that may never come. No WeakRef has
   * it: what one is made of stays until the program lets the event loop run.
   */
  readonly #ofLarge = new Map<OperationName, WeakMap<Tensor, WeakMap<Tensor, KnownCall>>>();

  constructor(sequence: CallSequence, generation: number) {
    this.#sequence = sequence;
    this.#generation = generation;
  }

  /** Keeps what a call was found to be, where another may be the same. */
  keep({ call, input, output, timeoutMs, algorithm }: TensorCall, prepared: Prepared): void {
    const { op, redop, root = 0 } = call;
    const { make, result, regions, sizeBytes, finish } = prepared;
    const [arrival, ...others] = prepared.arrivals;
    const isPlain = timeoutMs === undefined && algorithm === undefined && typeof redop !== "object";
    const varies = call.counts !== undefined || call.sendCounts !== undefined;
    if (make === undefined || !isPlain || varies || arrival === undefined || others.length > 0) return;
    // Fresh memory is another's each time.
    if (result !== undefined && result !== (output ?? input).tensor) return;
    if (input.tensor === undefined || (output !== undefined && output.tensor === undefined)) return;
    const sizes = [input, output ?? input].map(({ region }) => region.sizeBytes);
    if (Math.min(...sizes) === 0) return;
    const tensors = { input: input.tensor, output: output?.tensor };
    const known = { ...tensors, redop, root, arrival, make, regions, result, sizeBytes, finish };
    if (Math.max(...sizes) > PIECE_BYTES) {
      this.#calls.delete(op);
      this.#ofLarge.set(op, new WeakMap([[known.input, new WeakMap([[known.output ?? known.input, known]])]]));
    } else {
      this.#calls.set(op, known);
      this.#ofLarge.delete(op);
    }
  }

  /** The same call once more; `undefined` where it is another, or has to be checked anew. */
  again(op: OperationName, input: Data | undefined, options: KnownOptions): Prepared | undefined {
    const place = (options.output ?? input) as Tensor;
    const known =
      this.#calls.get(op) ??
      this.#ofLarge
        .get(op)
        ?.get(input as Tensor)
        ?.get(place);
    if (known === undefined || known.input !== input || known.output !== options.output) return undefined;
    const { redop, root, make, output } = known;
    if (redop !== undefined && redop !== (options.op ?? "sum")) return undefined;
    if (root !== (options.root ?? 0) || !isPlainCall(options)) return undefined;
    if (!isUsable(known.input.storage, this.#generation)) return undefined;
    if (output !== undefined && !isUsable(output.storage, this.#generation)) return undefined;
    // Field by field: an engine that meets objects of many forms reads them slowly.
    const { arrival, regions, result, sizeBytes, finish } = known;
    const activity = make();
    return { op, arrivals: [this.#sequence.again(arrival)], activity, make, regions, result, sizeBytes, finish };
  }
}
