/**
 * The bench's second door, for commands and scripts: how they read their command line. It measures nothing.
 * Start reading at script-flags.ts.
 */
export { flagsOf, integer, integers, oneOf } from "./script-flags.ts";
