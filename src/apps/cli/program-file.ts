/**
 * What `compile`, `check` and `sim` take as FILE: a program (TypeScript or JavaScript, default export `(args) =>
 * Program`, optionally a zod schema `args`), a plan (chorale's JSON, MSCCL++'s JSON, MSCCL's XML), or the name of an
 * algorithm of the library.
 */
import { existsSync, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { ALGORITHMS, algorithm } from "../../authoring/algorithms/index.ts";
import { type CompileOptions, compile, type Program } from "../../authoring/language/index.ts";
import { type ExecutionPlan, readPlan } from "../../authoring/schedule/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { importUserModule } from "../../runtime/world/index.ts";

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

interface ArgsSchema {
  safeParse(value: unknown): {
    success: boolean;
    data?: unknown;
    error?: { issues: readonly { path: readonly PropertyKey[]; message: string }[] };
  };
}

function isProgram(value: unknown): value is Program {
  return typeof value === "object" && value !== null && "recorder" in value && "collective" in value;
}

const isScript = (file: string) => /\.[mc]?[jt]sx?$/.test(file);

/** Whether FILE is a program: a script, or an algorithm of the library. */
export function isProgramFile(file: string): boolean {
  return isScript(file) || (!existsSync(file) && ALGORITHMS.some((a) => a.name === file));
}

/**
 * Loads a program.
 * @throws InvalidArgumentError when the file has no such export or refuses the arguments
 */
export async function loadProgram(file: string, args: ProgramArgs): Promise<Program> {
  if (!isScript(file)) {
    if (!("numRanks" in args))
      throw new InvalidArgumentError("--arg", "no numRanks", `numRanks=N for the algorithm ${file}`);
    return algorithm(file).make(args as unknown as Parameters<ReturnType<typeof algorithm>["make"]>[0]);
  }
  const module = await importUserModule(file, "FILE");
  const factory = module["default"];
  if (typeof factory !== "function") {
    throw new InvalidArgumentError(`default export of ${file}`, typeof factory, "a function (args) => Program");
  }
  let checked: unknown = args;
  const schema = module["args"] as ArgsSchema | undefined;
  if (schema !== undefined && typeof schema.safeParse === "function") {
    const result = schema.safeParse(args);
    if (!result.success) {
      const issue = result.error?.issues[0];
      const name = issue?.path.map(String).join(".") ?? "";
      throw new InvalidArgumentError(
        `--arg ${name}`,
        args[name],
        `what ${file} asks for: ${issue?.message ?? "other arguments"}`,
      );
    }
    checked = result.data;
  }
  const made: unknown = await (factory as (args: unknown) => unknown)(checked);
  if (!isProgram(made)) throw new InvalidArgumentError(`what ${file} returns`, made, "a Program, made by program(...)");
  return made;
}

/**
 * Loads a plan: compiles a program, or reads a plan's file.
 * @throws FormatError, InvalidArgumentError, PlanError
 */
export async function loadPlan(file: string, args: ProgramArgs, options: CompileOptions = {}): Promise<ExecutionPlan> {
  if (isProgramFile(file)) return compile(await loadProgram(file, args), options);
  if (!existsSync(file)) {
    const names = ALGORITHMS.map((a) => a.name).join(", ");
    throw new InvalidArgumentError("FILE", file, `a program (.ts), a plan (.json, .xml), or an algorithm: ${names}`);
  }
  if (statSync(file).isDirectory()) throw new InvalidArgumentError("FILE", file, "a file, not a folder");
  return readPlan(await readFile(file), file);
}
