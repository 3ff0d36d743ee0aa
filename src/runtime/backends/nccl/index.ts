/**
 * The nccl backend: collectives on NVIDIA GPUs through NCCL, for ranks as threads or as processes of one host.
 * Refuses host work that NCCL cannot do, with an explanation, and loads no library before a world asks for it.
 * Start with nccl-kind.ts (what the world sees), then nccl-group.ts and queue.ts (a group's calls).
 */
export {
  loadNccl,
  NCCL_OPTIONAL,
  type NcclLibrary,
  ncclLibrary,
  OLDEST_NCCL,
  requireNccl,
} from "../../../foreign/nccl/index.ts";
export {
  attachNccl,
  type NcclAttachOptions,
  NcclBackend,
} from "./backend.ts";
export { NcclCommunicator } from "./communicator.ts";
export type { NcclConfig } from "./config.ts";
export type { NcclHandle } from "./nccl-handle.ts";
export {
  buryNcclRank,
  checkNcclRanks,
  createNcclHost,
  dumpNcclFlight,
  failNcclRank,
  MAX_NCCL_RANKS,
  ncclFailure,
  openNcclControl,
  releaseNcclHost,
} from "./nccl-host.ts";
export type { NcclOptions } from "./nccl-kind.ts";
export { type Reaped, reapNccl } from "./reap.ts";
