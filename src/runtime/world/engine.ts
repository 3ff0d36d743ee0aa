/** The backends that a world can stand on, and how each gives its ranks a door. */
import { InvalidArgumentError } from "../../core/index.ts";
import {
  buryNcclRank,
  checkNcclRanks,
  createNcclHost,
  dumpNcclFlight,
  failNcclRank,
  type NcclHandle,
  releaseNcclHost,
} from "../backends/nccl/nccl-host.ts";
import {
  attachThreads,
  buryRank,
  createThreadsHost,
  dumpFlight,
  failRank,
  failWorld,
  releaseThreadsHost,
  type ThreadsHandle,
} from "../backends/threads/index.ts";
import type { Backend, FlightDump } from "../comm/index.ts";
import {
  type BackendName,
  type BackendOptions,
  checkBackendOptions,
  type NcclOptions,
  ncclAttachOptions,
  type ThreadsOptions,
} from "./backend-options.ts";
import type { Isolation } from "./rank-host.ts";

export { type BackendName, type BackendOptions, LAUNCH_BACKENDS, parseBackend } from "./backend-options.ts";

/** What a rank needs to attach; travels to its worker. */
export interface EngineHandle {
  readonly backend: BackendName;
  readonly host: ThreadsHandle | NcclHandle;
  readonly options: BackendOptions;
}

/** Checks that the backend's ranks can be isolated so. @throws InvalidArgumentError */
export function checkIsolation(backend: BackendName, isolation: Isolation): void {
  if (backend === "threads" && isolation === "process") {
    throw new InvalidArgumentError(
      "isolation",
      isolation,
      '"thread" with the threads backend, whose ranks share the memory of one process; the nccl backend takes both',
    );
  }
}

/** Checks that the backend can have so many ranks; `launch()` has checked what holds for all. @throws InvalidArgumentError */
export function checkRanks(backend: BackendName, ranks: number): void {
  if (backend === "nccl") checkNcclRanks(ranks);
}

/**
 * Makes the launcher's side of a world, or of its next generation. `releaseEngine` takes it down.
 * @throws OutOfMemoryError, InvalidArgumentError as the backend says; of processes UnavailableError without FFI
 */
export function createEngine(
  backend: BackendName,
  ranks: number,
  generation: number,
  options: BackendOptions = {},
  isolation: Isolation = "thread",
): EngineHandle {
  checkIsolation(backend, isolation);
  checkBackendOptions(backend, options, ranks);
  const host =
    backend === "threads"
      ? createThreadsHost({ ...(options as ThreadsOptions), ranks, generation })
      : createNcclHost({ ranks, generation, interprocess: isolation === "process" });
  return { backend, host, options };
}

/** Takes down what `createEngine` made, once no rank of it is left. Idempotent. */
export function releaseEngine({ host }: EngineHandle): void {
  if (host.kind === "nccl") releaseNcclHost(host);
  else releaseThreadsHost(host);
}

/** Attaches this thread as one rank. @throws UnavailableError when the backend's engine is not on this machine */
export async function attach({ host, options }: EngineHandle, rank: number): Promise<Backend> {
  if (host.kind === "threads") return attachThreads(host, rank, options as ThreadsOptions);
  // Loaded only where it is used: worlds of threads need neither CUDA nor FFI.
  const { attachNccl } = await import("../backends/nccl/backend.ts");
  return attachNccl(host, rank, ncclAttachOptions(options as NcclOptions, rank, host.generation));
}

/** Says, from the launcher's thread, that a rank is dead. Idempotent: the first cause stays. */
export function failEngine({ host }: EngineHandle, rank: number, cause: string): void {
  if (host.kind === "threads") failRank(host, rank, cause);
  else failNcclRank(host, rank, cause);
}

/** Takes from a rank whose thread has ended what it may have held of the ranks' common memory, its presence included. */
export function buryInEngine({ host }: EngineHandle, rank: number): void {
  if (host.kind === "threads") buryRank(host, rank);
  else buryNcclRank(host, rank);
}

/** As `failEngine`, but for every group: the generation is over, also for ranks that talk only among themselves. */
export function failGeneration({ host }: EngineHandle, rank: number, cause: string): void {
  if (host.kind === "threads") failWorld(host, rank, cause);
  else failNcclRank(host, rank, cause);
}

/**
 * Frees what a killed thread held in the engine's libraries, from any thread of the process, once the survivors have
 * abandoned their part. Idempotent.
 */
export async function reapEngine({ host }: EngineHandle, rank: number): Promise<void> {
  if (host.kind === "threads" || host.ledger === undefined) return;
  const { reapNccl } = await import("../backends/nccl/reap.ts");
  reapNccl(host, rank);
}

/** Reads what every rank did last, the dead and the stuck included. */
export function readFlight({ host }: EngineHandle): FlightDump {
  return host.kind === "threads" ? dumpFlight(host) : dumpNcclFlight(host);
}
