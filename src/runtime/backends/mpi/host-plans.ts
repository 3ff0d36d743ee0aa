/**
 * Collectives of a group whose ranks are on one host, by our plans over shared memory in place of MPI: which call is served
 * by which plan is a table's (executor/choices.ts), where `mpi` is the kernel that serves all others. Large calls go through
 * in pieces, which each rank copies into the arena and, when the plan has run, out of it.
 */
import { type CollectiveName, reportedCount } from "../../../collectives/index.ts";
import { type DType, isSmallFloat, sizeOf } from "../../../core/index.ts";
import {
  type Choice,
  type ChoiceDocument,
  COUNTER_BYTES,
  type KernelOp,
  kernelOp,
  libraryPlans,
  loadEarly,
  PreparedPlan,
  type Reach,
  reductionDepth,
  registeredAlgorithm,
  type ServingPlan,
} from "../../executor/internal.ts";
import { ChosenCall } from "./chosen-call.ts";
import { DirectCall, isLargeEnough } from "./direct-call.ts";
import { fitsSlot, type HostArena, NUM_PLACES, NUM_SLOTS } from "./host-arena.ts";
import type { CallServing, HostCall } from "./host-call.ts";
import { type ExchangedName, isExchanged, MPI_KERNELS } from "./host-choices.ts";
import { ExchangeCall } from "./host-exchange.ts";
import { isToMeasure, measureCollective, sizesOf } from "./host-measurement.ts";
import { MeasuredChoices } from "./measured-choices.ts";
import type { Activity, Steps } from "./mpi-entry.ts";
import { OneRoundPlaces } from "./one-round-places.ts";
import { isOneRound, OneRoundReduction } from "./one-round-reduction.ts";
import { PlanCall, type PlanPlace } from "./plan-call.ts";

/** Operators whose result depends on when it is rounded. */
const ROUNDING = new Set<KernelOp>(["sum", "prod", "avg", "preMulSum"]);
/** Prepared plans that a group keeps; when there are more, it starts anew. */
const MAX_PREPARED = 32;

/** What a world says of what serves its calls. */
export interface WorldPlans {
  /** Where this host's ranks run plans, if they do. */
  readonly arena: HostArena | undefined;
  readonly documents: readonly ChoiceDocument[];
  readonly topology: string;
  /** Measurements in the group decide, before all documents. */
  readonly measures: boolean;
}

/** The same of a host that has memory for plans. */
interface HostPlans extends WorldPlans {
  readonly arena: HostArena;
}

type MakeByMpi = (call: HostCall) => Activity;

export class HostGroup implements PlanPlace, CallServing {
  readonly arena: HostArena;
  readonly place: number;
  /** Of the world. */
  readonly ranks: readonly number[];
  readonly me: number;
  /** Pieces that this rank has put into the arena for this group. */
  numPieces = 0;
  /** Steps that it has told the others of. */
  numTold = 0;
  /** This rank's own words for the addresses of all ranks' inputs and outputs: another may be a piece ahead, or behind. */
  readonly buffers: number;
  readonly rounds: OneRoundPlaces;
  readonly #choices: MeasuredChoices;
  /** Calls that the exchange served without a measurement, by collective. */
  readonly #exchanged = new Map<CollectiveName, number>();
  #isClosed = false;
  readonly #serving = new Map<string, ServingPlan | undefined>();
  /** By plan: all ranks begin the same calls in the same order, so all number them alike. */
  readonly #slots = new Map<string, number>();
  readonly #prepared = new Map<string, PreparedPlan>();

