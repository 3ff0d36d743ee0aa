/** What the groups of one rank know of it; tcp-rank.ts puts it together. */
import type { ChoraleError } from "../../../core/index.ts";
import type { SocketCalls } from "../../../foreign/native/index.ts";
import type { Capabilities, Communicator } from "../../comm/index.ts";
import type { ChoiceDocument } from "../../executor/internal.ts";
import type { HostTensors, ReduceHelper } from "../../hosts/index.ts";
import type { FlightLog } from "./flight-log.ts";
import type { GroupKey, Head } from "./frame.ts";
import type { HostTurns } from "./host-turns.ts";
import type { GrantHolds, Link } from "./link.ts";
import type { PeerSockets } from "./meet.ts";
import type { PlanMemory } from "./plan-memory.ts";
import type { Reducer } from "./reducer.ts";
import type { ChecksumMode, HierarchyMode, SendThreadMode } from "./tcp-handle.ts";
import type { WorkPump } from "./tcp-work.ts";

export interface TcpRankOptions {
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly timeoutMs: number;
  readonly strictWork: boolean;
  readonly capabilities: Capabilities;
  readonly flight: FlightLog;
  readonly calls: SocketCalls;
  /** Of every other rank, by rank. */
  readonly peers: readonly (PeerSockets | undefined)[];
  /** Whether ranks of a host use its memory; what its host is called, and where its launcher keeps files, if known. */
  readonly hierarchy: HierarchyMode;
  readonly sendThread: SendThreadMode;
  readonly checksum: ChecksumMode;
  /** Tables of choices, the same on all ranks. */
  readonly choices?: ChoiceDocument | undefined;
  readonly hostMark: Buffer | undefined;
  readonly folder: string | undefined;
  /** In which ranks of a host can read each other's, where they can. */
  readonly tensors: HostTensors | undefined;
}

export interface TcpContext {
  readonly options: TcpRankOptions;
  readonly reducer: Reducer;
  readonly planMemory: PlanMemory;
  readonly pump: WorkPump;
  readonly grants: GrantHolds;
  /** What goes on in memory of this host. */
  readonly hosts: HostTurns;
  /** The rank's other thread, where it has one. */
  readonly helper: ReduceHelper;
  /** The way to a rank of the world; `undefined` for this one itself. */
  linkOf(rank: number): Link | undefined;
  /** Why a rank of the world cannot be reached any more, if so. */
  goneRank(rank: number): ChoraleError | undefined;
  /** Opens a group. @param label tells it from every other group of the world; the same on all its ranks */
  open(group: string, ranks: readonly number[], label: string): Communicator;
  /** The call that this rank waits in longest, but for the collectives of one group: `all_reduce(f32[4], sum) #0 of tp`. */
  waitsElsewhere(but: FrameTaker): string | undefined;
  /** Forgets a group. */
  retire(group: FrameTaker): void;
  /** Says something to the person who runs the program. */
  warn(text: string): void;
}

/** A group, as frames find it. */
export interface FrameTaker {
  readonly key: GroupKey;
  /** World ranks, by group rank. */
  readonly ranks: readonly number[];
  /** Says where a frame's payload goes. @throws FormatError */
  begin(member: number, head: Head): Uint8Array | undefined;
  end(member: number, head: Head, payload: Uint8Array): void;
  signal(member: number, head: Head): void;
  /** Ends it here: its ranks know, or are told by others. */
  failHere(error: ChoraleError): void;
  /** The first call that runs; with `pairsOnly`, of the sends and receives. */
  firstRunning(pairsOnly: boolean): string | undefined;
  /** Another rank waits in a call of another group, or of one peer, and not in this group's collective. */
  hearElsewhere(member: number, call: string | undefined): void;
  /** Looks whether something has come too late. @param now see `performance.now()` @returns whether calls are pending */
  look(now: number): boolean;
}
