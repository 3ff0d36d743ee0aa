/** What the world takes of the mpi backend: its kind, which loads no library. */
export { MPI_KIND } from "./mpi-kind.ts";
