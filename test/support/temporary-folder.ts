/**
 * The temporary folder of a test run: a fresh one, in which each test file has its own. What is still there when the run
 * has ended fails it, with the names of the files whose tests left it.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";

/** The run's folder, for its workers. */
const RUN_VARIABLE = "CHORALE_TEST_RUN";
/** Paths of sockets may have 108 characters: a file's folder gets a short name. */
const MAX_NAME = 40;

/** Makes the folder of this run, and looks into it when this process, whose workers have ended by then, ends. */
export function useFreshTemporaryFolder(): void {
  if (process.env[RUN_VARIABLE] !== undefined) return;
  const run = mkdtempSync(join(tmpdir(), "chorale-run-"));
  process.env[RUN_VARIABLE] = run;
  process.env["TMPDIR"] = run;
  process.once("exit", () => {
    const left = leftIn(run);
    // A run that is interrupted leaves workers behind, which may write for a moment yet.
    rmSync(run, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    if (left.length === 0) return;
    console.error(`\nTests left something in the temporary folder:\n${left.map((line) => `  ${line}`).join("\n")}`);
    process.exitCode = 1;
  });
}

/**
 * Gives the tests of one file a temporary folder of their own.
 * @param file the test file's path
 */
export function useFolderOf(file: string): void {
  const run = process.env[RUN_VARIABLE];
  if (run === undefined) throw new Error("vitest.config.ts names no test/global-setup.ts");
  const folder = join(run, `${basename(dirname(file))}--${basename(file)}`.slice(0, MAX_NAME));
  mkdirSync(folder, { recursive: true });
  process.env["TMPDIR"] = folder;
}

/** What stands in a run's folder, and whose tests left it. Empty folders of files are the run's own. */
export function leftIn(run: string): string[] {
  return readdirSync(run, { withFileTypes: true }).flatMap((entry) => {
    if (!entry.isDirectory() || !entry.name.includes("--")) return [`${entry.name}, of no test file`];
    return readdirSync(join(run, entry.name)).map((name) => `${name}, of ${entry.name.replace("--", "/")}`);
  });
}
