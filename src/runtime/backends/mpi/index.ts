/**
 * Collectives through MPI, whichever library the cluster has: Open MPI, MPICH and its relatives, or the MPI-5 standard ABI.
 * Refuses worker threads, since MPI belongs to the process, and starts no ranks: MPI's own launcher does.
 * Start with backend.ts, then mpi-group.ts and mpi-queue.ts; reduce-calls.ts says what MPI reduces and what our kernels do.
 */
export { attachMpi, MpiBackend, type MpiOptions } from "./backend.ts";
export type { MpiHandle } from "./mpi-handle.ts";
