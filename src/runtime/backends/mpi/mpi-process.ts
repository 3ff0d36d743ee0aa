/**
 * MPI in this process: initialised once, by the first world, and finalised when the process ends well. MPI belongs to the
 * process and not to a thread; every call here is made on the thread that initialised it.
 */
import { availableParallelism } from "node:os";
import { isMainThread } from "node:worker_threads";
import { UnavailableError, UnsupportedError } from "../../../core/index.ts";
import { launchedBy, type MpiLibrary, requireMpi } from "../../../foreign/mpi/index.ts";
import type { HostActivity } from "../../hosts/index.ts";
import { emptyAddress, HostAddresses, napUntil, type Span } from "../../memory/index.ts";
import { RequestPool } from "./request-pool.ts";
import { StagingPool } from "./staging-pool.ts";

/** Tag of the messages by which a group is made; one group of a rank is made at a time. */
const GROUP_TAG = 20;
/** Tag of the messages of ranks that leave without MPI_Finalize. */
const LEAVE_TAG = 1;
/** Room for the largest message about calls (notice-messages.ts), which names a failure. */
export const MOST_NOTICE_BYTES = 256 * 1024;
/** How long the last words of a rank that leaves may take, ms. */
export const LAST_WORDS_MS = 2000;
/** For messages that say nothing but that they have come. */
const NO_ROOM: Span = { address: emptyAddress, bytes: new Uint8Array(0) };

export class MpiProcess {
  readonly library: MpiLibrary;
  readonly rank: number;
  readonly size: number;
  /** All processes, apart from what the program may do with MPI_COMM_WORLD itself. */
  readonly comm: number;
  /** For the end of all processes: a message on `comm` could be matched with a call that another process gave up. */
  readonly #endComm: number;
  readonly requests: RequestPool;
  readonly addresses = new HostAddresses();
  readonly staging = new StagingPool(this.addresses);
  /** Ranks outnumber cores: whoever looks in vain gives its core away. */
  crowded: boolean;
  /** What MPI may still write to or read from, since its calls can be given up but not taken back. */
  readonly abandoned: unknown[] = [];
  /** A rank is dead, as all of them have heard or will: MPI_Finalize would wait for it forever. */
  hasLost = false;
  /** Calls were given up here that MPI may still wait for. Others need not know of it: they may have failed before such a call. */
  gaveUp = false;
  /** Worlds of this process that have not ended. */
  numWorlds = 0;
  /** Worlds of several hosts that it has joined. */
  numJoined = 0;
  #noticeComm: number | undefined;
  /** Where MPI says whether a message has come. */
  readonly #flag = new Int32Array(new ArrayBuffer(4));
  readonly #flagAt = this.addresses.of(this.#flag);
  /** Ranks that have said that they leave without MPI_Finalize. */
  #numLeft = 0;
  /** Collectives under way that go on without MPI too: a thread that waits in one group goes on with those of the others. */
  readonly hostActivities = new Set<HostActivity>();

  constructor(library: MpiLibrary) {
    const { api, handles } = library;
    this.library = library;
    if (library.integer("MPI_Initialized", (out) => api.MPI_Initialized(out)) === 0) {
      library.integer("MPI_Init_thread", (out) => api.MPI_Init_thread(0, 0, library.abi.threadFunneled, out));
    }
    // Of the world too: what goes wrong before there is another communicator must not end the process.
    library.check("MPI_Comm_set_errhandler", api.MPI_Comm_set_errhandler(handles.commWorld, handles.errorsReturn));
    this.rank = library.integer("MPI_Comm_rank", (out) => api.MPI_Comm_rank(handles.commWorld, out));
    this.size = library.integer("MPI_Comm_size", (out) => api.MPI_Comm_size(handles.commWorld, out));
    refuseWrongLauncher(library, this.size);
    this.comm = this.#copyOf(handles.commWorld);
    this.#endComm = this.#copyOf(this.comm);
    this.requests = new RequestPool(library);
    this.crowded = this.size > availableParallelism();
    process.once("exit", (code) => this.#finalize(code));
  }

  /** Whether MPI_Finalize might never return, and what MPI holds cannot be freed. */
  get broken(): boolean {
    return this.hasLost || this.gaveUp;
  }

  /** For messages about calls, apart from what calls send: made by all processes together, when one of them asks first. */
  get noticeComm(): number {
    this.#noticeComm ??= this.#copyOf(this.comm);
    return this.#noticeComm;
  }

  /** A communicator of the same processes, whose errors are returned. */
  #copyOf(comm: number): number {
    const { api, handles } = this.library;
    const copy = this.library.handle("MPI_Comm_dup", (out) => api.MPI_Comm_dup(comm, out));
    this.library.check("MPI_Comm_set_errhandler", api.MPI_Comm_set_errhandler(copy, handles.errorsReturn));
    return copy;
  }

  /** Makes the communicator of `ranks`, in that order. All of them call it, and it blocks until they have. */
  createGroup(ranks: readonly number[]): number {
    const { api, handles } = this.library;
    const list = Int32Array.from(ranks);
    const all = this.library.handle("MPI_Comm_group", (out) => api.MPI_Comm_group(this.comm, out));
    const group = this.library.handle("MPI_Group_incl", (out) =>
      api.MPI_Group_incl(all, list.length, list.length === 0 ? emptyAddress : this.addresses.of(list), out),
    );
    try {
      const comm = this.library.handle("MPI_Comm_create_group", (out) =>
        api.MPI_Comm_create_group(this.comm, group, GROUP_TAG, out),
      );
      this.library.check("MPI_Comm_set_errhandler", api.MPI_Comm_set_errhandler(comm, handles.errorsReturn));
      return comm;
    } finally {
      for (const one of [group, all]) {
        this.library.withHandle("MPI_Group_free", one, (place) => api.MPI_Group_free(place));
      }
    }
  }

