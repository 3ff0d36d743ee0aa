/**
 * One rank's door to NCCL. Ranks of one host, as threads or processes, share a control segment (see runtime/memory); data
 * moves through NCCL alone. A rank uses the visible CUDA device of its number by default.
 */
import {
  AbortedError,
  type ArrayOf,
  ChoraleError,
  ClosedError,
  type DType,
  InvalidArgumentError,
  type Tensor,
} from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import { type NcclLibrary, requireEngine, UNIQUE_ID_BYTES } from "../../../foreign/nccl/index.ts";
import {
  type Backend,
  type Capabilities,
  type Communicator,
  checkGroup,
  checkWorldRank,
  closeEach,
  DEFAULT_TIMEOUT_MS,
  type Failure,
  failureOf,
  GroupOpenings,
  optionsOf,
} from "../../comm/index.ts";
import { type CudaDevice, type CudaDeviceInfo, download, type RankDevice, upload } from "../../device/index.ts";
import { freeWorldTensor, type SegmentSource, worldDeviceTensor } from "../../device/internal.ts";
import type { Choices } from "../../executor/internal.ts";
import { enterControl, napUntil, type OpenControl } from "../../memory/index.ts";
import { openWorldDevice, type WorldDevice } from "../../progress/index.ts";
import { ncclCapabilities } from "./capabilities.ts";
import type { NcclCommunicator } from "./communicator.ts";
import { encodeConfig, type NcclConfig } from "./config.ts";
import { guardExit } from "./exit-guard.ts";
import type { RankPlaces } from "./meet-hosts.ts";
import type { NcclSettings } from "./nccl-context.ts";
import type { NcclHandle } from "./nccl-handle.ts";
import { checkNcclHandle } from "./nccl-handle.ts";
import { NcclRank } from "./nccl-rank.ts";
import { Registrations } from "./registrations.ts";

/** How long a rank that leaves a failed world waits for its peers to tell NCCL so, before it frees its memory, ms. */
const PEERS_END_MS = 1000;
const FAILED_RANK_MS = 20;
const PEERS_LOOK_MS = 0.5;
/** What barriers reduce. */
const BARRIER_BYTES = 4;

/** What a rank tells when it attaches; `launch` takes the same as `backendOptions`. */
export interface NcclAttachOptions {
  /** CUDA ordinal among the visible devices; the rank's number by default. */
  readonly device?: number;
  /** Among threads with `device`: the ordinals of all ranks, whose memory this one may read directly. */
  readonly peers?: readonly number[];
  /** Deadline of every wait; 60 s by default. */
  readonly timeoutMs?: number;
  /** Calls that nobody awaited or waited for make `close` throw; otherwise they are a warning. */
  readonly strictWork?: boolean;
  /** Most memory that the pool takes from the device, bytes; the whole device by default. */
  readonly memoryLimitBytes?: number;
  readonly config?: NcclConfig;
  /** False makes NCCL's host calls return before they are done; they are polled. Slower per call. */
  readonly blocking?: boolean;
  /**
   * Takes the pool's memory from NCCL (ncclMemAlloc) where it can, and registers it with every communicator. Needs NCCL
   * 2.19 and blocking communicators.
   */
  readonly registerBuffers?: boolean;
  /** An ncclUniqueId (128 bytes) that the program brings for the world's communicator; rank 0's counts. */
  readonly uniqueId?: Uint8Array;
  /** Times every call on its stream for the flight recorder; as CHORALE_FLIGHT_TIMINGS=1 by default. */
  readonly flightTimings?: boolean;
}

/** What a rank is beside NCCL. */
export interface Serving extends Pick<NcclSettings, "backend"> {
  /** How tables of choices name what the ranks run on. */
  readonly topologyOf?: (device: CudaDeviceInfo, interprocess: boolean) => string;
  /** Makes a group's choices, from what the rank's device is. Absent: NCCL serves every call. */
  readonly choicesOf:
    | ((
        place: Parameters<NonNullable<NcclSettings["choicesOf"]>>[0],
        device: CudaDeviceInfo,
        interprocess: boolean,
      ) => Choices)
    | undefined;
}

