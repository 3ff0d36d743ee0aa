/** The option by which a launch pretends that its ranks are on several hosts. */
import { MAX_MPI_RANKS } from "./mpi-handle.ts";

/** What is wrong with a list of hosts, in words. */
export function hostsProblem(value: unknown): string | undefined {
  const isList =
    Array.isArray(value) &&
    value.length > 0 &&
    value.length <= MAX_MPI_RANKS &&
    value.every((host) => Number.isSafeInteger(host) && host >= 0);
  return isList ? undefined : `1 to ${MAX_MPI_RANKS} integers from 0, the number of each rank's host`;
}
