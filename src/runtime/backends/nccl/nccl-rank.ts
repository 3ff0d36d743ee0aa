/** One rank's end of NCCL: its device, its communicators, and how they are opened, aborted and destroyed. */
import type { Capabilities } from "../../comm/index.ts";
import { CudaStream, PeerMemory, type RankDevice } from "../../device/index.ts";
import type { ControlSegment, GroupControl } from "../../memory/index.ts";
import { Poller, WorldWaiting } from "../../progress/index.ts";
import { NcclCommunicator } from "./communicator.ts";
import { CommunicatorTeardown } from "./communicator-teardown.ts";
import { CapturedGraphs } from "./graphs.ts";
import type { NcclLibrary } from "./library.ts";
import type { CommunicatorParts, NcclContext } from "./nccl-context.ts";
import type { Opening } from "./nccl-entry.ts";
import { NcclGroup } from "./nccl-group.ts";
import { CommQueue } from "./queue.ts";
import type { Registrations } from "./registrations.ts";
import { NCCL_RESULT } from "./symbols.ts";

export interface NcclRankOptions {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly segment: ControlSegment;
  readonly rank: number;
  readonly timeoutMs: number;
  readonly strictWork: boolean;
  readonly capabilities: Capabilities;
  /** As `encodeConfig` lays it out. */
  readonly config: Uint8Array;
  /** NCCL's host calls return before they are done and are polled. Slower: NCCL then starts a thread a call. */
  readonly blocking: boolean;
  /** The pool's segments, if NCCL is to know them. */
  readonly registrations: Registrations | undefined;
  /** Whether ranks are processes; threads of one process otherwise. */
  readonly interprocess: boolean;
  /** Whether calls are timed on the stream for the flight recorder. */
  readonly flightTimings: boolean;
}

export class NcclRank implements NcclContext {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly segment: ControlSegment;
  readonly worldRank: number;
  readonly timeoutMs: number;
  /** See `NcclAttachOptions.strictWork`. */
  readonly strictWork: boolean;
  readonly capabilities: Capabilities;
  readonly config: Uint8Array;
  readonly blocking: boolean;
  readonly poller = new Poller();
  readonly waiting: WorldWaiting;
  /** Four bytes on the device that barriers reduce. */
  readonly barrierWord: number;
  readonly peers: PeerMemory;
  readonly registrations: Registrations | undefined;
  readonly interprocess: boolean;
  readonly flightTimings: boolean;
  readonly endings: CommunicatorTeardown;
  /** The group whose calls go into a graph now. */
  capturing: NcclContext["capturing"];
  /** Memory that NCCL will write handles to: kept until it has. */
  readonly handles: BigUint64Array[] = [];

  constructor(options: NcclRankOptions) {
    this.library = options.library;
    this.at = options.at;
    this.segment = options.segment;
    this.worldRank = options.rank;
    this.timeoutMs = options.timeoutMs;
    this.strictWork = options.strictWork;
    this.capabilities = options.capabilities;
    this.blocking = options.blocking;
    this.config = options.config;
    this.registrations = options.registrations;
    this.interprocess = options.interprocess;
    this.flightTimings = options.flightTimings;
    this.waiting = new WorldWaiting(this.segment, this.poller, this.timeoutMs);
    this.at.device.waiting = this.waiting;
    this.endings = new CommunicatorTeardown(this);
    this.peers = new PeerMemory(this.at.device, this.at.pool, { interprocess: options.interprocess });
    const word = this.at.pool.allocate(4, this.at.main, "barrier");
    this.barrierWord = Number(word.address);
    this.at.device.call("cuMemsetD8Async", "barrier", word.address, 0, 4, this.at.main.handle);
    this.at.main.touched = true;
  }

  /** Makes a communicator whose NCCL handle `opening` will give. Returns at once; its calls wait for the handle. */
  communicator(group: string, ranks: readonly number[], control: GroupControl, opening: Opening): NcclCommunicator {
    const stream = CudaStream.create(this.at.device);
    const queue = new CommQueue({
      library: this.library,
      at: this.at,
      control,
      stream,
      poller: this.poller,
      group,
      ranks,
      opening,
      blocking: this.blocking,
      flightTimings: this.flightTimings,
      target: (comm) => ({
        library: this.library,
        comm,
        stream: stream.handle,
        rank: control.member,
        size: ranks.length,
        pairAddress: this.registrations?.pairAddress,
        copy: (to, from, sizeBytes) => {
          this.at.device.call("cuMemcpyDtoDAsync_v2", "own part", to, from, sizeBytes, stream.handle);
        },
      }),
      endings: this.endings,
      opened: (comm) => this.registrations?.opened(comm),
    });
    const parts: CommunicatorParts = {
      rank: this,
      queue,
      graphs: new CapturedGraphs(),
      group,
      ranks,
      member: control.member,
      retire: () => this.endings.retire(parts),
      close: () => communicator.close(),
    };
    const communicator = new NcclCommunicator(new NcclGroup(parts));
    this.endings.add(parts);
    return communicator;
  }

  /** Says whether a handle is usable yet. @throws NativeError when NCCL gave up on it */
  isReady(comm: bigint): boolean {
    const out = new Int32Array(1);
    this.library.check("ncclCommGetAsyncError", this.library.api.ncclCommGetAsyncError(comm, out), comm);
    const state = out[0] ?? 0;
    this.library.check("communicator", state, comm);
    return state === NCCL_RESULT.success;
  }
}
