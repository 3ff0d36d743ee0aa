/**
 * MPI as a library: finding one, recognising its binary interface, its handles, its functions and its errors.
 * Knows nothing of the ranks' data or of when a call may be made, and never initialises MPI by itself.
 * Start with library.ts; abi.ts holds the handles of the three binary interfaces.
 */
export { MPI_ABIS, type MpiAbiName, type MpiDType, type MpiHandles, type MpiOpName } from "./abi.ts";
export { describeMpi, MpiLibrary, mpiLibraries, requireMpi } from "./library.ts";
export { launchedBy } from "./started-by.ts";
export type { UlfmState } from "./ulfm.ts";
