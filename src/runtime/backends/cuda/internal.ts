/**
 * The cuda backend's second door, for `world/backend-table.ts`. It loads neither CUDA nor NCCL.
 * Start reading at cuda-kind.ts.
 */
export { CUDA_KIND } from "./cuda-kind.ts";
