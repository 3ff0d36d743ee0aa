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
  Choices,
  COUNTER_BYTES,
  type KernelOp,
  libraryPlans,
  loadEarly,
  logsSelection,
  PreparedPlan,
  type Reach,
  reductionDepth,
  registeredAlgorithm,
  type ServingPlan,
} from "../../executor/internal.ts";
import { fitsSlot, type HostArena, NUM_PLACES, NUM_SLOTS } from "./host-arena.ts";
import { MPI_KERNELS } from "./host-choices.ts";
import type { Activity } from "./mpi-entry.ts";
import { type HostCall, kernelOp, PlanCall, type PlanPlace } from "./plan-call.ts";

/** Collectives whose calls can be cut into pieces here; the others are MPI's whatever a table says. */
const CUT = new Set<string>(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]);
/** Operators whose result depends on when it is rounded. */
const ROUNDING = new Set<KernelOp>(["sum", "prod", "avg", "preMulSum"]);
/** Prepared plans that a group keeps; when there are more, it starts anew. */
const MAX_PREPARED = 32;

/** What a world on one host has for plans. */
export interface HostPlans {
  readonly arena: HostArena;
  readonly documents: readonly ChoiceDocument[];
  readonly topology: string;
}

export class HostGroup implements PlanPlace {
  readonly arena: HostArena;
  readonly place: number;
  /** Of the world. */
  readonly ranks: readonly number[];
  readonly me: number;
  /** Pieces that this rank has put into the arena for this group. */
  numPieces = 0;
  /** This rank's own words for the addresses of all ranks' inputs and outputs: another may be a piece ahead, or behind. */
  readonly buffers: number;
  readonly #choices: Choices;
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
    const { topology, documents } = host;
    const tells = me === 0 && logsSelection();
    this.#choices = new Choices(
      { backend: "mpi", group: name, numRanks: ranks.length, topology, kernels: MPI_KERNELS },
      documents,
      tells ? (line) => process.stderr.write(`${line}\n`) : undefined,
    );
    loadEarly(this.#choices, () => !this.#isClosed);
    this.buffers = host.arena.allocate(8 * ranks.length);
    host.arena.clear(place, ranks[me] ?? 0);
  }

  /** Whether a group can have a place. */
  static fits(size: number, place: number): boolean {
    return size > 1 && place < NUM_PLACES;
  }

  /** What makes a call: a plan where one is chosen, and `mpi` otherwise. All members come to the same answer. */
  activity(call: HostCall, mpi: () => Activity): Activity {
    const { op, size, count, dtype } = call;
    if (!CUT.has(op) || count === 0) return mpi();
    const collective = op as CollectiveName;
    const choice = this.#choices.choose(collective, dtype, reportedCount(op, size, count) * sizeOf(dtype));
    choice.calls++;
    if (choice.served.kind === "kernel") return mpi();
    const serving = this.#servingOf(choice, collective);
    if (serving === undefined || !isRoundedOnce(serving, dtype, kernelOp(call.redop))) return mpi();
    return new PlanCall(this, call, serving, mpi);
  }

  /** Calls that each choice served. */
  counts(): Record<string, number> {
    return this.#choices.counts();
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
