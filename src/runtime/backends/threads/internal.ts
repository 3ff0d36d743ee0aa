/**
 * The threads backend's second door, for `world/backend-table.ts`: what the launcher, the bench and the doctor need of it.
 * It does not load what only ranks run.
 * Start reading at threads-kind.ts.
 */
export { THREADS_KIND } from "./threads-kind.ts";
