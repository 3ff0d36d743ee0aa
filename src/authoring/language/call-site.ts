/**
 * Where in the user's program a call stands. Capturing costs some 2 us, so only the first calls of a large program are
 * located (`MAX_LOCATED`); errors are always located. Frames of this room and of compiler/ are passed over. Files that
 * were compiled and carry a source map are shown at their original lines.
 */
import { findSourceMap, type SourceMap } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { SourceLocation } from "../plan/index.ts";

/** Calls of one program that are located. Beyond, operations carry no line. */
export const MAX_LOCATED = 6_000;

/** Source maps by compiled file; null: it has none. Node knows those of files imported with source maps enabled. */
const maps = new Map<string, SourceMap | null>();

function mapOf(file: string): SourceMap | null {
  let map = maps.get(file);
  if (map === undefined) {
    map = findSourceMap(file) ?? findSourceMap(path(file)) ?? null;
    maps.set(file, map);
  }
  return map;
}

const OWN = [new URL("./", import.meta.url).href, new URL("../compiler/", import.meta.url).href];

function isOwn(file: string): boolean {
  const url = file.startsWith("/") ? `file://${file}` : file;
  return OWN.some((folder) => url.startsWith(folder)) && !/\.test\.[cm]?[jt]s(\?|$)/.test(url);
}

const path = (name: string) => (name.startsWith("file:") ? fileURLToPath(name) : name);
const frames = (_: Error, sites: NodeJS.CallSite[]): NodeJS.CallSite[] => sites;

/** The nearest frame outside chorale's own files. */
export function callSite(): SourceLocation | undefined {
  const { prepareStackTrace, stackTraceLimit } = Error;
  const holder: { stack?: NodeJS.CallSite[] } = {};
  let sites: NodeJS.CallSite[];
  try {
    Error.prepareStackTrace = frames;
    Error.stackTraceLimit = 8;
    Error.captureStackTrace(holder, callSite);
    sites = holder.stack ?? [];
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
    Error.stackTraceLimit = stackTraceLimit;
  }
  for (const site of sites) {
    const name = site.getFileName() ?? site.getScriptNameOrSourceURL();
    if (name === null || name === undefined || name.startsWith("node:") || isOwn(name)) continue;
    const line = site.getLineNumber() ?? 0;
    const column = site.getColumnNumber() ?? 0;
    const entry = mapOf(name)?.findEntry(line - 1, column - 1);
    if (entry !== undefined && "originalLine" in entry) {
      const { originalSource, originalLine, originalColumn } = entry;
      const file = originalSource.startsWith("file:")
        ? fileURLToPath(originalSource)
        : resolve(dirname(path(name)), originalSource);
      return { file, line: originalLine + 1, column: originalColumn + 1 };
    }
    return { file: path(name), line, column };
  }
  return undefined;
}
