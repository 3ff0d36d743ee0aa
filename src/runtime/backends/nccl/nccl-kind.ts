/** The nccl backend as the world knows it: ranks are threads or processes of one host, or processes of several, each with a GPU of its own. */
import { FormatError, InvalidArgumentError, UnavailableError } from "../../../core/index.ts";
import { CUDA_LIBRARY, nvrtcLibrary, requireCudaDriver } from "../../../foreign/cuda/index.ts";
import { ncclLibrary, requireNccl, UNIQUE_ID_BYTES } from "../../../foreign/nccl/index.ts";
import {
  type BackendKind,
  type Bootstrap,
  DEFAULT_TIMEOUT_MS,
  isDuration,
  isFlag,
  isIntegerFrom,
  type JoiningRank,
} from "../../comm/index.ts";
import type { NcclAttachOptions, Serving } from "./backend.ts";
import { checkNcclConfig } from "./config.ts";
import type { RankPlaces } from "./meet-hosts.ts";
import type { NcclHandle } from "./nccl-handle.ts";
import {
  adoptNcclHost,
  buryNcclRank,
  createNcclHost,
  createNcclHostOfSeveral,
  dumpNcclFlight,
  failNcclRank,
  MAX_NCCL_RANKS,
  mirrorNcclHost,
  publishNcclHost,
  releaseNcclHost,
} from "./nccl-host.ts";

/** Options of the nccl backend: those of `NcclAttachOptions`, but devices are named for all ranks. */
export interface NcclOptions extends Omit<NcclAttachOptions, "device" | "peers"> {
  /** CUDA ordinal of each rank, among the visible devices; its own number by default. At least one for each rank. */
  readonly devices?: readonly number[];
}

/** NCCL serves every call. */
const NCCL_ALONE: Serving = { backend: "nccl", choicesOf: undefined };

const isOrdinal = isIntegerFrom(0);

export const NCCL_KIND: BackendKind<NcclHandle, NcclOptions> = {
  name: "nccl",
  options: {
    devices: (value, ranks) => {
      const areDistinct = Array.isArray(value) && new Set(value).size === value.length;
      if (!areDistinct || value.some((one) => isOrdinal(one, ranks) !== undefined)) {
        return "distinct CUDA ordinals, one for each rank";
      }
      return value.length < ranks ? `at least ${ranks} devices, one for each rank` : undefined;
    },
    timeoutMs: isDuration,
    strictWork: isFlag,
    memoryLimitBytes: isIntegerFrom(1),
    config: (value) => {
      if (typeof value !== "object" || value === null) return "an object of NCCL's configuration";
      checkNcclConfig(value);
      return undefined;
    },
    blocking: isFlag,
    registerBuffers: isFlag,
    uniqueId: (value) =>
      value instanceof Uint8Array && value.length === UNIQUE_ID_BYTES
        ? undefined
        : `a Uint8Array of ${UNIQUE_ID_BYTES} bytes, an ncclUniqueId`,
    flightTimings: isFlag,
  },
  isolations: ["thread", "process"],
  maxRanks: MAX_NCCL_RANKS,
  usesDevices: true,
  deviceFamily: "nvidia-gpu",
  async availableRanks() {
    const { numDevices } = requireCudaDriver();
    requireNccl();
    if (numDevices > 0) return numDevices;
    const isMasked = process.env["CUDA_VISIBLE_DEVICES"] !== undefined;
    const how = isMasked ? "Unset CUDA_VISIBLE_DEVICES." : "Run it where nvidia-smi lists a GPU.";
    throw new UnavailableError("NCCL", "the CUDA driver shows no device", `${how} chorale doctor says more.`);
  },
  createHost: ({ ranks, generation, isolation, worldSecret }) =>
    worldSecret === undefined
      ? createNcclHost({ ranks, generation, interprocess: isolation === "process" })
      : createNcclHostOfSeveral({ ranks, generation }),
  releaseHost: releaseNcclHost,
  attach: async (host, rank, options, bootstrap) => {
    const places = host.hostId === undefined ? undefined : await placesOf(host.hostId, options, bootstrap);
    return attachRank(host, rank, options, NCCL_ALONE, places);
  },
  // NCCL's groups end together: a dead rank is the end of all.
  fail: (host, rank, cause, _everybody, blamed = rank) => failNcclRank(host, blamed, cause),
  bury: buryNcclRank,
  reap: async (host, rank, killed) => void (await import("./reap.ts")).reapNccl(host, rank, killed),
  readFlight: dumpNcclFlight,
  async libraries() {
    return [{ ...CUDA_LIBRARY, name: "CUDA driver" }, ncclLibrary(), nvrtcLibrary()];
  },
  acrossHosts: {
    publish: publishNcclHost,
    adopt: adoptNcclHost,
    // NCCL chooses its own interfaces.
    optionsAt: (options) => options,
    mirror: mirrorNcclHost,
  },
  prepareJoin: (localRank, launcher) => prepareNcclJoin(localRank, launcher, () => NCCL_ALONE),
};