  /** @param place the group's number in the control segment */
  constructor(host: HostPlans, name: string, ranks: readonly number[], me: number, place: number) {
    this.arena = host.arena;
    this.place = place;
    this.ranks = ranks;
    this.me = me;
    const { topology, documents, measures } = host;
    const group = { group: name, numRanks: ranks.length, me, topology, kernels: MPI_KERNELS };
    this.#choices = new MeasuredChoices(measures, documents, group);
    loadEarly(this.#choices, () => !this.#isClosed);
    this.buffers = host.arena.allocate(8 * ranks.length);
    this.rounds = new OneRoundPlaces(host.arena, place, ranks, me);
    host.arena.clear(place, ranks[me] ?? 0);
  }

  /** Whether a group can have a place. */
  static fits(size: number, place: number): boolean {
    return size > 1 && place < NUM_PLACES;
  }

  /** What makes a call: what the tables choose, or a measurement. All members come to the same answer. */
  activity(call: HostCall, mpi: MakeByMpi): Activity {
    const { op, size, count, dtype } = call;
    if (!isExchanged(op) || count === 0) return mpi(call);
    const collective: ExchangedName = op;
    const sizeBytes = reportedCount(op, size, count) * sizeOf(dtype);
    const choices = this.#choices;
    if (!choices.measures) return this.#chosen(call, collective, sizeBytes, mpi);
    if (!isToMeasure(collective, sizeBytes)) {
      this.#countExchanged(collective);
      return this.#exchange(call, sizeBytes);
    }
    if (!isLargeEnough(sizeBytes)) return this.#measured(call, collective, sizeBytes, mpi);
    return new DirectCall(this, call, {
      directly: () => this.#countExchanged(collective),
      otherwise: () => this.#measured(call, collective, sizeBytes, mpi),
    });
  }

  /** What measurements in the group say of a call. */
  #measured(call: HostCall, collective: ExchangedName, sizeBytes: number, mpi: MakeByMpi): Activity {
    const choices = this.#choices;
    const exchange = (one: HostCall) => this.#apart(one);
    const measure = function* (steps: Steps): Generator<void> {
      choices.add(collective, yield* measureCollective(collective, { mpi, exchange }, steps, sizesOf(collective)));
    };
    return new ChosenCall({
      choose: () => (choices.isMeasured(collective) ? this.#chosen(call, collective, sizeBytes, mpi) : undefined),
      measure,
    });
  }

  /** Which of MPI and the exchange serves a call, where that is known; `undefined` where a plan does, or the ranks or a measurement have to say. */
  serves(collective: ExchangedName, dtype: DType, sizeBytes: number): "mpi" | "exchange" | undefined {
    if (isLargeEnough(sizeBytes)) return undefined;
    if (this.#choices.measures) {
      if (!isToMeasure(collective, sizeBytes)) return "exchange";
      if (!this.#choices.isMeasured(collective)) return undefined;
    }
    const { served } = this.#choices.choose(collective, dtype, sizeBytes);
    return served.kind === "kernel" && (served.name === "mpi" || served.name === "exchange") ? served.name : undefined;
  }

  /** Counts a call that was served as the tables say. */
  count(collective: ExchangedName, dtype: DType, sizeBytes: number): void {
    if (this.#choices.measures && !isToMeasure(collective, sizeBytes)) this.#countExchanged(collective);
    else this.#choices.choose(collective, dtype, sizeBytes).calls++;
  }

  #countExchanged(collective: CollectiveName): void {
    this.#exchanged.set(collective, (this.#exchanged.get(collective) ?? 0) + 1);
  }

  /** The exchange, without copies where all ranks' tensors are where the others can read them. */
  #exchange(call: HostCall, sizeBytes: number): Activity {
    if (!isLargeEnough(sizeBytes)) return this.#apart(call);
    return new DirectCall(this, call, { otherwise: () => this.#apart(call) });
  }

  /** The exchange of tensors in memory of the ranks' own. */
  #apart(call: HostCall): Activity {
    const { op, size, count, dtype, redop, send, recv } = call;
    const sizeBytes = count * sizeOf(dtype);
    if (op !== "all_reduce" || redop === undefined || !isOneRound(sizeBytes, size)) return new ExchangeCall(this, call);
    return new OneRoundReduction(this, { dtype, redop, send: send.address, recv: recv.address, sizeBytes });
  }

  #chosen(call: HostCall, collective: CollectiveName, sizeBytes: number, mpi: MakeByMpi): Activity {
    const { dtype } = call;
    const choice = this.#choices.choose(collective, dtype, sizeBytes);
    choice.calls++;
    if (choice.served.kind === "kernel") {
      if (choice.served.name !== "exchange") return mpi(call);
      return this.#choices.measures ? this.#apart(call) : this.#exchange(call, sizeBytes);
    }
    const serving = this.#servingOf(choice, collective);
    if (serving === undefined || !isRoundedOnce(serving, dtype, kernelOp(call.redop))) return mpi(call);
    return new PlanCall(this, call, serving, () => mpi(call));
  }

  /** Calls that each choice served. */
  counts(): Record<string, number> {
    const counts = this.#choices.counts();
    for (const [collective, calls] of this.#exchanged) {
      const key = `${collective} exchange`;
      counts[key] = (counts[key] ?? 0) + calls;
    }
    return counts;
  }

  /** The plan of a choice; `undefined` where it does not fit the arena. */
  #servingOf(choice: Choice, collective: CollectiveName): ServingPlan | undefined {
    const key = `${collective} ${choice.served.label}`;
    if (this.#serving.has(key)) return this.#serving.get(key);
    const { served } = choice;
    const request = { served, collective, numRanks: this.ranks.length, root: 0 };
    const made = libraryPlans().servingPlan(request, registeredAlgorithm(served.name));
    const { plan } = made;
    // Scratch would have to be where the other ranks can reach it.
    const fits =
      plan.ranks.every(({ scratch }) => scratch.chunks === 0) &&
      fitsSlot(PreparedPlan.stateBytes(plan), PreparedPlan.counterBytes(plan));
    this.#serving.set(key, fits ? made : undefined);
    return fits ? made : undefined;
  }

  /** The plan, prepared for a call that begins now; `undefined` when there is no room for another plan. */
  ready({ plan, hash }: ServingPlan, dtype: DType, op: KernelOp): PreparedPlan | undefined {
    const slot = this.#slots.get(hash) ?? this.#slots.size;
    if (slot >= NUM_SLOTS) return undefined;
    this.#slots.set(hash, slot);
    const key = `${hash} ${dtype} ${op}`;
    const known = this.#prepared.get(key);
    if (known !== undefined) return known;
    if (this.#prepared.size >= MAX_PREPARED) this.#forget();
    const { arena, place, ranks, me } = this;
    const world = (rank: number) => ranks[rank] ?? 0;
    const prepared = new PreparedPlan({
      plan,
      rank: me,
      dtype,
      op,
      memory: arena,
      machine: arena.machine,
      transport: {
        map: (rank: number, buffer: Reach) => this.buffers + 8 * rank + (buffer === "input" ? 0 : 4),
        signal: (rank, counter) => arena.counters(place, world(rank), slot) + COUNTER_BYTES * counter,
        wait: (counter) => arena.counters(place, world(me), slot) + COUNTER_BYTES * counter,
        state: arena.state(place, world(me), slot),
      },
    });
    this.#prepared.set(key, prepared);
    return prepared;
  }

  close(): void {
    this.#isClosed = true;
    this.#forget();
    this.arena.free(this.buffers);
    this.rounds.close();
  }

  #forget(): void {
    for (const prepared of this.#prepared.values()) prepared.leave();
    this.#prepared.clear();
  }
}

/** Whether values go through a plan with one rounding at most, as MPI's and our kernels' results have. */
function isRoundedOnce({ plan }: ServingPlan, dtype: DType, op: KernelOp): boolean {
  const rounds = ROUNDING.has(op) && (isSmallFloat(dtype) || op === "avg" || op === "preMulSum");
  return !rounds || reductionDepth(plan) < 2;
}
