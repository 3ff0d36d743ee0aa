/**
 * The tcp backend's second door, for `world/backend-table.ts`: what the launcher, the bench and the doctor need of it.
 * It opens no socket.
 * Start reading at tcp-kind.ts.
 */
export { TCP_KIND } from "./tcp-kind.ts";
