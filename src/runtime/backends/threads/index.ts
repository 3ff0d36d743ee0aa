export { attachThreads } from "./backend.ts";
export { dumpFlight } from "./flight-ring.ts";
export type { AttachOptions, ThreadsHandle, ThreadsHostOptions } from "./handle.ts";
export { buryRank, createThreadsHost, failRank, failWorld, MAX_RANKS, releaseThreadsHost } from "./host.ts";
