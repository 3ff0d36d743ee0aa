/**
 * Collectives of a group that spans hosts, host by host: inside a host over memory that its members map, between hosts by
 * messages of MPI, every column of ranks at once (runtime/hosts). Which calls are made so, and which by MPI alone, is a table's,
 * or is measured in the group. The memory comes with the first call that may use it.
 */
import { type CollectiveName, reportedCount } from "../../../collectives/index.ts";
import { type DType, isSmallFloat, type ReduceOp, sizeOf } from "../../../core/index.ts";
import type { KernelNames } from "../../executor/internal.ts";
import {
  allGatherPieces,
  allReducePieces,
  broadcastPieces,
  ColumnMessages,
  createHostMemory,
  type HostLayout,
  HostMemory,
  HostPlace,
  hostMemoryAt,
  layoutText,
  MAX_PIECES,
  ownRow,
  PIECE_BYTES,
  type PieceCallParts,
  type PieceWork,
  reducePieces,
  reduceScatterPieces,
} from "../../hosts/index.ts";
import { removeSharedArena, type SharedArena } from "../../memory/index.ts";
import { ChosenCall } from "./chosen-call.ts";
import { apartFromResult, type CallServing, type HostCall } from "./host-call.ts";
import { HostCarrier } from "./host-carrier.ts";
import { type MeasuredName, MPI_KERNELS } from "./host-choices.ts";
import { measureCollective } from "./host-measurement.ts";
import type { WorldPlans } from "./host-plans.ts";
import { HostsCall } from "./hosts-call.ts";
import { MeasuredChoices } from "./measured-choices.ts";
import type { Activity, CallTarget, Steps } from "./mpi-entry.ts";
import type { MpiProcess } from "./mpi-process.ts";

const WORKS = {
  all_reduce: allReducePieces,
  all_gather: allGatherPieces,
  broadcast: broadcastPieces,
  reduce: reducePieces,
  reduce_scatter: reduceScatterPieces,
} as const satisfies { readonly [C in MeasuredName]?: (parts: PieceCallParts) => PieceWork };
type HostedName = keyof typeof WORKS;
const isHosted = (op: string): op is HostedName => Object.hasOwn(WORKS, op);
const KERNELS = {
  ...MPI_KERNELS,
  ...Object.fromEntries(Object.keys(WORKS).map((op) => [op, ["mpi", "exchange"]])),
  all_to_all: ["mpi"],
} as KernelNames;

/** From where on calls are measured, where that decides: smaller ones are MPI's, whose messages go at once. */
const LEAST_MEASURED_BYTES = 64 * 1024;
const SIZES = [LEAST_MEASURED_BYTES, 256 * 1024, 2 ** 20, 4 * 2 ** 20] as const;
const PATH_BYTES = 256;

/** Operators whose result depends on when it is rounded: 16- and 8-bit floats are rounded once, which two steps would do twice. */
const rounds = (dtype: DType, redop: ReduceOp | undefined) =>
  isSmallFloat(dtype) && (typeof redop === "object" || redop === "sum" || redop === "prod" || redop === "avg");

interface HostsGroupPlace {
  readonly group: string;
  readonly layout: HostLayout;
  /** This rank's number in the group. */
  readonly rank: number;
  readonly size: number;
  readonly choices: WorldPlans;
}

export class HostsGroup implements CallServing {
  readonly #mpi: MpiProcess;
  readonly #at: HostsGroupPlace;
  readonly #choices: MeasuredChoices;
  /** Below so many bytes of a collective, what was measured has MPI serve it: many calls are to learn no more than that. */
  readonly #byMpiBelow = new Map<string, number>();
  #place: HostPlace | "none" | undefined;
  #carrier: HostCarrier | undefined;
  #arena: SharedArena | undefined;

  constructor(mpi: MpiProcess, at: HostsGroupPlace) {
    this.#mpi = mpi;
    this.#at = at;
    const { documents, measures } = at.choices;
    const { group, rank: me, size: numRanks, layout } = at;
    const topology = layoutText(layout);
    this.#choices = new MeasuredChoices(measures, documents, { group, numRanks, me, topology, kernels: KERNELS });
  }

