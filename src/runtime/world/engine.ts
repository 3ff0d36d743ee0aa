/** The backends that a world can stand on, and how each gives its ranks a door. */
import { InvalidArgumentError } from "../../core/index.ts";
import {
  type AttachOptions,
  attachThreads,
  createThreadsHost,
  dumpFlight,
  failRank,
  type ThreadsHandle,
  type ThreadsHostOptions,
} from "../backends/threads/index.ts";
import type { Backend, FlightDump } from "../comm/index.ts";

/** Backends whose ranks `launch()` can start. */
export const LAUNCH_BACKENDS = ["threads"] as const;
export type BackendName = (typeof LAUNCH_BACKENDS)[number];

/** Reads a backend's name. @throws InvalidArgumentError naming the backends */
export function parseBackend(text: string, argument = "backend"): BackendName {
  const name = LAUNCH_BACKENDS.find((known) => known === text);
  if (name === undefined) throw new InvalidArgumentError(argument, text, `one of ${LAUNCH_BACKENDS.join(", ")}`);
  return name;
}

/** What a backend is told about its memory and its waiting. */
export type BackendOptions = Omit<ThreadsHostOptions, "ranks" | "generation"> & AttachOptions;

/** What a rank needs to attach; travels to its worker. */
export interface EngineHandle {
  readonly backend: BackendName;
  readonly threads: ThreadsHandle;
  readonly options: AttachOptions;
}

/** Makes the launcher's side of a world. @throws OutOfMemoryError, InvalidArgumentError as the backend says */
export function createEngine(
  backend: BackendName,
  ranks: number,
  generation: number,
  options: BackendOptions = {},
): EngineHandle {
  return { backend, threads: createThreadsHost({ ...options, ranks, generation }), options };
}

/** Attaches this thread as one rank. */
export function attach(handle: EngineHandle, rank: number): Backend {
  return attachThreads(handle.threads, rank, handle.options);
}

/** Says, from the launcher's thread, that a rank is dead. Idempotent: the first cause stays. */
export function failEngine(handle: EngineHandle, rank: number, cause: string): void {
  failRank(handle.threads, rank, cause);
}

/** Reads what every rank did last, the dead and the stuck included. */
export function readFlight(handle: EngineHandle): FlightDump {
  return dumpFlight(handle.threads);
}
