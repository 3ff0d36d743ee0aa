/**
 * The threads backend's second door, for `world/backend-table.ts` and the shm backend, whose ranks are processes: what the
 * launcher, the bench and the doctor need of it. It does not load what only ranks run.
 * Start reading at threads-kind.ts.
 */
export { dumpFlight } from "./flight-ring.ts";
export type { AttachOptions, ThreadsHostOptions } from "./handle.ts";
export { beginWorld, buryRank, checkHost, failRank, failWorld, MAX_RANKS } from "./host.ts";
export { LINE, MAGIC, WORLD } from "./layout.ts";
export { noteEnded } from "./memory-pressure.ts";
export type { Growth, SharedWorld, WordWaiting } from "./shared-world.ts";
export { THREADS_KIND, type ThreadsOptions } from "./threads-kind.ts";
