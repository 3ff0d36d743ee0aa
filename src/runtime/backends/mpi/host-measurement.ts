/**
 * Which of MPI and the exchange inside the host serves a collective, by measurement: before its first large call in a group,
 * both are timed in turn on memory of their own, for f32 (its sums are what MPI does fastest). A rank counts what the slowest
 * rank took, so all of them come to one answer. Ten to a hundred milliseconds, once for a collective and group.
 */
import type { CollectiveName } from "../../../collectives/index.ts";
import type { ChoiceRow } from "../../executor/internal.ts";
import type { HostCall } from "./host-call.ts";
import type { Activity, Steps } from "./mpi-entry.ts";

/** Sizes that are measured, of the larger of a rank's two buffers. Smaller calls are the exchange's: it has one meeting of
 * the ranks, as every call has whose fingerprints are compared, and MPI has its own behind that. */
const SIZES = [64 * 1024, 256 * 1024, 2 ** 20, 4 * 2 ** 20] as const;
export const LEAST_MEASURED_BYTES = SIZES[0];
/** The middle of so many rounds counts. */
const ROUNDS = 5;
/** How much faster the exchange must be where it is to serve: less may be chance. */
const LEAST_GAIN = 1.1;
/** How long a look at a measured call may last, ms: the event loop goes on in between. */
const LOOK_MS = 5;
const MOST_US = 2 ** 30;

/** The two ways to make a call. */
export interface Ways {
  readonly mpi: (call: HostCall) => Activity;
  readonly exchange: (call: HostCall) => Activity;
}

/** Measures a collective, for the steps of a call. @returns the rows of its table */
export function* measureCollective(
  collective: CollectiveName,
  { mpi, exchange }: Ways,
  steps: Steps,
): Generator<void, readonly ChoiceRow[]> {
  const { addresses, library } = steps.mpi;
  const most = SIZES[SIZES.length - 1] as number;
  const [send, recv] = [addresses.fresh(most), addresses.fresh(most)];
  const taken = Int32Array.from({ length: 2 * SIZES.length }, () => 0);
  for (const [i, sizeBytes] of SIZES.entries()) {
    const call = callOf(collective, sizeBytes, steps, { send, recv });
    const times: [number[], number[]] = [[], []];
    for (let round = 0; round <= ROUNDS; round++) {
      for (const [way, make] of [mpi, exchange].entries()) {
        const tookUs = yield* timed(make(call), steps);
        // The first round compiles, and touches memory.
        if (round > 0) times[way]?.push(tookUs);
        yield;
      }
    }
    for (const [way, all] of times.entries()) {
      taken[2 * i + way] = Math.min(MOST_US, Math.ceil(all.sort((a, b) => a - b)[ROUNDS >> 1] ?? MOST_US));
    }
  }
  const all = addresses.span(taken);
  const slowest = addresses.fresh(taken.byteLength);
  const { dtypes, ops } = library.handles;
  steps.issue("MPI_Iallreduce", ({ comm }, request) =>
    library.api.MPI_Iallreduce(all.address, slowest.address, taken.length, dtypes.i32, ops.max, comm, request),
  );
  yield;
  return rowsOf(new Int32Array(slowest.bytes.buffer, slowest.bytes.byteOffset, taken.length));
}

/** @param takenUs by size: by MPI, by the exchange */
export function rowsOf(takenUs: ArrayLike<number>): readonly ChoiceRow[] {
  const gains = SIZES.map((_, i) => (takenUs[2 * i] ?? 0) >= LEAST_GAIN * (takenUs[2 * i + 1] ?? 0));
  const rows: ChoiceRow[] = [{ fromBytes: 0, use: "mpi" }];
  for (const [i, fromBytes] of SIZES.entries()) {
    // Sizes between two that were measured are the exchange's when both are.
    const isExchanged = gains[i] === true && gains[i + 1] !== false;
    const use = isExchanged ? "exchange" : "mpi";
    rows.push({ fromBytes, use, timeUs: takenUs[2 * i + (isExchanged ? 1 : 0)] ?? 0 });
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
  const isReduction = op === "all_reduce" || op === "reduce_scatter";
  const partBytes = op === "all_reduce" ? sizeBytes : Math.floor(sizeBytes / size / 4) * 4;
  const whole = partBytes * size;
  const [given, got] =
    op === "all_reduce"
      ? [partBytes, partBytes]
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
