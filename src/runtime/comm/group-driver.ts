/**
 * The seam between `GroupCommunicator`, which every backend shares, and what a backend gives for one group. Arguments
 * that arrive here are checked: a driver refuses only what it alone can know (its memory, its engine).
 */
import type { ChoraleError, Tensor } from "../../core/index.ts";
import type { CheckedCall } from "./call.ts";
import type {
  AllToAllVOptions,
  Capabilities,
  CommStats,
  Communicator,
  Data,
  ReduceOptions,
  RootOptions,
  Runnable,
  RunOptions,
  VOptions,
} from "./contract.ts";
import type { CallEpilogue } from "./epilogue.ts";
import type { NamedCall } from "./option-names.ts";
import type { PlanCall } from "./plan-call.ts";
import type { PendingWork, QuickWork } from "./work.ts";

/** Where a group stands: who its members are, and which of them this rank is. */
export interface GroupPlace {
  readonly backend: string;
  readonly group: string;
  /** This rank's place in the group. */
  readonly rank: number;
  /** World ranks of the members, by group rank. */
  readonly ranks: readonly number[];
  readonly generation: number;
}

/** A collective, a send or a receive, with every argument checked. */
export interface TensorCall extends CheckedCall {
  readonly kind: "tensors";
  /** Absent: the driver's own deadline. */
  readonly timeoutMs: number | undefined;
  /** What is to serve the call. Given to drivers that take it, which check it. Absent: they choose. */
  readonly algorithm: string | undefined;
  /** What is done behind the call: by the device with drivers that take epilogues, and otherwise by the extension. All compare it. */
  readonly epilogue?: CallEpilogue | undefined;
}
export interface BarrierCall {
  readonly kind: "barrier";
  readonly timeoutMs: number | undefined;
}
export type GroupCall = TensorCall | BarrierCall;

/** A call in which ranks give bytes and read each other's. It takes its turn among the group's collectives. */
export interface ByteExchange<T> {
  readonly op: "broadcast_object" | "gather_objects" | "split";
  /** What this rank gives; `undefined` on ranks that give nothing. A split's are eight, so they may ride in a fingerprint. */
  readonly bytes: Uint8Array | undefined;
  readonly root: number;
  readonly timeoutMs: number | undefined;
  /** Makes the result of what the members gave, by group rank. Called once; what it throws fails the group. */
  readonly finish: (given: readonly (Uint8Array | undefined)[]) => T;
}

/** A group that comes from another one. */
export interface GroupOpening {
  readonly how: "split" | "shrink";
  readonly name: string;
  /** Group ranks of the members, in the order of the new group; empty for a rank that splits off into no group. */
  readonly members: readonly number[];
  /** Tells openings of one group apart that have the same name and members. */
  readonly nth: number;
  /** What this rank gave to `split`; 0 for a shrink. */
  readonly color: number;
  readonly key: number;
}

/** What a driver makes of a batch. */
export interface SubmittedBatch {
  /** The work of each call, in order. */
  readonly works: readonly PendingWork<unknown>[];
  /** Work that settles with all of them, where the driver has one; otherwise they are joined. */
  readonly whole?: PendingWork<unknown>;
}

/** The options of any call, as a program gave them: an object, but nothing in it is known to be what its type says. */
export type UncheckedOptions = ReduceOptions & RootOptions & VOptions & AllToAllVOptions;

/** What a backend gives for one group: eight operations and some facts. */
export interface GroupDriver {
  readonly place: GroupPlace;
  readonly capabilities: Capabilities;
  /** Why the group has failed, if it has; also when a peer has just written so. */
  readonly failure: ChoraleError | undefined;
  /** Whether works that nobody looked at make `close` throw instead of raising a warning, which is the default. */
  readonly strictWork?: boolean;
  /** Whether calls may say which algorithm serves them. */
  readonly takesAlgorithms?: boolean;
  /** Whether the device does the epilogue of an all-reduce. */
  readonly takesEpilogues?: boolean;
  /** Number of the group's next collective. */
  readonly nextSeq: number;

  /** Issues a call. Never waits beyond a short bounded spin. @throws OutOfMemoryError and the like, with nothing changed */
  submit(call: GroupCall): PendingWork<unknown>;
  /** Issues calls that start together, or none of them. */
  submitAll(calls: readonly GroupCall[]): SubmittedBatch;
  exchange<T>(exchange: ByteExchange<T>): PendingWork<T>;
  /** Opens a group of members of this one. Called within a split's `finish` (by every rank) or by the survivors of a shrink. */
  open(opening: GroupOpening): Communicator | undefined;
  /** What is unfinished, what was counted, and the memory in use. */
  pending(): CommStats;
  /** Fails the group on all its ranks, unless it has failed. Never blocks. */
  fail(error: ChoraleError): void;
  /** Waits until nothing is pending, without counting as somebody who looks at a failure. */
  drain(): Promise<void>;
  /** Frees what the group holds. @returns the first failure that nobody looked at */
  close(): Promise<{ readonly error: unknown } | undefined>;

  /** Runs a plan. Absent where the backend runs none. */
  run?(call: PlanCall): PendingWork<Tensor | undefined>;

  /**
   * Makes a call that needs no more than comparisons, without allocating for it; `undefined` for every other one, also
   * for what is wrong with it: the careful path says what. Not called inside of a batch or after `close`.
   * @param given the bits of the options' names (`PLAIN_OPTIONS`); -1 where there are others
   */
  quick?(
    call: NamedCall,
    data: Data | undefined,
    options: UncheckedOptions,
    peer: number,
    given: number,
  ): QuickWork<unknown> | undefined;
  /** As `quick`, for a run of a plan that this group has run before. */
  quickRun?(plan: Runnable, options: RunOptions): QuickWork<Tensor | undefined> | undefined;
}
