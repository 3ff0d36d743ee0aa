/**
 * What `compile`, `check` and `sim` take as FILE: a program (TypeScript or JavaScript, default export `(args) =>
 * Program`, optionally a zod schema `args`), a plan (chorale's JSON, MSCCL++'s JSON, MSCCL's XML), or the name of an
 * algorithm of the library.
 */
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { ALGORITHMS, algorithm } from "../../authoring/algorithms/index.ts";
import { readPlan } from "../../authoring/interchange/index.ts";
import { type CompileOptions, compile, type Program } from "../../authoring/language/index.ts";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { importUserModule } from "../../runtime/world/index.ts";

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
    const { make, legal } = algorithm(file);
    const { numRanks } = args;
    // Anything but a count is refused by the program itself.
    if (Number.isInteger(numRanks) && (numRanks as number) > 0 && !legal(numRanks as number)) {
      const some = Array.from({ length: 16 }, (_, i) => i + 1).filter(legal);
      throw new InvalidArgumentError("numRanks", numRanks, `what ${file} is defined for: ${some.join(", ")}, …`);
    }
    return make(args as unknown as Parameters<typeof make>[0]);
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
  let bytes: Uint8Array;
  try {
    bytes = await readFile(file);
  } catch (error) {
    const code = (error as { code?: string }).code;
    const names = ALGORITHMS.map((a) => a.name).join(", ");
    throw new InvalidArgumentError(
      "FILE",
      file,
      code === "ENOENT"
        ? `a file that exists, a program (.ts) or a plan (.json, .xml), or an algorithm: ${names}`
        : code === "EISDIR"
          ? "a file, not a folder"
          : `a readable file (${code})`,
    );
  }
  if (bytes.length > MAX_PLAN_FILE_BYTES) throw new FormatError(file, `has ${bytes.length} bytes, more than 1 GiB`);
  return readPlan(bytes, basename(file));
}
