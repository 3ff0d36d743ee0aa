/**
 * The cuda backend: NCCL, and our own kernels where a table of choices says that they are faster.
 * Refuses to be anything else: communicators, streams, graphs and failures are the nccl backend's.
 * Start reading at cuda-kind.ts; the kernels are executor/cuda's, and nccl/group-plans.ts runs them.
 */
export type { CudaOptions } from "./cuda-kind.ts";
