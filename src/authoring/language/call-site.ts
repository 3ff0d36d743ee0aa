/**
 * Where in the user's program an operation of the language stands. Locating one costs some 2 us, so only the first calls
 * of a large program are located; errors always are.
 */
import { callSiteOf, foldersBeside, traceOfCall } from "../../core/index.ts";
import type { SourceLocation } from "../plan/index.ts";

/** Calls of one program that are located. Beyond, operations carry no line. */
export const MAX_LOCATED = 6_000;
/** Frames that are looked at: the language is at most a few calls deep. */
const MAX_FRAMES = 8;

const OWN = foldersBeside(import.meta.url, "./", "../compiler/");

/** The nearest frame outside the language and its compiler. */
export function callSite(): SourceLocation | undefined {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = MAX_FRAMES;
  const site = callSiteOf(traceOfCall(callSite), OWN);
  Error.stackTraceLimit = stackTraceLimit;
  return site && { file: site.file, line: site.line, column: site.column };
}
