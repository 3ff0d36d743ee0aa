/** One rank's end of MPI: its groups, and what they share. */
import { GroupCommunicator } from "../../comm/index.ts";
import { layoutOf } from "../../hosts/index.ts";
import type { Poller } from "../../progress/index.ts";
import { HostGroup } from "./host-plans.ts";
import { HostsGroup } from "./hosts-group.ts";
import type { MpiContext, MpiRankOptions } from "./mpi-context.ts";
import { MpiGroup } from "./mpi-group.ts";
import { MpiQueue } from "./mpi-queue.ts";
import { ReductionKernels } from "./reduction-kernels.ts";
import type { OpenedGroup } from "./world-control.ts";

export class MpiRank implements MpiContext {
  readonly options: MpiRankOptions;
  readonly poller: Poller;
  /** The kernels, built at the first call that needs them. */
  readonly kernels: () => ReductionKernels;
  readonly #open = new Map<MpiGroup, GroupCommunicator<MpiGroup>>();

  constructor(options: MpiRankOptions) {
    this.options = options;
    this.poller = options.poller;
    let kernels: ReductionKernels | undefined;
    this.kernels = () => {
      kernels ??= new ReductionKernels(options.worldSize);
      return kernels;
    };
  }

  /** Makes a communicator. Returns at once; its calls wait until all members have made it. @param comm MPI's, where it is there */
  communicator(
    group: string,
    ranks: readonly number[],
    opened: OpenedGroup,
    comm?: number,
  ): GroupCommunicator<MpiGroup> {
    const { poller } = this;
    const { mpi, generation, host, control: world } = this.options;
    const { control, spansHosts, turns } = opened;
    const { index, member } = control;
    // Before the queue says to the others that this member is there.
    const plans = spansHosts
      ? this.#hostsGroup(group, ranks, member)
      : host.arena !== undefined && HostGroup.fits(ranks.length, index)
        ? new HostGroup({ ...host, arena: host.arena }, group, ranks, member, index)
        : undefined;
    const arena = host?.arena;
    const elsewhere = world.notices === undefined ? undefined : { world, spansHosts };
    const driver = new MpiGroup(
      this,
      new MpiQueue({ mpi, control, poller, group, ranks, generation, comm, arena, elsewhere, turns }),
      plans,
    );
    const communicator = new GroupCommunicator(driver);
    this.#open.set(driver, communicator);
    return communicator;
  }

  /** What makes calls of a group that spans hosts host by host; nothing where no two members share a host. */
  #hostsGroup(group: string, ranks: readonly number[], member: number): HostsGroup | undefined {
    const { mpi, host, control } = this.options;
    const layout = layoutOf(control.hostsOf(ranks).map(String), member);
    if (layout.hosts.length === ranks.length) return undefined;
    return new HostsGroup(mpi, { group, layout, rank: member, size: ranks.length, choices: host });
  }

  /** The open communicators, in the order in which they were made. */
  get communicators(): readonly GroupCommunicator<MpiGroup>[] {
    return [...this.#open.values()];
  }
  get groups(): readonly MpiGroup[] {
    return [...this.#open.keys()];
  }

  retire(group: object): void {
    this.#open.delete(group as MpiGroup);
  }
}
