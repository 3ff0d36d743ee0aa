/** One rank's end of NCCL: its device, its communicators, and how they are opened, aborted and destroyed. */
import { NCCL_RESULT, type NcclLibrary } from "../../../foreign/nccl/index.ts";
import { CudaStream, type PeerMemory, type RankDevice } from "../../device/index.ts";
import type { ControlSegment, GroupControl, JointTurn } from "../../memory/index.ts";
import type { Poller, WorldWaiting } from "../../progress/index.ts";
import { NcclCommunicator } from "./communicator.ts";
import { CommunicatorTeardown } from "./communicator-teardown.ts";
import { Completion } from "./completion.ts";
import { CapturedGraphs } from "./graphs.ts";
import { GroupPlans } from "./group-plans.ts";
import { KernelRoom } from "./kernel-room.ts";
import type { CommunicatorParts, NcclContext, NcclSettings } from "./nccl-context.ts";
import type { Opening } from "./nccl-entry.ts";
import { NcclGroup } from "./nccl-group.ts";
import { IdOpening } from "./open-communicator.ts";
import { CommQueue } from "./queue.ts";
import { mixedRegistrations } from "./registrations.ts";
import { StreamOrder } from "./stream-order.ts";

/** What a rank has opened before it opens communicators. */
interface OpenedParts {
  readonly at: RankDevice;
  readonly peers: PeerMemory;
  readonly segment: ControlSegment;
  readonly jointTurn: JointTurn;
  readonly waiting: WorldWaiting;
  /** Of barriers. */
  readonly zeros: bigint | undefined;
}

export class NcclRank implements NcclContext {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly segment: ControlSegment;
  readonly jointTurn: JointTurn;
  readonly settings: NcclSettings;
  readonly poller: Poller;
  readonly waiting: WorldWaiting;
  readonly barrierWord: number;
  readonly peers: PeerMemory;
  readonly endings: CommunicatorTeardown;
  readonly #room: KernelRoom;
  capturing: NcclContext["capturing"];
  readonly handles: BigUint64Array[] = [];

  constructor(library: NcclLibrary, opened: OpenedParts, settings: NcclSettings) {
    const { at } = opened;
    this.library = library;
    this.at = at;
    this.peers = opened.peers;
    this.segment = opened.segment;
    this.jointTurn = opened.jointTurn;
    this.waiting = opened.waiting;
    this.poller = opened.waiting.poller;
    this.settings = settings;
    this.barrierWord = Number(opened.zeros ?? 0n);
    this.#room = new KernelRoom(at.device.info.numMultiprocessors);
    this.endings = new CommunicatorTeardown(this);
  }

  /** Makes a communicator whose NCCL handle `opening` will give. Returns at once; its calls wait for the handle. */
  communicator(group: string, ranks: readonly number[], control: GroupControl, opening: Opening): NcclCommunicator {
    const { blocking, flightTimings, registrations } = this.settings;
    const stream = CudaStream.create(this.at.device);
    const queue: CommQueue = new CommQueue({
      library: this.library,
      at: this.at,
      control,
      stream,
      order: new StreamOrder(this.at, stream),
      completion: new Completion(this.at, stream),
      poller: this.poller,
      group,
      ranks,
      generation: this.at.generation,
      joinedApart: mixedRegistrations,
      opening,
      blocking,
      flightTimings,
      target: (comm) => ({
        library: this.library,
        comm,
        stream: stream.handle,
        owner: stream,
        rank: control.member,
        size: ranks.length,
        pairAddress: registrations?.pairAddress,
        untilAccepted: () => queue.handle.untilAccepted(),
        copy: (to, from, sizeBytes) => {
          this.at.device.call("cuMemcpyDtoDAsync_v2", "own part", to, from, sizeBytes, stream.handle);
        },
      }),
      endings: this.endings,
      opened: (comm) => registrations?.opened(comm),
      plans: {
        kindsNow: (entry, isOpened) => plans.kindsNow(entry, isOpened),
        mayOpen: (kinds) => plans.mayOpen(kinds),
        open: (kinds, target) => plans.open(kinds, target),
        gaveUp: () => plans.gaveUp(),
      },
      failed: (othersMs) => plans.abort(othersMs),
    });
    const { member } = control;
    const choices = this.settings.choicesOf?.({ group, numRanks: ranks.length, member });
    const graphs = new CapturedGraphs(
      (one) => this.peers.pool.free(one),
      () => queue.cause === undefined && !queue.closed && !control.failed,
    );
    const plans = new GroupPlans({ rank: this, queue, member, size: ranks.length, room: this.#room, graphs, choices });
    const parts: CommunicatorParts = {
      rank: this,
      queue,
      graphs,
      plans,
      group,
      ranks,
      member,
      retire: () => this.endings.retire(parts),
      close: () => communicator.close(),
    };
    const communicator = new NcclCommunicator(new NcclGroup(parts));
    this.endings.add(parts);
    return communicator;
  }

  /**
   * Makes a communicator that opens with a unique id, and tells its members that this rank has joined.
   * @param ownId the id that the program brought; member 0's counts, which draws one otherwise
   */
  join(group: string, ranks: readonly number[], control: GroupControl, ownId?: Uint8Array): NcclCommunicator {
    const opening = new IdOpening(this, control, ranks, ownId);
    const communicator = this.communicator(group, ranks, control, opening);
    // At once: joining is call 0, and calls may be queued before the communicator opens.
    opening.join();
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