  activity(call: HostCall, mpi: (call: HostCall) => Activity): Activity {
    const { op, dtype, count, size, redop } = call;
    if (!isHosted(op) || count === 0 || this.#place === "none" || rounds(dtype, redop)) return mpi(call);
    const sizeBytes = reportedCount(op, size, count) * sizeOf(dtype);
    if (!this.#mayServe(op, dtype, sizeBytes)) return mpi(call);
    return new ChosenCall({
      choose: () => {
        if (this.#place === undefined || (this.#place !== "none" && this.#isToMeasure(op))) return undefined;
        const place = this.#place;
        if (place === "none" || !this.#isExchanged(op, dtype, sizeBytes)) return mpi(call);
        const choice = this.#choices.choose(op, dtype, sizeBytes);
        const made = this.#hosted(place, op, call);
        if (made === undefined) return mpi(call);
        choice.calls++;
        return made;
      },
      measure: (steps) => this.#prepare(op, mpi, steps),
    });
  }

  serves(collective: HostedName, dtype: DType, sizeBytes: number): "mpi" | undefined {
    return this.#place !== "none" && this.#mayServe(collective, dtype, sizeBytes) ? undefined : "mpi";
  }

  /** What MPI serves alone is not counted. */
  count(): void {}

  counts(): Record<string, number> {
    return this.#choices.counts();
  }

  close(): void {
    const place = this.#place;
    this.#place = "none";
    if (typeof place === "object") place.memory.close();
    else if (this.#arena !== undefined) removeSharedArena(this.#arena);
  }

  /** Whether a call may be made host by host, before anything is done for that. */
  #mayServe(op: HostedName, dtype: DType, sizeBytes: number): boolean {
    if (sizeBytes < (this.#byMpiBelow.get(op) ?? 0)) return false;
    if (!this.#choices.measures) return this.#isExchanged(op, dtype, sizeBytes);
    if (sizeBytes < LEAST_MEASURED_BYTES) return false;
    return this.#isToMeasure(op) || this.#isExchanged(op, dtype, sizeBytes);
  }

  #isToMeasure(op: CollectiveName): boolean {
    return this.#choices.measures && !this.#choices.isMeasured(op);
  }

  #isExchanged(op: CollectiveName, dtype: DType, sizeBytes: number): boolean {
    return this.#choices.choose(op, dtype, sizeBytes).served.name === "exchange";
  }

  #hosted(place: HostPlace, op: HostedName, call: HostCall): Activity | undefined {
    const carrier = this.#carrier;
    const { dtype, redop, root, size, rank, count, recv } = call;
    if (carrier === undefined) return undefined;
    const messages = new ColumnMessages(carrier, place.layout);
    const work = WORKS[op]({
      ...{ op, dtype, redop, root, size, rank, messages, layout: place.layout, memory: place.memory },
      partBytes: count * sizeOf(dtype),
      input: apartFromResult(call, this.#mpi.addresses),
      output: recv,
    });
    return work.numPieces > MAX_PIECES ? undefined : new HostsCall(place, carrier, work);
  }

  /** Has the members of each host share memory, and measures, as far as either is to be done: part of a call that all make. */
  *#prepare(op: HostedName, mpi: (call: HostCall) => Activity, steps: Steps): Generator<void> {
    if (this.#place === undefined) yield* this.#share(steps);
    const place = this.#place as HostPlace | "none" | undefined;
    if (place === undefined || place === "none" || !this.#isToMeasure(op)) return;
    const exchange = (call: HostCall) => this.#hosted(place, op, call) ?? mpi(call);
    const rows = yield* measureCollective(op, { mpi, exchange }, steps, SIZES);
    this.#choices.add(op, rows);
    this.#byMpiBelow.set(op, rows.find(({ use }) => use === "exchange")?.fromBytes ?? Number.POSITIVE_INFINITY);
  }

  /** The first of each host makes a file, and the others map it: all members do, or none. */
  *#share(steps: Steps): Generator<void> {
    const { layout, rank, size } = this.#at;
    const row = ownRow(layout);
    const pieceBytes = PIECE_BYTES.plain;
    const { addresses, library } = this.#mpi;
    const { api, abi, handles } = library;
    const paths = addresses.fresh(PATH_BYTES * size);
    try {
      if (layout.column === 0) {
        this.#arena = createHostMemory(row.length, pieceBytes, undefined);
        const path = Buffer.from(this.#arena.path);
        if (path.length < PATH_BYTES) paths.bytes.set(path, PATH_BYTES * rank);
      }
    } catch {
      // No room for it: the others see that there is no path.
    }
    const { byte } = handles;
    const place = [abi.inPlace, 0, byte, paths.address, PATH_BYTES, byte] as const;
    steps.issue("MPI_Iallgather", ({ comm }, request) => api.MPI_Iallgather(...place, comm, request));
    yield;
    const at = PATH_BYTES * (row[0] ?? 0);
    const name = Buffer.from(paths.bytes.subarray(at, at + PATH_BYTES)).toString();
    const path = name.slice(0, Math.max(0, name.indexOf("\0")));
    let memory: HostMemory | undefined;
    try {
      const mostInputs = Math.max(row.length, layout.hosts.length);
      if (path !== "") {
        const arena = hostMemoryAt(path, row.length, pieceBytes);
        memory = new HostMemory({
          arena,
          members: row.length,
          me: layout.column,
          maxInputs: mostInputs,
          pieceBytes,
        });
      }
    } catch {
      // As before.
    }
    const [has, all] = [Int32Array.of(memory === undefined ? 0 : 1), addresses.fresh(4)];
    const from = addresses.of(has);
    steps.issue("MPI_Iallreduce", ({ comm }, request) =>
      api.MPI_Iallreduce(from, all.address, 1, handles.dtypes.i32, handles.ops.min, comm, request),
    );
    yield;
    if (this.#place === "none") {
      memory?.close();
      return;
    }
    if (memory === undefined || new Int32Array(all.bytes.buffer, all.bytes.byteOffset, 1)[0] === 0) {
      memory?.close();
      if (this.#arena !== undefined) removeSharedArena(this.#arena);
      this.#place = "none";
      return;
    }
    this.#carrier = new HostCarrier(this.#mpi, (steps satisfies CallTarget).comm);
    this.#place = new HostPlace({ layout, memory, activities: this.#mpi.hostActivities });
  }
}
