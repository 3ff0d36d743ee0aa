/**
 * Where a function that is sent as text stands in the user's program, so that its stacks, deadlines and warnings name that
 * place. It is found only where the program runs as it was written: a compiler changes the text.
 */
import { readFileSync, statSync } from "node:fs";
import { type CallTrace, callSiteOf, foldersBeside } from "../../core/index.ts";

/** The runtime's folder, whose frames stand between the user's call and this one. */
const OWN = foldersBeside(import.meta.url, "../");
/** No file of a program that is written by hand is larger. */
const MAX_SOURCE_BYTES = 4 * 1024 * 1024;

export interface FunctionOrigin {
  readonly path: string;
  /** From 1. */
  readonly line: number;
  /** From 0. */
  readonly column: number;
}

/** The file of the call that sends the function. */
export function sendingFile(trace: CallTrace): string | undefined {
  return callSiteOf(trace, OWN)?.file;
}

/** The place of the function's text in a file; undefined where it stands nowhere or more than once. */
export function originOf(text: string, path: string): FunctionOrigin | undefined {
  let source: string;
  try {
    const stat = statSync(path);
    if (!stat.isFile() || stat.size > MAX_SOURCE_BYTES) return undefined;
    source = readFileSync(path, "utf8");
  } catch {
    // Programs given to `node --eval` have no file.
    return undefined;
  }
  const at = source.indexOf(text);
  if (at < 0 || source.includes(text, at + 1)) return undefined;
  const before = source.slice(0, at).split("\n");
  return { path, line: before.length, column: before.at(-1)?.length ?? 0 };
}
