/**
 * The second door of the readers, for rooms that every rank loads: bounded reading of regular files, and no parser.
 * Refuses what index.ts adds to it. Start with text-file.ts.
 */
export { readTextFile } from "./text-file.ts";
