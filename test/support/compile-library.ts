/** Compiles a C file of test/fixtures/native to a shared library in a temporary folder. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { scratchFolder } from "../helpers/scratch.ts";

/** Whether there is a C compiler; tests that need one say so when they are skipped. */
export const hasCompiler = spawnSync("cc", ["--version"]).status === 0;

/** @returns the path of the library */
export function compileLibrary(name: string): string {
  const source = fileURLToPath(new URL(`../fixtures/native/${name}.c`, import.meta.url));
  const target = join(scratchFolder("native"), `lib${name}.so`);
  const { status, stderr } = spawnSync("cc", ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", target, source], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`cc failed on ${source}:\n${stderr}`);
  return target;
}
