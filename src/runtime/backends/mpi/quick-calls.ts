/**
 * The short way for what programs call in their inner loops: an all-reduce of tensors in host memory by a named operator, with
 * no options but the output, in a group that has nothing pending. It checks the same things with fewer objects, and keeps
 * what it made of the last call for the next one of the same tensors. What is not of that form, or wrong, goes the long way
 * (prepare-calls.ts), which gives it the same number and the same bytes.
 */
import { type DType, isLegal, REDUCE_OPS, type ReduceOp, Tensor } from "../../../core/index.ts";
import type { MpiDType } from "../../../foreign/mpi/index.ts";
import type { Data, OutputOptions } from "../../comm/index.ts";
import type { Arrival } from "../../progress/index.ts";
import { ExchangeCall } from "./host-exchange.ts";
import { HostGroup } from "./host-plans.ts";
import { isPlainCall, isUsable } from "./known-calls.ts";
import { PIECE_BYTES } from "./move-calls.ts";
import { type Activity, type EntryParts, RequestCall } from "./mpi-entry.ts";
import type { MpiProcess } from "./mpi-process.ts";
import { isOneRound, OneRoundReduction, shortWords } from "./one-round-reduction.ts";
import type { PrepareContext } from "./prepare-calls.ts";
import { isPlain, nativeOp } from "./reduce-calls.ts";

const NAMED_OPS: ReadonlySet<unknown> = new Set(REDUCE_OPS);

const NONE: readonly number[] = Object.freeze([]);
const NO_COUNTS = { root: 0, counts: undefined, sendCounts: NONE, recvCounts: NONE } as const;

/** MPI's own all-reduce, of addresses. */
class AddressedAllReduce extends RequestCall {
  readonly #send: number;
  readonly #recv: number;
  readonly #count: number;
  readonly #type: number;
  readonly #operator: number;

  constructor(send: number, recv: number, count: number, type: number, operator: number) {
    super("MPI_Iallreduce");
    this.#send = send;
    this.#recv = recv;
    this.#count = count;
    this.#type = type;
    this.#operator = operator;
  }

  protected issue(mpi: MpiProcess, comm: number, request: number): number {
    const { api } = mpi.library;
    return api.MPI_Iallreduce(this.#send, this.#recv, this.#count, this.#type, this.#operator, comm, request);
  }
}

/** A call that has ended, and what can serve the next of the same tensors. It holds them: 2 MiB each at most. */
interface LastCall {
  readonly input: Tensor;
  readonly output: Tensor;
  readonly redop: ReduceOp;
  readonly by: "mpi" | "exchange";
  readonly arrival: Arrival;
  readonly activities: readonly [Activity];
  readonly regions: NonNullable<EntryParts["regions"]>;
}

export class QuickCalls {
  readonly #context: PrepareContext;
  readonly #mpi: MpiProcess;
  /** Of the world. */
  readonly #generation: number;
  #last: LastCall | undefined;

  constructor(context: PrepareContext, mpi: MpiProcess, generation: number) {
    this.#context = context;
    this.#mpi = mpi;
    this.#generation = generation;
  }

  /** For a group that has nothing pending. @returns undefined where the long way has to look */
  allReduce(input: Data | undefined, options: OutputOptions & { readonly op?: ReduceOp }): EntryParts | undefined {
    const { output = input, op: redop = "sum" } = options;
    if (!isPlainCall(options)) return undefined;
    if (!(input instanceof Tensor) || !(output instanceof Tensor)) return undefined;
    if (!isUsable(input.storage, this.#generation) || !isUsable(output.storage, this.#generation)) return undefined;
    const { dtype, sizeBytes } = input;
    const { plans, sequence } = this.#context;
    const by = plans === undefined ? "mpi" : plans.serves("all_reduce", dtype, sizeBytes);
    let last = this.#last;
    let arrival: Arrival;
    if (last?.input === input && last.output === output && last.redop === redop && last.by === by) {
      arrival = sequence.again(last.arrival);
    } else {
      const activity = this.#activity(input, output, redop, by);
      if (activity === undefined || by === undefined) return undefined;
      arrival = sequence.plain("all_reduce", dtype, input.size, redop, 0);
      const regions = output === input ? [regionOf(input)] : [regionOf(input), regionOf(output)];
      last = { input, output, redop, by, arrival, activities: [activity], regions };
      this.#last = activity instanceof ExchangeCall ? undefined : last;
    }
    plans?.count("all_reduce", dtype, sizeBytes);
    const { activities, regions } = last;
    const [activity] = activities;
    const comparesLater = activity.bring !== undefined;
    activity.bring?.(arrival, this.#mpi);
    return { op: "all_reduce", arrivals: [arrival], activities, regions, result: output, sizeBytes, comparesLater };
  }

  /** Makes what moves the data. */
  #activity(input: Tensor, output: Tensor, redop: ReduceOp, by: "mpi" | "exchange" | undefined): Activity | undefined {
    const { addresses, plans, rank, size } = this.#context;
    const { dtype, sizeBytes, storage } = input;
    if (typeof redop !== "string" || !NAMED_OPS.has(redop)) return undefined;
    if (output.dtype !== dtype || output.size !== input.size || sizeBytes === 0 || sizeBytes > PIECE_BYTES)
      return undefined;
    if (!isLegal(redop, dtype)) return undefined;
    const isInPlace = input.byteOffset === output.byteOffset;
    if (storage.buffer === output.storage.buffer && !isInPlace) return undefined;
    const addressOf = (one: Tensor) => addresses.at(one.storage.buffer as ArrayBufferLike, one.byteOffset);
    if (by === "exchange" && plans instanceof HostGroup) {
      if (isOneRound(sizeBytes, size)) {
        const [send, recv] = [addressOf(input), addressOf(output)];
        const [from, to] = [input, output].map((one) =>
          shortWords(one.storage.buffer as ArrayBufferLike, one.byteOffset, sizeBytes),
        );
        const words = from && to && { send: from, recv: to };
        return new OneRoundReduction(plans, { dtype, redop, send, recv, sizeBytes, words });
      }
      const [send, recv] = [addresses.span(input.data), addresses.span(output.data)];
      const count = input.size;
      return new ExchangeCall(plans, { op: "all_reduce", dtype, count, redop, rank, size, send, recv, ...NO_COUNTS });
    }
    const native = by === "mpi" && isPlain(redop) ? nativeOp(dtype as DType, redop) : undefined;
    if (native === undefined || (isInPlace && storage.buffer === output.storage.buffer)) return undefined;
    const { dtypes, ops } = this.#mpi.library.handles;
    const [send, recv] = [addressOf(input), addressOf(output)];
    return new AddressedAllReduce(send, recv, input.size, dtypes[dtype as MpiDType], ops[native]);
  }
}

const regionOf = ({ storage, byteOffset, sizeBytes }: Tensor) => ({
  storage: storage.buffer ?? storage,
  byteOffset,
  sizeBytes,
});