/**
 * Attaches this thread as `rank`.
 * Programs that start their ranks themselves call it, each rank in a thread or process of its own, with what
 * `createNcclHost` gave; others let `launch` do it. Work starts when all ranks have attached.
 * @throws UnavailableError when the driver or NCCL is missing, saying where each was looked for
 * @throws InvalidArgumentError when there is no device for this rank, or an option is not what it can be; nothing is held then
 * @example
 * import { attachNccl, createNcclHost, releaseNcclHost } from "chorale/nccl";
 *
 * const host = createNcclHost({ ranks: 1 }); // once; each rank is given it
 * const backend = attachNccl(host, 0, { timeoutMs: 5_000 });
 * const x = backend.tensor("f32", [3]);
 * backend.upload(x, Float32Array.of(1, 2, 3));
 * await backend.world.allReduce(x, { op: backend.world.preMulSum(2) });
 * console.log(backend.download(x)); // Float32Array(3) [2, 4, 6]
 * await backend.close();
 * releaseNcclHost(host);
 */
export function attachNccl(handle: NcclHandle, rank: number, options: NcclAttachOptions = {}): NcclBackend {
  checkAttach(handle, rank, optionsOf(options));
  return attachServing(handle, rank, options, { backend: "nccl", choicesOf: undefined });
}

/**
 * As `attachNccl`, where the handle, the rank and the options were checked before.
 * @param serving which calls plans serve, if they do
 * @param places where the ranks are, of several hosts
 */
export function attachServing(
  handle: NcclHandle,
  rank: number,
  options: NcclAttachOptions,
  serving: Serving,
  places?: RankPlaces,
): NcclBackend {
  const { library, driver } = requireEngine();
  const localRank = places?.localRank ?? rank;
  if (options.device === undefined) checkDevices(handle, rank, { numDevices: driver.numDevices, localRank });
  const config = encodeConfig(options.config ?? {}, library.versionCode, options.blocking ?? true);
  if (options.registerBuffers === true) checkRegistrations(library, options);
  const all = Array.from({ length: handle.ranks }, (_, peer) => peer);
  const control = enterControl(handle, rank, all, places?.remote);
  const { segment, jointTurn, ledger } = control;
  let opened: WorldDevice<Registrations> | undefined;
  try {
    const interprocess = !(handle.control instanceof SharedArrayBuffer);
    const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    opened = openWorldDevice(
      driver,
      { segment, timeoutMs },
      {
        ordinal: options.device ?? localRank,
        generation: handle.generation,
        ledger,
        limitBytes: options.memoryLimitBytes,
        interprocess,
        zeros: { sizeBytes: BARRIER_BYTES, what: "barrier" },
        peers: options.device === undefined ? all.slice(0, driver.numDevices) : options.peers,
        segments:
          options.registerBuffers === true
            ? (device) => ({
                listener: new Registrations(library, device, interprocess),
                ...sourceOf(library, device),
              })
            : undefined,
      },
    );
    const { listener: registrations, numReached } = opened;
    const { info } = opened.at.device;
    const { backend, choicesOf, topologyOf } = serving;
    const parts = { ...opened, segment, jointTurn };
    const ncclRank = new NcclRank(library, parts, {
      worldRank: rank,
      timeoutMs,
      strictWork: options.strictWork ?? false,
      capabilities: ncclCapabilities(library, info, registrations !== undefined, {
        backend,
        ...(topologyOf === undefined ? {} : { topology: topologyOf(info, interprocess) }),
        spansHosts: (places?.remote.length ?? 0) > 0,
      }),
      config,
      blocking: options.blocking ?? true,
      registrations,
      interprocess,
      flightTimings: options.flightTimings,
      backend,
      // Among processes, mapping a window fails where devices cannot reach each other.
      remote: new Set(places?.remote),
      reachesPeers: interprocess || handle.ranks === 1 || numReached >= handle.ranks - 1,
      choicesOf: choicesOf && ((place) => choicesOf(place, info, interprocess)),
    });
    const communicator = ncclRank.join("world", all, control.world, options.uniqueId);
    return new NcclBackend(handle, ncclRank, control, communicator);
  } catch (error) {
    opened?.at.device.close();
    control.withdraw();
    throw error;
  }
}

/** Checks that this rank finds a device of its number. @throws InvalidArgumentError */
function checkDevices(
  { ranks }: NcclHandle,
  rank: number,
  { numDevices, localRank }: { readonly numDevices: number; readonly localRank: number },
): void {
  if (localRank < numDevices) return;
  const [what, given] = localRank === rank ? ["ranks", ranks] : ["ranks of this host", localRank + 1];
  throw new InvalidArgumentError(
    what,
    given,
    `at most ${numDevices}, the visible CUDA devices: NCCL wants a device per rank`,
  );
}

