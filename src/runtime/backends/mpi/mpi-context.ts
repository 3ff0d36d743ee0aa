/** What a group knows of its rank; mpi-rank.ts puts it together. */
import type { Capabilities, Communicator } from "../../comm/index.ts";
import type { RankDevice } from "../../device/index.ts";
import type { Poller } from "../../progress/index.ts";
import type { WorldPlans } from "./host-plans.ts";
import type { MpiProcess } from "./mpi-process.ts";
import type { ReductionKernels } from "./reduction-kernels.ts";
import type { OpenedGroup, WorldControl } from "./world-control.ts";

export interface MpiRankOptions {
  readonly poller: Poller;
  readonly mpi: MpiProcess;
  readonly control: WorldControl;
  /** Rank in the world. */
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly timeoutMs: number;
  readonly strictWork: boolean;
  readonly capabilities: Capabilities;
  /** Where the world's tensors are, if they are on a device. */
  readonly at: RankDevice | undefined;
  /** What serves calls beside MPI. */
  readonly host: WorldPlans;
}

export interface MpiContext {
  readonly options: MpiRankOptions;
  /** The kernels, built at the first call that needs them. */
  readonly kernels: () => ReductionKernels;
  /** Makes the communicator of a new group. */
  communicator(group: string, ranks: readonly number[], opened: OpenedGroup): Communicator;
  /** Forgets a group that was closed. */
  retire(group: object): void;
}
