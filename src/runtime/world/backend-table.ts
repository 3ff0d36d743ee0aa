/**
 * The backends whose ranks can be started, one line each. Adding one touches this line and the backend's own folder.
 * A kind is loaded when it is first used: a rank loads its own backend only, and `chorale --help` none.
 */

import { parseSize } from "../../core/index.ts";
import { assignments, oneOf } from "../../core/internal.ts";
import type { BackendKind } from "../comm/index.ts";

const TABLE = {
  threads: async () => (await import("../backends/threads/internal.ts")).THREADS_KIND,
  shm: async () => (await import("../backends/shm/internal.ts")).SHM_KIND,
  tcp: async () => (await import("../backends/tcp/internal.ts")).TCP_KIND,
  nccl: async () => (await import("../backends/nccl/internal.ts")).NCCL_KIND,
  mpi: async () => (await import("../backends/mpi/internal.ts")).MPI_KIND,
  cuda: async () => (await import("../backends/cuda/internal.ts")).CUDA_KIND,
};

export type BackendName = keyof typeof TABLE;
/** The options of each backend, by its name. */
export type BackendOptionsOf = {
  readonly [B in BackendName]: Awaited<ReturnType<(typeof TABLE)[B]>> extends BackendKind<infer _, infer O> ? O : never;
};
export type BackendOptions = BackendOptionsOf[BackendName];

/** Backends whose ranks `launch()` can start. */
export const LAUNCH_BACKENDS = Object.freeze(Object.keys(TABLE)) as readonly BackendName[];
/** What a world stands on by default: it needs nothing but Node. */
export const DEFAULT_BACKEND: BackendName = "threads";

/** Loads what the world knows of a backend. @throws InvalidArgumentError naming the backends */
export async function backendKind(name: BackendName): Promise<BackendKind> {
  return TABLE[parseBackend(name)]();
}

/** Reads a backend's name. @throws InvalidArgumentError naming the backends */
export function parseBackend(text: string, argument = "backend"): BackendName {
  return oneOf(text, argument, LAUNCH_BACKENDS);
}

/**
 * Reads `key=value` words of a command line: values are JSON, or text where they are not, and sizes such as `64M` for keys
 * that end in `Bytes`. `launch()` checks them.
 * @throws InvalidArgumentError for a word of another form, or a key that was given before
 * @example
 * console.log(parseBackendOptions(["devices=[0,2]", "registerBuffers=true"])); // { devices: [0, 2], registerBuffers: true }
 */
export function parseBackendOptions(words: readonly string[], argument = "--backend-option"): BackendOptions {
  const entries = [...assignments(words, argument, "KEY=VALUE, such as devices=[0,2]")].map(([name, text]) => [
    name,
    name.endsWith("Bytes") ? parseSize(text, `${argument} ${name}`) : jsonOrText(text),
  ]);
  return Object.fromEntries(entries) as BackendOptions;
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
