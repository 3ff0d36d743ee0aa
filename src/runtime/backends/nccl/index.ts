export * from "./backend.ts";
export { NcclCommunicator } from "./communicator.ts";
export type { NcclConfig } from "./config.ts";
export { loadNccl, type NcclLibrary, ncclLibrary, OLDEST_NCCL, requireNccl } from "./library.ts";
export type { NcclHandle } from "./nccl-handle.ts";
export * from "./nccl-host.ts";
export type { NcclOptions } from "./nccl-kind.ts";
export { type Reaped, reapNccl } from "./reap.ts";
export { NCCL_OPTIONAL } from "./symbols.ts";
