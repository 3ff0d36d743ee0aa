/**
 * The second door to FFI, for rooms of chorale alone: what ranks may need at any call, in few files. Knows no library.
 * Start with affinity.ts.
 */
export { type ThreadPlace, threadPlace } from "./affinity.ts";
