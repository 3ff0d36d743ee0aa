/**
 * Plans from files, for `check`, `sim` and `compile`: TypeScript and JavaScript files whose default export makes a
 * program (`(args) => Program`), chorale's plan files, and plans in MSCCL++'s JSON.
 */
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { compile, type Program } from "../../authoring/language/index.ts";
import { type ExecutionPlan, planFromJson, readMscclpp } from "../../authoring/schedule/index.ts";
import { FormatError, InvalidArgumentError, show } from "../../core/index.ts";
import { importUserModule } from "../../runtime/world/index.ts";

/** Larger files are refused: 64 ranks of packets are 85 MB. */
const MAX_PLAN_FILE_BYTES = 2 ** 30;

/** Reads `k=v` flags: numbers, true and false are what they look like, the rest is text. */
export function parseArgs(pairs: readonly string[]): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const pair of pairs) {
    const at = pair.indexOf("=");
    if (at < 1) throw new InvalidArgumentError("--arg", pair, "NAME=VALUE");
    const text = pair.slice(at + 1);
    result[pair.slice(0, at)] =
      text === "true"
        ? true
        : text === "false"
          ? false
          : text !== "" && Number.isFinite(Number(text))
            ? Number(text)
            : text;
  }
  return result;
}

function isProgram(value: unknown): value is Program {
  return typeof value === "object" && value !== null && "collective" in value && "name" in value;
}

/**
 * Loads a plan. A program is compiled without being verified: that is the caller's business.
 * @throws FormatError for a file that is no plan, InvalidArgumentError for one that is not there or makes no program
 */
export async function loadPlan(file: string, args: Readonly<Record<string, unknown>>): Promise<ExecutionPlan> {
  if (/\.[cm]?[jt]sx?$/.test(file)) return compile(await loadProgram(file, args), { verify: false });
  let text: string;
  try {
    const bytes = await readFile(file);
    if (bytes.length > MAX_PLAN_FILE_BYTES) throw new FormatError(file, `has ${bytes.length} bytes, more than 1 GiB`);
    text = bytes.toString("utf8");
  } catch (error) {
    if (error instanceof FormatError) throw error;
    const code = (error as { code?: string }).code;
    throw new InvalidArgumentError(
      "FILE",
      file,
      code === "ENOENT" ? "a file that exists" : `a readable file (${code})`,
    );
  }
  // Only chorale's own files begin with a version.
  return /"schemaVersion"/.test(text.slice(0, 1024))
    ? planFromJson(text, basename(file))
    : readMscclpp(text, basename(file));
}

/** Loads the program of a user's file. */
export async function loadProgram(file: string, args: Readonly<Record<string, unknown>>): Promise<Program> {
  const module = await importUserModule(file, "FILE");
  const make = module["default"];
  if (typeof make !== "function") {
    throw new InvalidArgumentError("FILE", file, "a module whose default export is a function (args) => Program");
  }
  const schema = module["args"] as { parse?: (value: unknown) => unknown } | undefined;
  const program: unknown = (make as (args: unknown) => unknown)(
    typeof schema?.parse === "function" ? schema.parse(args) : args,
  );
  if (!isProgram(program)) {
    throw new InvalidArgumentError(
      "FILE",
      file,
      `a module whose default export returns a program; it returned ${show(program)}`,
    );
  }
  return program;
}
