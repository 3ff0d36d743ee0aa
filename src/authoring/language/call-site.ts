/**
 * Where in the user's program an operation of the language stands. Locating one costs some 2 us, so only the first calls
 * of a large program are located; errors always are.
 */
import { isAbsolute, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { callSiteOf, foldersBeside, traceOfCall } from "../../core/index.ts";
import type { SourceLocation } from "../plan/index.ts";

/** Calls of one program that are located. Beyond, operations carry no line. */
export const MAX_LOCATED = 6_000;
/** Frames that are looked at: the language is at most a few calls deep. */
const MAX_FRAMES = 8;

const OWN = foldersBeside(import.meta.url, "./", "../compiler/");
/** The folder of chorale's modules, `dist` where it is installed. */
const [MODULES] = foldersBeside(import.meta.url, "../../").map((url) => fileURLToPath(url));

const names = new Map<string, string>();

/** A file by a name that is the same on all machines: below the package, or below the current folder; else its path. */
function nameOf(file: string): string {
  let name = names.get(file);
  if (name === undefined) {
    name = below(MODULES, file, "chorale/dist/") ?? below(process.cwd(), file, "") ?? file;
    names.set(file, name);
  }
  return name;
}

function below(folder: string | undefined, file: string, prefix: string): string | undefined {
  if (folder === undefined || !isAbsolute(file)) return undefined;
  const path = relative(folder, file);
  return path.startsWith("..") || isAbsolute(path) ? undefined : prefix + path.replaceAll("\\", "/");
}

/** The nearest frame outside the language and its compiler. */
export function callSite(): SourceLocation | undefined {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = MAX_FRAMES;
  const site = callSiteOf(traceOfCall(callSite), OWN);
  Error.stackTraceLimit = stackTraceLimit;
  return site && { file: nameOf(site.file), line: site.line, column: site.column };
}
