/**
 * The second door, for the language, which ranks load with the library of algorithms: writing programs as MSCCL++'s JSON.
 * Refuses what index.ts adds to it: reading loads the schemas of files.
 * Start with write-mscclpp-program.ts.
 */
export { writeMscclpp } from "./write-mscclpp-program.ts";
