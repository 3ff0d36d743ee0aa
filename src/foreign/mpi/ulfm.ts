/**
 * What is known of a library's ULFM extensions (user-level failure mitigation, MPIX_Comm_shrink and its like), by which the
 * survivors of a rank's death could go on. That a library exports them says little: MPICH 4.0.2 aborts the calling process in
 * MPIX_Comm_revoke and MPIX_Comm_shrink ("Assertion failed in file src/mpid/ch4/src/ch4_comm.c"; from C too). chorale uses none
 * of them.
 */
import type { NativeLibrary } from "../native/index.ts";

const SYMBOL = "MPIX_Comm_shrink";
/** Libraries in which it was tried and aborts, by their usual names. */
const ABORTS: ReadonlySet<string> = new Set(["MPICH 4.0.2"]);

/** `none`: not exported; `aborts`: exported, and ends the process that calls it; `untried`: exported. */
export type UlfmState = "none" | "aborts" | "untried";

/** @param name the library's usual name, such as `MPICH 4.0.2` */
export function ulfmOf(library: Pick<NativeLibrary, "has">, name: string): UlfmState {
  if (!library.has(SYMBOL)) return "none";
  return ABORTS.has(name) ? "aborts" : "untried";
}
