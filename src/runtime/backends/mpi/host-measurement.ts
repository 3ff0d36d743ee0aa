/**
 * Which of MPI and the exchange inside the host serves a collective, by measurement: before its first large call in a group,
 * both are timed in turn on memory of their own, for f32 (its sums are what MPI does fastest). A rank counts what the slowest
 * rank took, so all of them come to one answer. Ten to a hundred milliseconds, once for a collective and group.
 */
import type { CollectiveName } from "../../../collectives/index.ts";
import type { ChoiceRow } from "../../executor/internal.ts";
import type { HostCall } from "./host-call.ts";
import type { ExchangedName, MeasuredName } from "./host-choices.ts";
import type { Activity, Steps } from "./mpi-entry.ts";

/** Sizes that may be measured, of the larger of a rank's two buffers. */
const SIZES = [8 * 1024, 16 * 1024, 64 * 1024, 256 * 1024, 2 ** 20, 4 * 2 ** 20] as const;
/**
 * From where on a collective is measured. Smaller calls are the exchange's, which was as fast or faster there on every machine that was
 * measured: it meets once, as every call does whose fingerprints are compared, and MPI has its own meeting behind that. Of all-to-alls MPI copies parts
 * straight from one process to another where the kernel lets it, which is faster from some kilobytes on.
 */
const LEAST_MEASURED_BYTES: Readonly<Record<ExchangedName, number>> = {
  all_reduce: 256 * 1024,
  all_gather: 64 * 1024,
  reduce_scatter: 64 * 1024,
  all_to_all: 8 * 1024,
};
/** Whether what serves a call is measured, rather than known. */
export const isToMeasure = (collective: ExchangedName, sizeBytes: number): boolean =>
  sizeBytes >= LEAST_MEASURED_BYTES[collective];
/** The sizes at which a collective is measured. */
export const sizesOf = (collective: ExchangedName) => SIZES.filter((sizeBytes) => isToMeasure(collective, sizeBytes));
/** Sizes whose calls last microseconds, and what is timed of them: so many calls one after another. */
const SHORT_BYTES = 64 * 1024;
const SHORT_CALLS = 8;
/** The shortest of so many rounds counts: the others waited for something else that ran. */
const ROUNDS = 4;
/** How much faster the exchange must be where it is to serve: less may be chance. */
const LEAST_GAIN = 1.1;
/** How long a look at a measured call may last, ms: the event loop goes on in between. */
const LOOK_MS = 5;
const MOST_NS = 2 ** 31 - 1;

/** The two ways to make a call. */
export interface Ways {
  readonly mpi: (call: HostCall) => Activity;
  readonly exchange: (call: HostCall) => Activity;
}

/** Measures a collective, for the steps of a call. @returns the rows of its table */
export function* measureCollective(
  collective: MeasuredName,
  { mpi, exchange }: Ways,
  steps: Steps,
  sizes: readonly number[],
): Generator<void, readonly ChoiceRow[]> {
  const { addresses, library } = steps.mpi;
  const most = Math.max(...sizes);
  const [send, recv] = [addresses.fresh(most), addresses.fresh(most)];
  const taken = new Int32Array(2 * sizes.length).fill(MOST_NS);
  for (const [i, sizeBytes] of sizes.entries()) {
    const numCalls = sizeBytes <= SHORT_BYTES ? SHORT_CALLS : 1;
    const call = callOf(collective, sizeBytes, steps, { send, recv });
    for (let round = 0; round <= ROUNDS; round++) {
      for (const [way, make] of [mpi, exchange].entries()) {
        let tookUs = 0;
        for (let i = 0; i < numCalls; i++) tookUs += yield* timed(make(call), steps);
        const at = 2 * i + way;
        // The first round compiles, and touches memory.
        if (round > 0) taken[at] = Math.min(taken[at] ?? MOST_NS, (tookUs * 1000) / numCalls);
        yield;
      }
    }
  }
  const all = addresses.span(taken);
  const slowest = addresses.fresh(taken.byteLength);
  const { dtypes, ops } = library.handles;
  steps.issue("MPI_Iallreduce", ({ comm }, request) =>
    library.api.MPI_Iallreduce(all.address, slowest.address, taken.length, dtypes.i32, ops.max, comm, request),
  );
  yield;
  return rowsOf(sizes, new Int32Array(slowest.bytes.buffer, slowest.bytes.byteOffset, taken.length));
}

/** @param takenNs by size: by MPI, by the exchange */
export function rowsOf(sizes: readonly number[], takenNs: ArrayLike<number>): readonly ChoiceRow[] {
  const gains = sizes.map((_, i) => (takenNs[2 * i] ?? 0) >= LEAST_GAIN * (takenNs[2 * i + 1] ?? 0));
  const rows: ChoiceRow[] = [{ fromBytes: 0, use: "mpi" }];
  for (const [i, fromBytes] of sizes.entries()) {
    // Sizes between two that were measured are the exchange's when both are.
    const isExchanged = gains[i] === true && gains[i + 1] !== false;
    const use = isExchanged ? "exchange" : "mpi";
    rows.push({ fromBytes, use, timeUs: (takenNs[2 * i + (isExchanged ? 1 : 0)] ?? 0) / 1000 });
  }
  return rows;
}

/** Makes a call. @returns how long it took, us */
function* timed(activity: Activity, steps: Steps): Generator<void, number> {
  const start = performance.now();
  activity.begin(steps);
  let looked = start;
  while (!activity.advance()) {
    const now = performance.now();
    if (now - looked < LOOK_MS) continue;
    yield;
    looked = performance.now();
  }
  return (performance.now() - start) * 1000;
}

function callOf(
  op: CollectiveName,
  sizeBytes: number,
  { rank, size }: Steps,
  { send, recv }: Pick<HostCall, "send" | "recv">,
): HostCall {
  const isReduction = op === "all_reduce" || op === "reduce_scatter" || op === "reduce";
  const isWhole = op === "all_reduce" || op === "broadcast" || op === "reduce";
  const partBytes = isWhole ? sizeBytes : Math.floor(sizeBytes / size / 4) * 4;
  const whole = partBytes * size;
  const [given, got] = isWhole
    ? [op === "broadcast" && rank !== 0 ? 0 : partBytes, op === "reduce" && rank !== 0 ? 0 : partBytes]
    : [op === "all_gather" ? partBytes : whole, op === "reduce_scatter" ? partBytes : whole];
  const none = { root: 0, counts: undefined, sendCounts: [], recvCounts: [] };
  const first = (span: HostCall["send"], bytes: number) => ({
    bytes: span.bytes.subarray(0, bytes),
    address: span.address,
  });
  return {
    ...{ op, rank, size, dtype: "f32", count: partBytes / 4, ...none },
    send: first(send, given),
    recv: first(recv, got),
    ...(isReduction && { redop: "sum" as const }),
  };
}
