/**
 * Which of MPI and the exchange inside the host serves a collective, by measurement: before its first large call in a group,
 * both are timed in turn on memory of their own, for f32 (its sums are what MPI does fastest), round by round, each call behind a
 * barrier. What the slowest rank took counts, so all ranks come to one answer. Ten to a hundred milliseconds, once for a collective and group.
 */
import type { CollectiveName } from "../../../collectives/index.ts";
import type { ChoiceRow } from "../../executor/internal.ts";
import type { HostCall } from "./host-call.ts";
import type { ExchangedName, MeasuredName } from "./host-choices.ts";
import { barrierCall } from "./move-calls.ts";
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
  all_gather: 8 * 1024,
  reduce_scatter: 64 * 1024,
  all_to_all: 8 * 1024,
};
/** Whether what serves a call is measured, rather than known. */
export const isToMeasure = (collective: ExchangedName, sizeBytes: number): boolean =>
  sizeBytes >= LEAST_MEASURED_BYTES[collective];
/** The sizes at which a collective is measured. */
export const sizesOf = (collective: ExchangedName) => SIZES.filter((sizeBytes) => isToMeasure(collective, sizeBytes));
/** Sizes whose calls last microseconds, and what is timed in a round: so many calls. */
const SHORT_BYTES = 64 * 1024;
const SHORT_CALLS = 8;
const LONG_CALLS = 3;
/**
 * Rounds, and those of them in which the exchange must be faster where it is to serve: of two ways that are equally fast, one is
 * faster in seven of eight in one measurement of thirty, by chance.
 */
const ROUNDS = 8;
const LEAST_FASTER = 7;
/** How much faster the exchange must be in the middle of its rounds: less may be another's next minute. */
const LEAST_GAIN = 1.1;
/**
 * After so long the measurement ends, on all ranks: what it has not come to is MPI's. Where ranks wait for cores, which others keep
 * busy, it took more than a minute, and the call that it precedes met its deadline.
 */
const MOST_MS = 1000;
const MOST_NS = 2 ** 31 - 1;

/** The two ways to make a call. */
interface Ways {
  readonly mpi: (call: HostCall) => Activity;
  readonly exchange: (call: HostCall) => Activity;
}

/** What a round took on the slowest rank, ns. */
interface Round {
  readonly byMpi: number;
  readonly byExchange: number;
}

/** Measures a collective, for the steps of a call. @returns the rows of its table */
export function* measureCollective(
  collective: MeasuredName,
  { mpi, exchange }: Ways,
  steps: Steps,
  sizes: readonly number[],
): Generator<void, readonly ChoiceRow[]> {
  const { addresses } = steps.mpi;
  const most = Math.max(...sizes);
  // In turns of their own: the call's group may have been made in this one, and memory that is written first costs a fault for every page.
  yield;
  const [send, recv] = [addresses.fresh(most), addresses.fresh(most)];
  // Memory that was never written is one page of zeros, which no program sends.
  new Float32Array(send.bytes.buffer, send.bytes.byteOffset, most / 4).fill(1);
  yield;
  const began = performance.now();
  const rounds: Round[][] = sizes.map(() => []);
  for (const [i, sizeBytes] of sizes.entries()) {
    const numCalls = sizeBytes <= SHORT_BYTES ? SHORT_CALLS : LONG_CALLS;
    const call = callOf(collective, sizeBytes, steps, { send, recv });
    for (let round = 0; round <= ROUNDS; round++) {
      const taken = new Int32Array(3);
      // The first round compiles, and touches memory; then the two take turns at going first.
      for (const way of round % 2 === 0 ? [0, 1] : [1, 0]) {
        const make = way === 0 ? mpi : exchange;
        let tookUs = 0;
        for (let i = 0; i <= numCalls; i++) {
          // Ranks meet before every call that a program makes, too: a root that runs ahead would hide how long the others take.
          yield* timed(barrierCall(), steps);
          const callUs = yield* timed(make(call), steps);
          // What follows the other way finds its traces in the caches: the first call of a row is not counted.
          if (i > 0) tookUs += callUs;
        }
        taken[way] = Math.min(MOST_NS, (tookUs * 1000) / numCalls);
        yield;
      }
      taken[2] = performance.now() - began;
      const [byMpi = 0, byExchange = 0, lastedMs = 0] = yield* slowestOf(taken, steps);
      if (round > 0) rounds[i]?.push({ byMpi, byExchange });
      if (lastedMs > MOST_MS) return rowsOf(sizes, rounds);
    }
  }
  return rowsOf(sizes, rounds);
}

/** The largest of all ranks' numbers, one by one. */
function* slowestOf(own: Int32Array, steps: Steps): Generator<void, Int32Array> {
  const { addresses, library } = steps.mpi;
  const [all, slowest] = [addresses.span(own), addresses.fresh(own.byteLength)];
  const { dtypes, ops } = library.handles;
  steps.issue("MPI_Iallreduce", ({ comm }, request) =>
    library.api.MPI_Iallreduce(all.address, slowest.address, own.length, dtypes.i32, ops.max, comm, request),
  );
  yield;
  return new Int32Array(slowest.bytes.buffer, slowest.bytes.byteOffset, own.length);
}

/** @param rounds by size; fewer than all where there was no time for them: MPI serves then */
export function rowsOf(sizes: readonly number[], rounds: readonly (readonly Round[])[]): readonly ChoiceRow[] {
  const gains = sizes.map((_, i) => {
    const all = rounds[i] ?? [];
    const numFaster = all.filter(({ byMpi, byExchange }) => byExchange < byMpi).length;
    return numFaster >= LEAST_FASTER && medianOf(all.map(({ byMpi, byExchange }) => byMpi / byExchange)) >= LEAST_GAIN;
  });
  const rows: ChoiceRow[] = [{ fromBytes: 0, use: "mpi" }];
  for (const [i, fromBytes] of sizes.entries()) {
    // Sizes between two that were measured are the exchange's when both are.
    const isExchanged = gains[i] === true && gains[i + 1] !== false;
    const use = isExchanged ? "exchange" : "mpi";
    const taken = (rounds[i] ?? []).map(({ byMpi, byExchange }) => (isExchanged ? byExchange : byMpi));
    rows.push({ fromBytes, use, ...(taken.length > 0 && { timeUs: medianOf(taken) / 1000 }) });
  }
  return rows;
}

/** The lower of the two in the middle. */
function medianOf(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[(values.length - 1) >> 1] ?? 0;
}

/** Makes a call, which is looked at as often as any other of its group. @returns how long it took, us */
function* timed(activity: Activity, steps: Steps): Generator<void, number> {
  const start = performance.now();
  yield* steps.make(activity);
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