/** Checks what a program hands over. @throws InvalidArgumentError */
function checkAttach(handle: NcclHandle, rank: number, options: NcclAttachOptions): void {
  checkNcclHandle(handle);
  checkWorldRank(rank, handle.ranks);
  const { peers, uniqueId, memoryLimitBytes, timeoutMs } = options;
  if (peers !== undefined && !(Array.isArray(peers) && peers.every((peer) => Number.isInteger(peer) && peer >= 0))) {
    throw new InvalidArgumentError("peers", peers, "the CUDA ordinals of all ranks, a list of integers of 0 or more");
  }
  const isId = uniqueId instanceof Uint8Array && uniqueId.length === UNIQUE_ID_BYTES;
  if (uniqueId !== undefined && !isId) {
    const given = uniqueId instanceof Uint8Array ? described(`${uniqueId.length} bytes`) : uniqueId;
    throw new InvalidArgumentError("uniqueId", given, `a Uint8Array of ${UNIQUE_ID_BYTES} bytes`);
  }
  if (memoryLimitBytes !== undefined && !(Number.isSafeInteger(memoryLimitBytes) && memoryLimitBytes > 0)) {
    throw new InvalidArgumentError("memoryLimitBytes", memoryLimitBytes, "a number of bytes above 0");
  }
  if (timeoutMs !== undefined && !(typeof timeoutMs === "number" && timeoutMs > 0)) {
    throw new InvalidArgumentError("timeoutMs", timeoutMs, "milliseconds above 0");
  }
}

function checkRegistrations(library: NcclLibrary, options: NcclAttachOptions): void {
  library.require("ncclCommRegister");
  library.require("ncclCommDeregister");
  if (options.blocking === false) {
    throw new InvalidArgumentError("registerBuffers", true, "false for non-blocking communicators");
  }
}

/** Memory of NCCL's own allocator, where the library has it. */
function sourceOf(library: NcclLibrary, device: CudaDevice): { readonly source?: SegmentSource } {
  const { ncclMemAlloc, ncclMemFree } = library.optional;
  if (ncclMemAlloc === undefined || ncclMemFree === undefined) return {};
  const allocate = (out: BigUint64Array, sizeBytes: number) => {
    device.activate();
    return ncclMemAlloc(out, sizeBytes) === 0;
  };
  return { source: { kind: "ncclMemory", allocate, free: (address) => void ncclMemFree(address) } };
}

/** One rank's door to NCCL: its communicators and its device's memory. `attachNccl` makes it. */
export class NcclBackend implements Backend {
  readonly name: string;
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly world: NcclCommunicator;
  /** This rank's device, streams and memory, for programs that run kernels of their own. */
  readonly device: RankDevice;
  readonly #rank: NcclRank;
  readonly #control: OpenControl;
  readonly #endWatch: () => void;
  readonly #releaseExit: () => void;
  readonly #openings = new GroupOpenings();
  #closed = false;
  #freed = false;

  constructor(handle: NcclHandle, rank: NcclRank, shared: OpenControl, world: NcclCommunicator) {
    this.name = rank.settings.backend;
    this.rank = rank.settings.worldRank;
    this.worldSize = handle.ranks;
    this.generation = handle.generation;
    this.#rank = rank;
    this.#control = shared;
    this.world = world;
    this.device = rank.at;
    // A rank that has nothing to do must end its part too when the world fails: others wait for that. It may have failed already.
    this.#endWatch = rank.segment.onFailure(() => rank.endings.worldFailed());
    this.#releaseExit = guardExit(() => !this.#freed);
  }

  get lost(): string | undefined {
    const { poison } = this.#rank.at.device;
    return poison && `${poison.operation} found ${poison.error.message}`;
  }

  /**
   * Opens the communicator of `ranks` (world ranks, in group order). Exactly its members call it, in the same order.
   * @throws InvalidArgumentError for an invalid name or invalid ranks, and when this rank is not among them; what ends the world
   */
  async group(name: string, ranks: readonly number[]): Promise<Communicator> {
    checkGroup(name, ranks, this.worldSize, this.rank);
    const member = ranks.indexOf(this.rank);
    const control = this.#rank.segment.group(name, ranks, this.#openings.next(name, ranks), member, "named");
    return this.#rank.join(name, ranks, control).ready();
  }

