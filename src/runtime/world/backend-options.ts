/** What each backend of a world can be told, typed per backend and checked before anything starts. */
import { InvalidArgumentError } from "../../core/index.ts";
import type { NcclAttachOptions } from "../backends/nccl/backend.ts";
import { checkNcclConfig } from "../backends/nccl/config.ts";
import type { AttachOptions, ThreadsHostOptions } from "../backends/threads/index.ts";

/** Backends whose ranks `launch()` can start. */
export const LAUNCH_BACKENDS = ["threads", "nccl"] as const;
export type BackendName = (typeof LAUNCH_BACKENDS)[number];

/** Memory, deadline and cores of the threads backend. */
export type ThreadsOptions = Pick<ThreadsHostOptions, "memoryLimitBytes"> & AttachOptions;

/** What the nccl backend is told: `NcclAttachOptions`, but devices are named for all ranks. */
export interface NcclOptions extends Omit<NcclAttachOptions, "device" | "peers"> {
  /** CUDA ordinal of each rank, among the visible devices; its own number unless told. At least one for each rank. */
  readonly devices?: readonly number[];
}

/** The options of each backend. */
export interface BackendOptionsOf {
  readonly threads: ThreadsOptions;
  readonly nccl: NcclOptions;
}
export type BackendOptions = BackendOptionsOf[BackendName];

type Check = (value: unknown) => string | undefined;

const flag: Check = (value) => (typeof value === "boolean" ? undefined : "true or false");
const whole =
  (least: number): Check =>
  (value) =>
    Number.isSafeInteger(value) && (value as number) >= least ? undefined : `an integer of ${least} or more`;
const positive: Check = (value) =>
  typeof value === "number" && value > 0 ? undefined : "a number of milliseconds above 0";

const THREADS: { readonly [K in keyof Required<ThreadsOptions>]: Check } = {
  memoryLimitBytes: whole(1),
  timeoutMs: positive,
  cores: whole(1),
};
const NCCL: { readonly [K in keyof Required<NcclOptions>]: Check } = {
  devices: (value) =>
    Array.isArray(value) && value.every((one) => whole(0)(one) === undefined) && new Set(value).size === value.length
      ? undefined
      : "distinct CUDA ordinals, one for each rank",
  timeoutMs: positive,
  memoryLimitBytes: whole(1),
  config: (value) => (typeof value === "object" && value !== null ? undefined : "an object of NCCL's configuration"),
  blocking: flag,
  registerBuffers: flag,
  uniqueId: (value) =>
    value instanceof Uint8Array && value.length === 128 ? undefined : "a Uint8Array of 128 bytes, an ncclUniqueId",
  flightTimings: flag,
};
const KNOWN: { readonly [B in BackendName]: Readonly<Record<string, Check>> } = { threads: THREADS, nccl: NCCL };

/** Reads a backend's name. @throws InvalidArgumentError naming the backends */
export function parseBackend(text: string, argument = "backend"): BackendName {
  const name = LAUNCH_BACKENDS.find((known) => known === text);
  if (name === undefined) throw new InvalidArgumentError(argument, text, `one of ${LAUNCH_BACKENDS.join(", ")}`);
  return name;
}

/** Checks a backend's options. @throws InvalidArgumentError for a key that it does not know, or a wrong value */
export function checkBackendOptions(backend: BackendName, options: BackendOptions, ranks: number): void {
  const known = KNOWN[backend];
  for (const [key, value] of Object.entries(options)) {
    const check = Object.hasOwn(known, key) ? known[key] : undefined;
    if (check === undefined) {
      throw new InvalidArgumentError(
        "backendOptions",
        key,
        `one of ${Object.keys(known).join(", ")}, which the ${backend} backend knows`,
      );
    }
    const wanted = value === undefined ? undefined : check(value);
    if (wanted !== undefined) throw new InvalidArgumentError(`backendOptions.${key}`, value, wanted);
  }
  const { devices, config } = options as NcclOptions;
  if (config !== undefined) checkNcclConfig(config);
  if (devices !== undefined && devices.length < ranks) {
    throw new InvalidArgumentError("backendOptions.devices", devices, `at least ${ranks} devices, one for each rank`);
  }
}

/**
 * Reads `key=value` words of a command line: values are JSON, or text where they are none. `launch()` checks them.
 * @throws InvalidArgumentError for a word of another form
 * @example
 * console.log(parseBackendOptions(["devices=[0,2]", "registerBuffers=true"])); // { devices: [0, 2], registerBuffers: true }
 */
export function parseBackendOptions(words: readonly string[], argument = "--backend-option"): BackendOptions {
  const entries = words.map((word) => {
    const at = word.indexOf("=");
    if (at < 1) throw new InvalidArgumentError(argument, word, "KEY=VALUE, such as devices=[0,2]");
    return [word.slice(0, at), jsonOrText(word.slice(at + 1))] as const;
  });
  return Object.fromEntries(entries) as BackendOptions;
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** What one rank of the nccl backend is told. A unique id serves once: later generations draw theirs. */
export function ncclAttachOptions(
  { devices, uniqueId, ...rest }: NcclOptions,
  rank: number,
  generation: number,
): NcclAttachOptions {
  const device = devices?.[rank];
  return {
    ...rest,
    ...(device === undefined ? {} : { device, peers: devices ?? [] }),
    ...(uniqueId === undefined || generation > 1 ? {} : { uniqueId }),
  };
}
