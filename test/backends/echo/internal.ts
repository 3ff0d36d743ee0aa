/**
 * The echo engine: a world of one rank, whose collectives give back what went in. It shows what a new backend takes:
 * this folder, and one line in `world/backend-table.ts`. It moves nothing between ranks.
 * Start reading at echo-kind.ts.
 */
export { ECHO_KIND } from "./echo-kind.ts";
