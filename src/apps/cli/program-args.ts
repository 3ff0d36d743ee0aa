/** The words that a program of the language is made with, and which files are scripts. */
import { assignments } from "../../core/internal.ts";

export type ProgramArgs = Readonly<Record<string, unknown>>;

/**
 * Reads `--arg k=v` options: numbers, true, false and JSON lists and objects as such, anything else as text.
 * @throws InvalidArgumentError for one without `=`, or a name that was given before
 */
export function parseProgramArgs(list: readonly string[]): ProgramArgs {
  return Object.fromEntries([...assignments(list, "--arg")].map(([name, text]) => [name, parseProgramArg(text)]));
}

/** The value of one argument. */
export function parseProgramArg(text: string): unknown {
  if (!/^(-?\d|true$|false$|null$|[[{"])/.test(text)) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Whether FILE is a script, by its ending. */
export const isScript = (file: string): boolean => /\.[mc]?[jt]sx?$/.test(file);
