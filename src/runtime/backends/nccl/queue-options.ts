/** What a communicator's queue is made of. */

import type { CudaStream, RankDevice } from "../../device/index.ts";
import type { GroupControl } from "../../memory/index.ts";
import type { Poller } from "../../progress/index.ts";
import type { Endings } from "./communicator-teardown.ts";
import type { NcclLibrary } from "./library.ts";
import type { CallTarget } from "./nccl-calls.ts";
import type { Opening } from "./nccl-entry.ts";

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
