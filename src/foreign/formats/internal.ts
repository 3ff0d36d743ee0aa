/**
 * The second door of the readers, for rooms that every rank loads: regular files of bounded size, and strict JSON.
 * Refuses what index.ts adds to it. Start with text-file.ts.
 */
export { parseStrictJson } from "./json.ts";
export { readTextFile } from "./text-file.ts";
