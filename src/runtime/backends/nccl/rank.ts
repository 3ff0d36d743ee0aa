/** One rank's end of NCCL: its device, its communicators, and how they are opened, aborted and destroyed. */
import type { Capabilities } from "../../comm/index.ts";
import type { ControlSegment, GroupControl } from "../control/segment.ts";
import { PeerMemory } from "../cuda/peer-memory.ts";
import type { RankDevice } from "../cuda/rank-device.ts";
import { CudaStream } from "../cuda/stream.ts";
import { NcclCommunicator } from "./communicator.ts";
import { encodeConfig, type NcclConfig } from "./config.ts";
import type { NcclLibrary } from "./library.ts";
import { Poller } from "./poller.ts";
import { CLOSING_SEQ, CommQueue, type Opening } from "./queue.ts";
import { NCCL_RESULT } from "./symbols.ts";

/** NCCL before 2.22 cannot abort several communicators in a group. */
const GROUPED_ABORT_SINCE = 22200;

export interface NcclRankOptions {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly segment: ControlSegment;
  readonly rank: number;
  readonly timeoutMs: number;
  readonly capabilities: Capabilities;
  readonly config: NcclConfig;
  /** NCCL's host calls return before they are done and are polled. Slower: NCCL then starts a thread a call. */
  readonly blocking: boolean;
  /** Whether ranks are processes; threads of one process otherwise. */
  readonly interprocess: boolean;
}

export class NcclRank {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly segment: ControlSegment;
  readonly worldRank: number;
  readonly timeoutMs: number;
  readonly capabilities: Capabilities;
  readonly config: Uint8Array;
  readonly blocking: boolean;
  readonly poller = new Poller();
  /** Four bytes on the device that barriers reduce. */
  readonly barrierWord: number;
  readonly peers: PeerMemory;
  readonly #open = new Set<NcclCommunicator>();
  readonly #retired = new Set<NcclCommunicator>();

  constructor(options: NcclRankOptions) {
    this.library = options.library;
    this.at = options.at;
    this.segment = options.segment;
    this.worldRank = options.rank;
    this.timeoutMs = options.timeoutMs;
    this.capabilities = options.capabilities;
    this.blocking = options.blocking;
    this.config = encodeConfig(options.config, options.library.versionCode, options.blocking);
    this.peers = new PeerMemory(this.at.device, this.at.pool, options.interprocess);
    const word = this.at.pool.allocate(4, this.at.main, "barrier");
    this.barrierWord = Number(word.address);
    this.at.device.call("cuMemsetD8Async", "barrier", word.address, 0, 4, this.at.main.handle);
    this.at.main.touched = true;
  }

  get communicators(): readonly NcclCommunicator[] {
    return [...this.#open];
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
      target: (comm) => ({
        library: this.library,
        comm,
        stream: stream.handle,
        rank: control.member,
        size: ranks.length,
        copy: (to, from, sizeBytes) => {
          this.at.device.call("cuMemcpyDtoDAsync_v2", "own part", to, from, sizeBytes, stream.handle);
        },
      }),
      abortFailed: () => this.abortFailed(),
    });
    const communicator = new NcclCommunicator({ rank: this, queue, group, ranks, member: control.member });
    this.#open.add(communicator);
    return communicator;
  }

  /**
   * Takes over a communicator that its program has closed. NCCL destroys a communicator on all members at once and
   * blocks until they do; so it happens when the last member has closed, in the background.
   */
  retire(communicator: NcclCommunicator): void {
    this.#open.delete(communicator);
    this.#retired.add(communicator);
    this.poller.add({ poll: () => !this.#tryDestroy(communicator) });
  }

  /** Waits for retired communicators, and aborts those whose peers never closed. */
  async settleRetired(): Promise<void> {
    const until = performance.now() + this.timeoutMs;
    while (this.#retired.size > 0 && performance.now() < until) {
      for (const communicator of this.#retired) this.#tryDestroy(communicator);
      if (this.#retired.size > 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    for (const communicator of this.#retired) {
      const { comm } = communicator.parts.queue;
      if (comm !== undefined && this.at.device.poison === undefined) this.library.api.ncclCommAbort(comm);
    }
    this.#retired.clear();
  }

  /** Destroys a retired communicator if all members have closed. @returns whether it is gone */
  #tryDestroy(communicator: NcclCommunicator): boolean {
    if (!this.#retired.has(communicator)) return true;
    const { queue } = communicator.parts;
    const { control } = queue.options;
    const alive = queue.comm !== undefined && queue.cause === undefined && !control.failed;
    if (alive && !(control.allClosing && queue.turn(CLOSING_SEQ))) return false;
    if (queue.comm !== undefined && this.at.device.poison === undefined) {
      this.at.device.activate();
      if (alive) this.library.api.ncclCommDestroy(queue.comm);
      else if (queue.cause === undefined) this.library.api.ncclCommAbort(queue.comm);
    }
    if (alive) queue.endTurn(CLOSING_SEQ);
    this.#retired.delete(communicator);
    control.leave();
    if (this.at.device.poison === undefined) communicator.stream.close();
    return true;
  }

  /** Says whether a handle is usable yet. @throws NativeError when NCCL gave up on it */
  isReady(comm: bigint): boolean {
    const out = new Int32Array(1);
    this.library.check("ncclCommGetAsyncError", this.library.api.ncclCommGetAsyncError(comm, out), comm);
    const state = out[0] ?? 0;
    this.library.check("communicator", state, comm);
    return state === NCCL_RESULT.success;
  }

  /**
   * Aborts the communicators of this device that have failed, all in one group: one at a time they can deadlock in a
   * device-wide synchronisation behind each other (NVIDIA/nccl#1013).
   */
  abortFailed(): void {
    const handles = this.communicators.flatMap((communicator) => communicator.parts.queue.surrender() ?? []);
    if (handles.length === 0 || this.at.device.poison !== undefined) return;
    const { api, versionCode } = this.library;
    this.at.device.activate();
    const grouped = versionCode >= GROUPED_ABORT_SINCE;
    if (grouped) api.ncclGroupStart();
    for (const handle of handles) api.ncclCommAbort(handle);
    if (grouped) api.ncclGroupEnd();
  }
}
