/** The shm backend as the world knows it: ranks are processes of one host, which share mapped memory. */
import { hostname } from "node:os";
import type { BackendKind } from "../../comm/index.ts";
import { MAX_RANKS, THREADS_KIND } from "../threads/internal.ts";
import { checkPublished, type ShmHandle, type ShmOptions } from "./shm-handle.ts";
import { buryShmRank, createShmHost, failShmRank, readShmFlight, releaseShmHost } from "./shm-host.ts";

export const SHM_KIND: BackendKind<ShmHandle, ShmOptions> = {
  name: "shm",
  options: THREADS_KIND.options,
  isolations: ["process"],
  isolationReason: "its ranks are processes; as threads they are the threads backend's",
  servesPlans: true,
  maxRanks: MAX_RANKS,
  usesDevices: false,
  availableRanks: () => MAX_RANKS,
  createHost: createShmHost,
  releaseHost: releaseShmHost,
  attach: async (host, rank, options) => (await import("./backend.ts")).attachShm(host, rank, options),
  fail: failShmRank,
  bury: buryShmRank,
  readFlight: readShmFlight,
  libraries: async () => [],
  prepareJoin: async () => ({
    engine: "shm",
    device: `process ${process.pid} of ${hostname()}`,
    howToChoose: "start each rank in a process of its own",
    attach: async (published, rank, timeoutMs) =>
      (await import("./backend.ts")).attachShm(checkPublished(published), rank, { timeoutMs }),
  }),
};