  freeGroup(comm: number): void {
    this.library.withHandle("MPI_Comm_free", comm, (place) => this.library.api.MPI_Comm_free(place));
  }

  /**
   * Receives what has come with a tag, from whomever, one message after another.
   * @param take hears of each that is in `room` now
   * @throws NativeError
   */
  receiveAll(tag: number, comm: number, { address, bytes }: Span, take?: () => void): void {
    const { api, abi, handles } = this.library;
    for (;;) {
      const probed = api.MPI_Iprobe(abi.anySource, tag, comm, this.#flagAt, abi.statusIgnore);
      this.library.check("MPI_Iprobe", probed);
      if (this.#flag[0] === 0) return;
      const from = [abi.anySource, tag, comm, abi.statusIgnore] as const;
      this.library.check("MPI_Recv", api.MPI_Recv(address, bytes.length, handles.byte, ...from));
      take?.();
    }
  }

  /** Waits for the others in MPI, as launchers want it, unless that might never return. */
  #finalize(code: number): void {
    if (this.library.integer("MPI_Finalized", (out) => this.library.api.MPI_Finalized(out)) !== 0) return;
    if (this.hasLost || this.numWorlds > 0 || (process.exitCode ?? code) !== 0) return;
    try {
      if (!this.gaveUp && this.#haveAllCome()) this.library.api.MPI_Finalize();
      else this.#leave();
    } catch {
      // Ranks are gone whose launcher says so. The exit code is this rank's own, and not that of MPI's errors over them.
    }
  }

  /**
   * Leaves without MPI_Finalize, in which others would wait for this rank: tells them, and waits a little until they leave too.
   * One that still moves data of a call which was given up here would crash over the memory of a process that is gone.
   */
  #leave(): void {
    const { api, handles } = this.library;
    const sending: number[] = [];
    for (let to = 0; to < this.size; to++) {
      if (to === this.rank) continue;
      const request = this.requests.take();
      if (api.MPI_Isend(emptyAddress, 0, handles.byte, to, LEAVE_TAG, this.#endComm, request) === 0)
        sending.push(request);
    }
    napUntil(() => {
      this.#hearLeavers();
      while (sending.length > 0 && this.requests.done(sending.at(-1) ?? 0)) sending.pop();
      return this.#numLeft >= this.size - 1 && sending.length === 0;
    }, LAST_WORDS_MS);
  }

  /**
   * Waits until all ranks are about to finalise MPI, and receives what others said as they left: MPICH's UCX complains on standard
   * output of what nobody received.
   * @returns whether they are; not where one leaves without
   */
  #haveAllCome(): boolean {
    const room = this.addresses.fresh(MOST_NOTICE_BYTES);
    const request = this.requests.take();
    if (this.library.api.MPI_Ibarrier(this.#endComm, request) !== 0) return false;
    let areAllHere = false;
    napUntil(() => {
      areAllHere = this.requests.done(request);
      const comm = this.#noticeComm;
      for (let tag = 1; comm !== undefined && tag <= this.numJoined; tag++) this.receiveAll(tag, comm, room);
      this.#hearLeavers();
      return areAllHere || this.#numLeft > 0;
    }, Number.POSITIVE_INFINITY);
    return areAllHere;
  }

  #hearLeavers(): void {
    this.receiveAll(LEAVE_TAG, this.#endComm, NO_ROOM, () => this.#numLeft++);
  }
}

/**
 * Finds out that ranks were started by another MPI's launcher: each is then the only one of a world of its own, and every
 * collective would be silently wrong.
 * @throws UnavailableError
 */
export function refuseWrongLauncher(
  library: Pick<MpiLibrary, "name" | "path" | "abi">,
  size: number,
  by = launchedBy(),
): void {
  if (by === undefined || by.size === size) return;
  const believe =
    size === 1
      ? `${by.size} processes started, each believes it is alone`
      : `${by.size} processes started (${by.variable}), but MPI counts ${size}`;
  const other = by.family === "MPICH" ? "libmpich.so.12" : "libmpi.so.40";
  const mend =
    by.family === undefined
      ? "Start it with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), as the library was built for: srun --mpi=list shows what there is."
      : `Start it with the mpirun that belongs to the library, or have the library of the launcher loaded: CHORALE_MPI_LIBRARY=${other}.`;
  throw new UnavailableError(
    "MPI among the processes that were started",
    `${believe}: started with ${by.launcher}, library is ${library.name} (${library.path})`,
    mend,
  );
}

let running: MpiProcess | undefined;

/**
 * Initialises MPI in this process, once.
 * @throws UnavailableError without a library, and when the launcher is another MPI's; UnsupportedError in a worker thread
 */
export function startMpi(): MpiProcess {
  if (running !== undefined) return running;
  if (!isMainThread) {
    throw new UnsupportedError(
      "MPI in a worker thread",
      "a rank of the mpi backend is a process: its main thread calls MPI",
    );
  }
  running = new MpiProcess(requireMpi());
  return running;
}
