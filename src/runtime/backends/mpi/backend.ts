/**
 * One rank's door to MPI. A rank is a process that MPI's launcher started; data moves through MPI alone, and the ranks of a
 * host share a control segment (runtime/memory) in which they say what they call.
 */
import {
  AbortedError,
  ChoraleError,
  type DType,
  InvalidArgumentError,
  parseDType,
  type Tensor,
} from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import {
  type Backend,
  type Capabilities,
  type Communicator,
  checkGroup,
  checkWorldRank,
  closeEach,
  DEFAULT_TIMEOUT_MS,
  type Failure,
  type FlightDump,
  failureOf,
  type GroupCommunicator,
  GroupOpenings,
} from "../../comm/index.ts";
import type { RankDevice } from "../../device/index.ts";
import { registerStoredPlans, SHIPPED_CHOICES } from "../../executor/internal.ts";
import { type EnteredControl, enterControl, freeTensor, type WorldTerm, worldTensor } from "../../memory/index.ts";
import { dumpSegment, Poller } from "../../progress/index.ts";
import { mpiCapabilities } from "./capabilities.ts";
import { HostArena } from "./host-arena.ts";
import type { HostChoices } from "./host-choices.ts";
import type { WorldPlans } from "./host-plans.ts";
import { MpiDevice } from "./mpi-device.ts";
import type { MpiGroup } from "./mpi-group.ts";
import { MAX_MPI_RANKS, type MpiHandle, partOf } from "./mpi-handle.ts";
import { type MpiProcess, startMpi } from "./mpi-process.ts";
import { MpiRank } from "./mpi-rank.ts";
import { NoticeMessages } from "./notice-messages.ts";
import { type OpenedGroup, WorldControl } from "./world-control.ts";

/** What the mpi backend is told. */
export interface MpiOptions {
  /** Deadline of every wait; 60 s by default. */
  readonly timeoutMs?: number;
  /** Calls that nobody awaited or waited for make `close` throw; otherwise they are a warning. */
  readonly strictWork?: boolean;
  /**
   * What serves calls in place of MPI, where all ranks are on one host. By default this machine's own tables (CHORALE_CHOICES),
   * and where there are none and each rank has a core, `measured`: the faster of MPI and our exchange over shared memory. `mpi`,
   * MPI alone; `exchange`, whatever that can serve; `plans`, whatever a plan can; `shipped`, the shipped tables; or a document
   * before those, whose kernels are `mpi` and `exchange`.
   */
  readonly choices?: HostChoices;
  /**
   * CUDA ordinal of each rank, among the visible devices; ranks may share one. The world's tensors are then in device memory,
   * and calls on them go through page-locked memory of the host. By default tensors are in host memory.
   */
  readonly devices?: readonly number[];
  /**
   * Pretended hosts on one machine, to try what several do: the number of each rank's host, and again from the first for more
   * ranks. Ranks of different ones share no memory, and know of each other through MPI alone.
   */
  readonly hosts?: readonly number[];
}

/**
 * Attaches this process as `rank`, which must be its rank in MPI.
 * @throws UnavailableError without MPI, or when another MPI's launcher started the process; InvalidArgumentError
 */
export function attachMpi(handle: MpiHandle, rank: number, options: MpiOptions = {}): MpiBackend {
  checkWorldRank(rank, handle.ranks);
  const mpi = startMpi();
  if (mpi.rank !== rank || mpi.size !== handle.ranks) {
    const place = `rank ${rank} of ${handle.ranks}`;
    throw new InvalidArgumentError("rank", described(place), `MPI's own, rank ${mpi.rank} of ${mpi.size}`);
  }
  const all = Array.from({ length: mpi.size }, (_, r) => r);
  const numHere = handle.hosts?.filter((host) => host === handle.hosts?.[rank]).length ?? mpi.size;
  const control = enterControl({ ...handle, control: partOf(handle, rank).control }, rank, all, [], numHere);
  const poller = new Poller();
  let device: MpiDevice | undefined;
  try {
    const ordinal = options.devices?.[rank];
    if (ordinal !== undefined) {
      const place = { rank, generation: handle.generation, timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS };
      device = new MpiDevice(ordinal, place, control.segment, poller);
    }
    return new MpiBackend({ mpi, handle, rank, control, poller, device, numHere }, options);
  } catch (error) {
    device?.close(false);
    control.withdraw();
    throw error;
  }
}

/** What the ranks of this host have for plans. */
function plansOf(handle: MpiHandle, rank: number, numHere: number): WorldPlans {
  const { ranks, choices, topology, measures } = handle;
  const { arena } = partOf(handle, rank);
  const documents = choices === undefined ? [SHIPPED_CHOICES] : [choices, SHIPPED_CHOICES];
  if (choices !== undefined) registerStoredPlans(choices);
  return { arena: arena && new HostArena(arena, ranks, numHere), documents, topology, measures };
}

/** What a rank has opened before it opens communicators. */
interface OpenedParts {
  readonly mpi: MpiProcess;
  readonly handle: MpiHandle;
  readonly rank: number;
  readonly control: EnteredControl;
  readonly poller: Poller;
  readonly device: MpiDevice | undefined;
  /** Ranks on this host. */
  readonly numHere: number;
}

/** Where this rank says what it calls. */
function worldControlOf({ mpi, handle, rank, control }: OpenedParts): WorldControl {
  const { hosts } = handle;
  if (hosts === undefined) return new WorldControl(control.segment, rank);
  return new WorldControl(control.segment, rank, { hosts, notices: new NoticeMessages(mpi, ++mpi.numJoined, handle) });
}

