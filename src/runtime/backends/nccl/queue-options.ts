/** What a communicator's queue is made of. */

import type { NcclLibrary } from "../../../foreign/nccl/index.ts";
import type { CudaStream, RankDevice } from "../../device/index.ts";
import type { CallKind, CallQueueOptions } from "../../progress/index.ts";
import type { Completion } from "./completion.ts";
import type { CallTarget } from "./nccl-calls.ts";
import type { Entry, Opening } from "./nccl-entry.ts";
import type { StreamOrder } from "./stream-order.ts";

/** How communicators of a rank end, as their queues see it. */
interface QueueEndings<Q> {
  /** To be called before every call that is put on a stream. */
  beforeIssue(): void;
  /** Whether new calls wait until a failed communicator is aborted, or a closed one is freed. */
  holdsBack(queue: Q): boolean;
  /** @param entering whether members may be in NCCL with a call that this rank has not made */
  failed(queue: Q, entering: boolean): void;
}

/** How plans are opened, as the queue sees it. */
export interface PlanOpenings {
  /**
   * The kinds of a call that is the next to go: NCCL's own where no member tries to open its plan now, and none of what is opened beside it.
   * @param isOpened whether they have tried: NCCL serves it where that was in vain
   */
  kindsNow(entry: Entry, isOpened?: boolean): readonly CallKind[];
  /** Whether it is time to take a turn for calls of these kinds. */
  mayOpen(kinds: readonly CallKind[]): boolean;
  /** Which strand gave up waiting in a launch that has ended, where kernels are built to say so. */
  gaveUp(): string | undefined;
  /** Opens the plans that calls of these kinds need, in their turn. @returns whether the call may be made now */
  open(kinds: readonly CallKind[], target: CallTarget): boolean;
}

/** @typeParam Q the queue */
export interface QueueOptions<Q> extends CallQueueOptions {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly stream: CudaStream;
  /** Where the stream stands among the others. */
  readonly order: StreamOrder;
  /** Tells what the stream has done. */
  readonly completion: Completion;
  readonly opening: Opening;
  readonly blocking: boolean;
  /** Where calls run, once the communicator is open. */
  readonly target: (comm: bigint) => CallTarget;
  readonly opened: (comm: bigint) => void;
  /** The plans that calls may need. */
  readonly plans: PlanOpenings;
  /**
   * The group has failed: what is on the device beside NCCL's kernels is to end, once the other members have settled what
   * has ended there, for which they are given so long, ms.
   */
  readonly failed: (othersMs: number) => void;
  /** How communicators of this rank end. */
  readonly endings: QueueEndings<Q>;
}
