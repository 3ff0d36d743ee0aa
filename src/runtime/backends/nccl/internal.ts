/**
 * The nccl backend's second door, for `world/backend-table.ts`: what the launcher, the bench and the doctor need of it.
 * It loads neither CUDA nor NCCL.
 * Start reading at nccl-kind.ts.
 */
export { NCCL_KIND } from "./nccl-kind.ts";
