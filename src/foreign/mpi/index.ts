/**
 * MPI as a library: finding one, recognising its binary interface, its handles, its functions and its errors.
 * Knows nothing of the ranks' data or of when a call may be made, and never initialises MPI by itself.
 * Start with library.ts; abi.ts holds the handles of the three binary interfaces.
 */
export { MPI_ABIS, type MpiAbi, type MpiAbiName, type MpiDType, type MpiHandles, type MpiOpName } from "./abi.ts";
export { loadMpi, MpiLibrary, mpiLibraries, mpiLibrary, requireMpi } from "./library.ts";
export { type LaunchedBy, launchedBy } from "./started-by.ts";
