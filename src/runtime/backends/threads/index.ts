/**
 * The threads backend: ranks as worker threads that share memory, with every collective, dtype and operator.
 * Refuses to be more than one process, and more than one WebAssembly memory of 4 GiB.
 * Start with threads-kind.ts (what the world sees), then threads-group.ts and group-engine.ts (a group's calls).
 */
export { attachShared, attachThreads } from "./backend.ts";
export { dumpFlight } from "./flight-ring.ts";
export type { AttachOptions, ThreadsHandle, ThreadsHostOptions } from "./handle.ts";
export { buryRank, createThreadsHost, failRank, failWorld, MAX_RANKS, releaseThreadsHost } from "./host.ts";
export { assembleProtocol, buildProtocol, protocolFile } from "./protocol.ts";
