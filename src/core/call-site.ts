/**
 * Where in the user's program a call stands. Remembering a stack costs 5 to 20 us, by its frames; reading it costs as much again
 * and is done only when somebody is told. Files that were compiled and carry a source map are shown at their original lines.
 */
import { findSourceMap, type SourceMap } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** A stack that nobody has read yet. */
export interface CallTrace {
  readonly stack?: unknown;
}

export interface CallSite {
  /** The function that made the call, if it has a name. */
  readonly caller: string | undefined;
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** Source maps by compiled file; null: it has none. Node knows those of files imported with source maps enabled. */
const maps = new Map<string, SourceMap | null>();

const pathOf = (name: string) => (name.startsWith("file:") ? fileURLToPath(name) : name);

function mapOf(file: string): SourceMap | null {
  let map = maps.get(file);
  if (map === undefined) {
    map = findSourceMap(file) ?? findSourceMap(pathOf(file)) ?? null;
    maps.set(file, map);
  }
  return map;
}

/**
 * Remembers the stack above a function, without formatting it.
 * @param from whose callers are meant; the caller of `traceOfCall` by default
 */
export function traceOfCall(from: (...args: never[]) => unknown = traceOfCall): CallTrace {
  const trace: CallTrace = {};
  Error.captureStackTrace(trace, from);
  return trace;
}

/**
 * URLs of folders beside the module of `url`, its `import.meta.url`. There is none in a program that a bundler made in
 * CommonJS, which has nothing of chorale in files of its own.
 */
export function foldersBeside(url: string | undefined, ...paths: readonly string[]): readonly string[] {
  return url === undefined ? [] : paths.map((path) => new URL(path, url).href);
}

/**
 * The nearest frame outside chorale's own files, or `undefined`.
 * @param folders chorale's folders whose frames are passed over, as `file:` URLs that end in a slash
 */
export function callSiteOf(trace: CallTrace, folders: readonly string[]): CallSite | undefined {
  const isOwn = (file: string) => {
    const url = file.startsWith("/") ? `file://${file}` : file;
    return folders.some((folder) => url.startsWith(folder)) && !/\.test\.[cm]?[jt]s(\?|$)/.test(url);
  };
  for (const site of sitesOf(trace)) {
    const name = site.getFileName() ?? site.getScriptNameOrSourceURL();
    if (name === null || name === undefined || name.startsWith("node:") || isOwn(name)) continue;
    const caller = site.getFunctionName() ?? undefined;
    const line = site.getLineNumber() ?? 0;
    const column = site.getColumnNumber() ?? 0;
    const entry = mapOf(name)?.findEntry(line - 1, column - 1);
    if (entry === undefined || !("originalLine" in entry)) return { caller, file: pathOf(name), line, column };
    const { originalSource, originalLine, originalColumn } = entry;
    const file = originalSource.startsWith("file:")
      ? fileURLToPath(originalSource)
      : resolve(dirname(pathOf(name)), originalSource);
    return { caller, file, line: originalLine + 1, column: originalColumn + 1 };
  }
  return undefined;
}

/** V8 formats a stack when it is first read, as `Error.prepareStackTrace` says at that moment. */
function sitesOf(trace: CallTrace): readonly NodeJS.CallSite[] {
  const { prepareStackTrace } = Error;
  try {
    Error.prepareStackTrace = (_, sites) => sites;
    return Array.isArray(trace.stack) ? trace.stack : [];
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
  }
}