  /** Allocates a device tensor of zeros, for use by this rank. @throws OutOfMemoryError with the pool's state, InvalidArgumentError */
  tensor<D extends DType>(dtype: D, shape: readonly number[]): Tensor<D> {
    return worldDeviceTensor(this.#rank.at, dtype, shape);
  }

  /**
   * Gives a tensor's memory back, the whole of it also for a slice; whatever was put on a stream before may still use it.
   * @throws InvalidArgumentError for a tensor that this world did not allocate on this rank, or one in use by work that
   *   has not settled; ClosedError for one that was freed, and after the world's end
   */
  free(tensor: Tensor): void {
    freeWorldTensor(this.#rank.at, tensor, this.rank, () => {
      for (const communicator of this.#rank.endings.communicators) communicator.queue.look();
    });
  }

  /** Copies host values to a device tensor of as many elements on the main stream, and waits. @throws InvalidArgumentError, ClosedError */
  upload<D extends DType>(target: Tensor<D>, values: ArrayOf<D>): void {
    upload(target, values, this.#rank.at);
  }

  /** Copies a device tensor to the host on the main stream, and waits. Collectives that are pending are not waited for: see `orderBefore`. */
  download<D extends DType>(source: Tensor<D>): ArrayOf<D> {
    return download(source, this.#rank.at);
  }

  /** Says that `rank` is dead: on every survivor, pending and later work fails with RankFailedError. The first cause stays. */
  fail(rank: number, cause: string, blamed = rank): void {
    this.#rank.segment.fail({ code: "RANK_FAILED", rank: blamed, generation: this.generation, cause });
  }

  /** Why the world has failed, if it has: what the first rank to fail wrote. */
  get failure(): Failure | undefined {
    return this.#rank.segment.failure;
  }

  /** What this NCCL has on this device, from its version, its symbols and the device's architecture. */
  capabilities(): Capabilities {
    return this.#rank.settings.capabilities;
  }

  /** Waits for pending work, frees everything, and throws the failures that nobody looked at. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const failed = await closeEach([...this.#rank.endings.communicators].reverse());
    await this.#rank.endings.settle();
    this.#free(new ClosedError("world", "was closed"));
    if (failed !== undefined) throw failed.error;
  }

  /**
   * Gives up everything at once, without waiting for peers: pending work fails with `cause`, communicators are aborted,
   * and memory, streams, graphs and mappings are freed. Peers read that this rank has left (`RankFailedError`), unless the
   * world had failed before. Idempotent.
   */
  abandon(cause: Error): void {
    if (this.#freed) return;
    this.#closed = true;
    const error = cause instanceof ChoraleError ? cause : new AbortedError(cause.message);
    // No peer may start a call any more whose other half is about to disappear.
    // Peers that have not met this rank's failure yet should read its cause, not merely that this rank has left.
    // The program has dealt with failures of other groups, which are not why this rank leaves.
    const { cause: failed } = this.world.parts.queue;
    const isOfGroup = this.#rank.endings.communicators.some(({ queue }) => queue.cause === error);
    const first = failed ?? (isOfGroup ? error : undefined);
    const { poison } = this.#rank.at.device;
    if (first !== undefined && poison === undefined) this.#rank.segment.fail(failureOf(first));
    else this.fail(this.rank, error instanceof AbortedError ? error.reason : error.message);
    this.#rank.endings.abandon(error);
    this.#free(error);
  }

  /**
   * Waits, for a while, until the other ranks of this process have told NCCL to end: until then their kernels may read
   * the memory of this one, which is theirs to read among threads.
   */
  #untilPeersEnded(): void {
    const { segment, settings, at } = this.#rank;
    if (settings.interprocess || at.device.poison !== undefined) return;
    const failed = segment.failure?.code === "RANK_FAILED" ? segment.failure.rank : undefined;
    const start = performance.now();
    const haveEnded = () => {
      const peers = segment.presence.of(process.pid);
      // The failed rank may still be telling NCCL, or be dead; kernels of ranks that are gone may still end.
      const areLost = peers.every((rank) => rank === failed || segment.presence.isGone(rank));
      return peers.length === 0 || (areLost && performance.now() - start > FAILED_RANK_MS);
    };
    napUntil(haveEnded, PEERS_END_MS, { napMs: PEERS_LOOK_MS });
  }

  #free(cause: ChoraleError): void {
    if (this.#freed) return;
    this.#freed = true;
    const { at, peers, poller, segment, waiting } = this.#rank;
    this.#endWatch();
    poller.close();
    waiting.close(cause);
    segment.presence.end(this.rank);
    // A world that ended well has nothing on any device.
    if (segment.failed) this.#untilPeersEnded();
    for (const free of [
      () => peers.close(),
      () => at.pinned.close(),
      () => at.device.closeAll(),
      () => at.pool.close(),
    ]) {
      try {
        free();
      } catch {
        // A context that is lost: nothing of it can be given back one by one.
      }
    }
    at.device.close();
    this.#releaseExit();
    this.#control.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
