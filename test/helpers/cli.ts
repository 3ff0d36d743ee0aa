/** The command line as a user calls it: in this process, or in one of its own. */
import { fileURLToPath } from "node:url";
import { vi } from "vitest";

/** Calls `chorale ARGV` in this process. @returns its exit code and what it printed */
export async function runCli(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  // Here, so that a test that only starts processes does not load the commands.
  const { main } = await import("../../src/apps/cli/main.ts");
  let [out, err] = ["", ""];
  const stdout = vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    out += String(text);
    return true;
  });
  const stderr = vi.spyOn(process.stderr, "write").mockImplementation((text) => {
    err += String(text);
    return true;
  });
  try {
    const code = await main(argv);
    return { code, out, err };
  } finally {
    stdout.mockRestore();
    stderr.mockRestore();
  }
}

const transpiled = fileURLToPath(new URL("../../.cache/dev/apps/cli/main.js", import.meta.url));

/** What Node is started with to run the transpiled command line in a process of its own; the command's words follow. */
export const CLI_PROCESS: readonly string[] = [
  // As in vitest.config.ts.
  "--single-threaded-gc",
  "--input-type=module",
  "-e",
  `import { main } from ${JSON.stringify(transpiled)}; process.exitCode = await main(process.argv.slice(1));`,
  "--",
];