/** Where the ranks of a world of several hosts are. */
async function placesOf(hostId: string, options: NcclOptions, bootstrap: Bootstrap): Promise<RankPlaces> {
  const { checkAcrossHosts, meetHosts } = await import("./meet-hosts.ts");
  checkAcrossHosts(options);
  return meetHosts(hostId, bootstrap, options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
}

/** Finds the engine and the device of a process of another launcher: see `BackendKind.prepareJoin`. */
export async function prepareNcclJoin(
  localRank: number,
  launcher: string,
  servingOf: (host: NcclHandle) => Serving,
): Promise<JoiningRank> {
  const { deviceInfo } = await import("../../device/internal.ts");
  const driver = requireCudaDriver();
  const device = ordinalOf(localRank, launcher, driver.numDevices);
  return {
    engine: `NCCL ${requireNccl().version}`,
    device: deviceInfo(driver, device).uuid,
    howToChoose: "CUDA_VISIBLE_DEVICES of each rank, or its local rank, chooses it",
    attach: async (published, rank, timeoutMs) => {
      const host = checkPublished(published);
      const { attachServing } = await import("./backend.ts");
      return attachServing(host, rank, { device, timeoutMs }, servingOf(host));
    },
  };
}

/** Attaches a rank that the launcher started, also one some of whose calls plans serve. @param places of several hosts */
export async function attachRank(
  host: NcclHandle,
  rank: number,
  options: NcclOptions,
  serving: Serving,
  places?: RankPlaces,
) {
  const { attachServing } = await import("./backend.ts");
  const own = ncclAttachOptions(options, places?.localRank ?? rank, host.generation);
  return attachServing(host, rank, own, serving, places);
}

/** The options of one rank. A unique id serves once: later generations draw their own. @param localRank its number on its host */
export function ncclAttachOptions(
  { devices, uniqueId, ...rest }: NcclOptions,
  localRank: number,
  generation: number,
): NcclAttachOptions {
  const device = devices?.[localRank];
  return {
    ...rest,
    ...(device === undefined ? {} : { device, peers: devices ?? [] }),
    ...(uniqueId === undefined || generation > 1 ? {} : { uniqueId }),
  };
}

/** The device of a rank: that of its number on this host, or the only one where the launcher masks the others. */
function ordinalOf(localRank: number, launcher: string, numDevices: number): number {
  if (localRank < numDevices) return localRank;
  if (numDevices === 1) return 0;
  throw new InvalidArgumentError(
    `local rank (of ${launcher})`,
    localRank,
    numDevices === 0
      ? "a visible CUDA device (CUDA_VISIBLE_DEVICES may mask all of them)"
      : `0 to ${numDevices - 1}, the visible CUDA devices: NCCL wants a device per rank`,
  );
}

/** Reads the handle that rank 0 published. @throws FormatError */
function checkPublished(host: unknown): NcclHandle {
  const { kind, control } = (host ?? {}) as Partial<NcclHandle>;
  if (kind !== "nccl" || control instanceof SharedArrayBuffer || typeof control?.path !== "string") {
    throw new FormatError("the control segment's name", "cannot be read");
  }
  return host as NcclHandle;
}
