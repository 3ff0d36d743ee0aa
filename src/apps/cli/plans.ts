/**
 * Plans from files, for `check`, `sim` and `compile`: TypeScript and JavaScript files whose default export makes a
 * program (`(args) => Program`), algorithms of the library, chorale's plan files, MSCCL++'s JSON and MSCCL's XML.
 */
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { compile } from "../../authoring/language/index.ts";
import { type ExecutionPlan, readPlan } from "../../authoring/schedule/index.ts";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { isProgramFile, loadProgram } from "./program-file.ts";

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

/**
 * Loads a plan. A program is compiled without being verified: that is the caller's business.
 * @throws FormatError for a file that is no plan, InvalidArgumentError for one that is not there or makes no program
 */
export async function loadPlan(file: string, args: Readonly<Record<string, unknown>>): Promise<ExecutionPlan> {
  if (isProgramFile(file)) return compile(await loadProgram(file, args), { verify: false });
  let bytes: Uint8Array;
  try {
    bytes = await readFile(file);
  } catch (error) {
    const code = (error as { code?: string }).code;
    throw new InvalidArgumentError(
      "FILE",
      file,
      code === "ENOENT" ? "a file that exists" : `a readable file (${code})`,
    );
  }
  if (bytes.length > MAX_PLAN_FILE_BYTES) throw new FormatError(file, `has ${bytes.length} bytes, more than 1 GiB`);
  return readPlan(bytes, basename(file));
}
