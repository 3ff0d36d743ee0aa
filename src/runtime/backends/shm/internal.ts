/**
 * The shm backend's second door, for `world/backend-table.ts`: what the launcher, the bench and the doctor need of it.
 * It does not load what only ranks run.
 * Start reading at shm-kind.ts.
 */
export { SHM_KIND } from "./shm-kind.ts";