export class MpiBackend implements Backend {
  readonly name = "mpi";
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly world: GroupCommunicator<MpiGroup>;
  readonly #rank: MpiRank;
  readonly #control: EnteredControl;
  readonly #term: WorldTerm;
  readonly #openings = new GroupOpenings();
  readonly #device: MpiDevice | undefined;
  /** This rank's device, where the world's tensors are there; and copies to it and from it. */
  readonly device?: RankDevice;
  readonly upload?: NonNullable<Backend["upload"]>;
  readonly download?: NonNullable<Backend["download"]>;
  #closed = false;
  #freed = false;

  constructor(parts: OpenedParts, options: MpiOptions) {
    const { mpi, handle, rank, control, poller, device, numHere } = parts;
    this.#device = device;
    if (device !== undefined) {
      this.device = device.at;
      this.upload = (target, values) => device.upload(target, values);
      this.download = (source) => device.download(source);
    }
    const { ranks: worldSize, generation } = handle;
    this.rank = rank;
    this.worldSize = worldSize;
    this.generation = generation;
    this.#control = control;
    const host = plansOf(handle, rank, numHere);
    this.#term = { generation, closed: undefined, room: host.arena?.room };
    this.#rank = new MpiRank({
      mpi,
      control: worldControlOf(parts),
      rank,
      worldSize,
      generation,
      timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
      strictWork: options.strictWork ?? false,
      capabilities: mpiCapabilities(mpi.library, MAX_MPI_RANKS, device?.at.device.info.name),
      at: device?.at,
      host,
      poller,
    });
    const all = Array.from({ length: worldSize }, (_, r) => r);
    this.world = this.#rank.communicator("world", all, this.#openWorld(all), mpi.comm);
    // Last: what is refused above is no world.
    mpi.numWorlds++;
  }

  /** The group of all ranks; on several hosts, those of this one have entered a group of theirs beside it. */
  #openWorld(all: readonly number[]): OpenedGroup {
    const { world } = this.#control;
    const { notices } = this.#rank.options.control;
    if (notices === undefined) return { control: world, spansHosts: false };
    return { control: notices.segment.group("world", all, 0, this.rank), spansHosts: true };
  }

  async group(name: string, ranks: readonly number[]): Promise<Communicator> {
    checkGroup(name, ranks, this.worldSize, this.rank);
    const member = ranks.indexOf(this.rank);
    const opened = this.#rank.options.control.group(name, ranks, this.#openings.next(name, ranks), member, "named");
    return this.#rank.communicator(name, ranks, opened).ready();
  }

  get lost(): string | undefined {
    return this.#device?.lost;
  }

  tensor<D extends DType>(dtype: D, shape: readonly number[]): Tensor<D> {
    if (this.#device !== undefined) return this.#device.tensor(dtype, shape);
    return worldTensor(this.#term, parseDType(dtype) as D, shape);
  }

  free(tensor: Tensor): void {
    if (this.#device !== undefined) {
      this.#device.free(tensor, () => {
        for (const { queue } of this.#rank.groups) queue.poll(performance.now());
      });
      return;
    }
    freeTensor(this.#term, tensor, (buffer) => {
      for (const { queue } of this.#rank.groups) {
        const use = queue.useOf(buffer);
        if (use !== undefined) return use;
      }
      return undefined;
    });
  }

  fail(rank: number, cause: string, blamed = rank): void {
    this.#rank.options.control.fail({ code: "RANK_FAILED", rank: blamed, generation: this.generation, cause });
  }

  get failure(): Failure | undefined {
    return this.#freed ? undefined : this.#rank.options.control.failure;
  }

  /** What ranks of several hosts did last, as this one knows it; on one host their launcher reads that. */
  get flight(): FlightDump | undefined {
    const { rank, worldSize, generation } = this;
    const segment = this.#rank.options.control.notices?.segment;
    return segment && dumpSegment(segment, { backend: "mpi", generation, worldSize }, (other) => other === rank);
  }

  capabilities(): Capabilities {
    return this.#rank.options.capabilities;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const failed = await closeEach(this.#rank.communicators.toReversed());
    this.#free("was closed");
    if (failed !== undefined) throw failed.error;
  }

  abandon(cause: Error): void {
    if (this.#freed) return;
    this.#closed = true;
    const error = cause instanceof ChoraleError ? cause : new AbortedError(cause.message);
    const first = this.#rank.groups.find(({ queue }) => queue.cause !== undefined)?.queue.cause;
    // Peers are to read what failed here first, and not that this rank has left because of it.
    if (first !== undefined) this.#rank.options.control.fail(failureOf(first));
    else this.fail(this.rank, error instanceof AbortedError ? error.reason : error.message);
    for (const { queue } of this.#rank.groups) queue.abandon(error);
    // The others may be waiting in MPI for ever.
    this.#rank.options.mpi.hasLost = true;
    this.#free(`ended: ${error.message}`);
  }

  #free(why: string): void {
    if (this.#freed) return;
    this.#freed = true;
    this.#term.closed = why;
    const { poller, options } = this.#rank;
    const { control } = options;
    poller.close();
    this.#rank.options.mpi.numWorlds--;
    // Of a dead rank MPI_Finalize would wait for ever.
    if (control.failure?.code === "RANK_FAILED") this.#rank.options.mpi.hasLost = true;
    control.close();
    this.#device?.close(options.mpi.broken);
    this.#control.close();
    options.host.arena?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
