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
import { isScript, type ProgramArgs } from "./program-args.ts";

/** Larger files are refused: 64 ranks of packets are 85 MB. */
const MAX_PLAN_FILE_BYTES = 2 ** 30;

/**
 * Loads a plan: compiles a program, or reads a plan's file.
 * @throws FormatError, InvalidArgumentError, PlanError
 */
export async function loadPlan(file: string, args: ProgramArgs, options: CompileOptions = {}): Promise<ExecutionPlan> {
  // An algorithm's name is never the name of a file.
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
