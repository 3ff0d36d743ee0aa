/**
 * The second door of the readers, for rooms that every rank loads: regular files of bounded size, strict JSON, and
 * folders to write to. Refuses what index.ts adds to it. Start with text-file.ts.
 */
export { parseStrictJson } from "./json.ts";
export { makeFolder, userFolder } from "./make-folder.ts";
export { readTextFile } from "./text-file.ts";
