/** What a communicator's queue is made of. */
import type { GroupControl } from "../control/group-control.ts";
import type { RankDevice } from "../cuda/rank-device.ts";
import type { CudaStream } from "../cuda/stream.ts";
import type { CallTarget } from "./calls.ts";
import type { Endings } from "./endings.ts";
import type { Opening } from "./entry.ts";
import type { NcclLibrary } from "./library.ts";
import type { Poller } from "./poller.ts";

export interface QueueOptions {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly control: GroupControl;
  readonly stream: CudaStream;
  readonly poller: Poller;
  readonly group: string;
  readonly ranks: readonly number[];
  readonly opening: Opening;
  readonly blocking: boolean;
  /** Whether calls are timed on the stream for the flight recorder. */
  readonly flightTimings: boolean;
  /** Where calls run, once the communicator is open. */
  readonly target: (comm: bigint) => CallTarget;
  readonly opened: (comm: bigint) => void;
  /** How communicators of this rank end. */
  readonly endings: Endings;
}
