/**
 * Where in the user's program a call stands. Capturing costs some 2 us, so only the first calls of a large program are
 * located (`MAX_LOCATED`); errors are always located. Frames of this room and of schedule/ are passed over. Files that
 * `importUserModule` compiled have a source map and are shown at their original lines.
 */
import { SourceMap } from "node:module";
import { fileURLToPath } from "node:url";
import type { SourceLocation } from "../schedule/index.ts";

/** Calls of one program that are located. Beyond, operations carry no line. */
export const MAX_LOCATED = 6_000;

const maps = new Map<string, { readonly map: SourceMap; readonly file: string }>();

/** Makes locations in the compiled file `url` show as those of `file`. */
export function registerSourceMap(url: string, file: string, map: ConstructorParameters<typeof SourceMap>[0]): void {
  maps.set(url, { map: new SourceMap(map), file });
}

const OWN = [new URL("./", import.meta.url).href, new URL("../schedule/", import.meta.url).href];

function isOwn(file: string): boolean {
  const url = file.startsWith("/") ? `file://${file}` : file;
  return OWN.some((folder) => url.startsWith(folder)) && !/\.test\.[cm]?[jt]s(\?|$)/.test(url);
}

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
    const mapped = maps.get(name);
    if (mapped !== undefined) {
      const entry = mapped.map.findEntry(line - 1, column - 1);
      if ("originalLine" in entry)
        return { file: mapped.file, line: entry.originalLine + 1, column: entry.originalColumn + 1 };
      return { file: mapped.file, line, column };
    }
    return { file: name.startsWith("file:") ? fileURLToPath(name) : name, line, column };
  }
  return undefined;
}
