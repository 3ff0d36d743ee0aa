/** Everyday programs about calls, run as a user runs them: what is forgotten, who leaves early, who is missing, what is sent. */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { CLI_PROCESS } from "../helpers/cli.ts";

interface Run {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `chorale launch` on a program of test/e2e/programs. */
function launched(program: string, ...flags: string[]): Promise<Run> {
  const file = fileURLToPath(new URL(`programs/${program}.ts`, import.meta.url));
  const child = spawn(process.execPath, [...CLI_PROCESS, "launch", ...flags, file], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, stdout, stderr }));
  });
}

describe("a forgotten await", () => {
  it("is a warning that names the call and its place", { timeout: 60_000 }, async () => {
    const run = await launched("forgotten-await", "-n", "2");
    expect(run.code).toBe(0);
    expect(run.stderr).toMatch(/CHORALE_UNAWAITED_WORK.*nobody awaited or waited for:/s);
    expect(run.stderr).toMatch(/all_reduce #0 at .*forgotten-await\.ts:7/);
  });

  it("is an error with strictWork", { timeout: 60_000 }, async () => {
    const run = await launched("forgotten-await", "-n", "2", "--backend-option", "strictWork=true");
    expect(run.code).toBe(1);
    expect(run.stderr).toMatch(
      /InvalidArgumentError.*strictWork is on\):\n {2}all_reduce #0 at .*forgotten-await\.ts:7/s,
    );
  });
});

describe("a script that calls process.exit(0)", () => {
  it("is told the calls that nobody awaited, and fails with strictWork", { timeout: 60_000 }, async () => {
    const [warned, strict] = await Promise.all([
      launched("forgotten-exit", "-n", "1"),
      launched("forgotten-exit", "-n", "1", "--backend-option", "strictWork=true"),
    ]);
    expect(warned.code).toBe(0);
    expect(warned.stderr).toMatch(/CHORALE_UNAWAITED_WORK.*\n.*all_reduce #0 at .*forgotten-exit\.ts:6/);
    expect(strict.code).toBe(1);
    expect(strict.stderr).toMatch(/strictWork is on\):\n.*all_reduce #0 at .*forgotten-exit\.ts:6/);
  });
});

describe("a script that never joins its world", () => {
  it("ends well, with a hint", { timeout: 60_000 }, async () => {
    const run = await launched("never-joins", "-n", "2");
    expect(run.code).toBe(0);
    expect(run.stdout.trim().split("\n").sort()).toEqual(["[0] hello", "[1] hello"]);
    expect(run.stderr).toMatch(/^chorale launch: 2 ranks ended without joining the world: .*joinWorld\(\)/);
  });
});

describe("a rank that returned", () => {
  it("ends the waits of its peers as fast as one that exits", { timeout: 60_000 }, async () => {
    const start = performance.now();
    const run = await launched("early-return", "-n", "3");
    // Two processes and three ranks start in that time, on a busy machine too; the deadline is a minute.
    expect(performance.now() - start).toBeLessThan(30_000);
    expect(run.code).toBe(1);
    expect(run.stderr).toMatch(
      /rank 1 failed first:\n.*it has left group world .*will not make all_reduce\(f32\[1\], sum\) #1/,
    );
  });
});

describe("launch --timeout", () => {
  it("says who waits in which call, and who is missing from it", { timeout: 60_000 }, async () => {
    const run = await launched("missing-rank", "-n", "4", "--timeout", "10");
    expect(run.code).toBe(1);
    expect(run.stderr).toMatch(/ranks \[0, 1, 3\] wait in all_reduce\(f32\[1\], sum\) #1 of group world/);
    expect(run.stderr).toMatch(
      /arrived: ranks \[0, 1, 3\], missing: ranks \[2\] \(last operation of rank 2: barrier #0\)/,
    );
  });
});

describe("objects", () => {
  it("arrive as they were given", { timeout: 60_000 }, async () => {
    const run = await launched("everyday-objects", "-n", "2");
    expect(run).toMatchObject({ code: 0, stdout: "[1] 3 1970-01-01T00:00:00.000Z q=4 losses NaN NaN best 0 1\n" });
  });
});
