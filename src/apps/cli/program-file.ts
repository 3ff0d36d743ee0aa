/**
 * What `compile`, `check` and `sim` take as FILE: a program (TypeScript or JavaScript, default export `(args) =>
 * Program`, optionally a zod schema `args`), a plan (chorale's JSON, MSCCL++'s JSON, MSCCL's XML), or the name of an
 * algorithm of the library. What loads and runs programs is itself loaded only for a program: a plan's file may come from
 * anybody, and nothing of it is executed.
 */
import { existsSync } from "node:fs";
import { basename } from "node:path";
import { type CompileOptions, compile } from "../../authoring/compiler/index.ts";
import { readPlan } from "../../authoring/interchange/index.ts";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { readBytesFile } from "../../foreign/formats/index.ts";

/** Larger files are refused: 64 ranks of packets are 85 MB. */
const MAX_PLAN_FILE_BYTES = 2 ** 30;

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

/**
 * Loads a plan: compiles a program, or reads a plan's file.
 * @throws FormatError, InvalidArgumentError, PlanError
 */
export async function loadPlan(file: string, args: ProgramArgs, options: CompileOptions = {}): Promise<ExecutionPlan> {
  // Only what is no file can be an algorithm's name.
  if (isScript(file) || !existsSync(file)) {
    const { algorithmNames, isProgramFile, loadProgram } = await import("./load-program.ts");
    if (isProgramFile(file)) return compile(await loadProgram(file, args), options);
    throw new InvalidArgumentError(
      "FILE",
      file,
      `a file that exists, a program (.ts) or a plan (.json, .xml), or an algorithm: ${algorithmNames().join(", ")}`,
    );
  }
  return readPlan(readBytesFile(file, MAX_PLAN_FILE_BYTES), basename(file));
}
