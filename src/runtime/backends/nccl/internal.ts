/**
 * The nccl backend's second door, for `world/backend-table.ts`: what the launcher, the bench and the doctor need of it, and
 * the cuda backend, which stands on it. It loads neither CUDA nor NCCL.
 * Start reading at nccl-kind.ts.
 */
export type { Serving } from "./backend.ts";
export type { NcclCommunicator } from "./communicator.ts";
export type { ExtensionKernels } from "./extension-kernels.ts";
export { chosenBy, LOCAL_NETWORK } from "./interface-list.ts";
export type { NcclGroup } from "./nccl-group.ts";
export type { NcclHandle } from "./nccl-handle.ts";
export { attachRank, NCCL_KIND, type NcclOptions, ncclAttachOptions, prepareNcclJoin } from "./nccl-kind.ts";
