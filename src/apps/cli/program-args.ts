/** The words that a program of the language is made with, and which files are scripts. */
import { InvalidArgumentError } from "../../core/index.ts";

export type ProgramArgs = Readonly<Record<string, unknown>>;

/**
 * Reads `--arg k=v` options: numbers, true, false and JSON lists and objects as such, anything else as text.
 * @throws InvalidArgumentError for one without `=`
 */
export function parseProgramArgs(list: readonly string[]): ProgramArgs {
  return Object.fromEntries(
    list.map((item) => {
      const at = item.indexOf("=");
      if (at < 1) throw new InvalidArgumentError("--arg", item, "name=value");
      return [item.slice(0, at), parseValue(item.slice(at + 1))];
    }),
  );
}

function parseValue(text: string): unknown {
  if (!/^(-?\d|true$|false$|null$|[[{"])/.test(text)) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Whether FILE is a script, by its ending. */
export const isScript = (file: string): boolean => /\.[mc]?[jt]sx?$/.test(file);
