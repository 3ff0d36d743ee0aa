/** What the parts of one rank's end of NCCL know of each other; nccl-rank.ts puts it together. */
import type { NcclLibrary } from "../../../foreign/nccl/index.ts";
import type { Capabilities, Communicator } from "../../comm/index.ts";
import type { PeerMemory, RankDevice } from "../../device/index.ts";
import type { Choices } from "../../executor/internal.ts";
import type { ControlSegment, GroupControl, JointTurn } from "../../memory/index.ts";
import type { Poller } from "../../progress/index.ts";
import type { CapturedGraphs } from "./graphs.ts";
import type { GroupPlans } from "./group-plans.ts";
import type { Opening } from "./nccl-entry.ts";
import type { CommQueue } from "./queue.ts";
import type { Registrations } from "./registrations.ts";

/** What a rank settles when it attaches. */
export interface NcclSettings {
  readonly worldRank: number;
  readonly timeoutMs: number;
  /** See `NcclAttachOptions.strictWork`. */
  readonly strictWork: boolean;
  readonly capabilities: Capabilities;
  /** As `encodeConfig` lays it out. */
  readonly config: Uint8Array;
  /** NCCL's host calls return before they are done and are polled. Slower: NCCL then starts a thread a call. */
  readonly blocking: boolean;
  /** The backend's name, to programs. */
  readonly backend: string;
  /** Ranks on other hosts. */
  readonly remote: ReadonlySet<number>;
  /** Whether kernels here can use the memory of every other rank's device. */
  readonly reachesPeers: boolean;
  /** What serves a group's calls; absent where NCCL serves them all. */
  readonly choicesOf:
    | ((place: { readonly group: string; readonly numRanks: number; readonly member: number }) => Choices)
    | undefined;
  /** The pool's segments, if NCCL is to know them. */
  readonly registrations: Registrations | undefined;
  /** Whether ranks are processes; threads of one process otherwise. */
  readonly interprocess: boolean;
  /** See `NcclAttachOptions.flightTimings`. */
  readonly flightTimings: boolean | undefined;
}

/** One rank's end of NCCL. */
export interface NcclContext {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly segment: ControlSegment;
  readonly jointTurn: JointTurn;
  readonly settings: NcclSettings;
  readonly poller: Poller;
  /** Four bytes on the device that barriers reduce. */
  readonly barrierWord: number;
  readonly peers: PeerMemory;
  /** How many communicators were closed and are not freed yet. */
  readonly endings: { readonly numRetired: number };
  /** The group whose calls go into a graph now. */
  capturing: { readonly place: { readonly group: string } } | undefined;
  /** Memory that NCCL will write handles to: kept until it has. */
  readonly handles: BigUint64Array[];
  /** Makes a communicator whose NCCL handle `opening` will give. Returns at once; its calls wait for the handle. */
  communicator(group: string, ranks: readonly number[], control: GroupControl, opening: Opening): Communicator;
  /** Makes a communicator that opens with a unique id, the one of member 0, and tells its members that this rank has joined. */
  join(group: string, ranks: readonly number[], control: GroupControl): Communicator;
  /** Says whether a handle is usable yet. @throws NativeError when NCCL gave up on it */
  isReady(comm: bigint): boolean;
}

/** Everything a communicator is made of. */
export interface CommunicatorParts {
  readonly rank: NcclContext;
  readonly queue: CommQueue;
  readonly graphs: CapturedGraphs;
  readonly plans: GroupPlans;
  readonly group: string;
  /** World ranks, by group rank. */
  readonly ranks: readonly number[];
  readonly member: number;
  /** Hands the communicator over to be freed: its program has closed it. */
  readonly retire: () => void;
  /** Closes the communicator, as its program does. */
  readonly close: () => Promise<void>;
}
