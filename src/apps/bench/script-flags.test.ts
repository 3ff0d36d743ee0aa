import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { oneOf } from "../../core/internal.ts";
import { integer, integers, usageOf } from "./script-flags.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-flags-"));
const script = join(folder, "script.mjs");
const helper = new URL("../../../.cache/dev/apps/bench/script-flags.js", import.meta.url).href;

beforeAll(() => {
  writeFileSync(
    script,
    `/**
 * Counts.
 *   node script.mjs [--splits N]
 */
import { flagsOf, integer } from ${JSON.stringify(helper)};
const config = { options: { splits: { type: "string", default: "3" } } };
const splits = flagsOf(import.meta.url, config, ({ values }) => {
  if (values.splits === "bug") throw new TypeError("a mistake of the script");
  return integer(values.splits, "--splits");
});
console.log(splits);
`,
  );
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const run = (...args: string[]) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], { encoding: "utf8" });
  return { status, stdout, stderr };
};

describe("the command line of scripts", () => {
  it("gives what was said, and what was not", () => {
    expect(run("--splits", "7")).toEqual({ status: 0, stdout: "7\n", stderr: "" });
    expect(run()).toEqual({ status: 0, stdout: "3\n", stderr: "" });
  });

  it.each(["--help", "-h"])("prints the first comment for %s", (flag) => {
    const usage = "Counts.\n  node script.mjs [--splits N]\n";
    expect(run(flag)).toEqual({ status: 0, stdout: usage, stderr: "" });
    expect(run("--splits", "x", flag).stdout).toBe(usage);
  });

  it.each([
    [["--nope"], /^script\.mjs: Unknown option '--nope'/],
    [["--splits"], /^script\.mjs: Option '--splits <value>' argument missing/],
    [["more"], /^script\.mjs: Unexpected argument 'more'/],
    [["--splits", "x"], /^script\.mjs: --splits is "x"; expected an integer of 1 or more \(--help/],
    [["--splits", ""], /--splits is ""/],
    [["--splits=-4"], /--splits is "-4"/],
    [["--splits", "1.5"], /--splits is "1.5"/],
  ] as const)("refuses %j in one line", (args, line) => {
    const { status, stdout, stderr } = run(...args);
    expect(status).toBe(2);
    expect(stdout).toBe("");
    expect(stderr).toMatch(line);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  });

  it("leaves mistakes of the script as they are", () => {
    const { status, stderr } = run("--splits", "bug");
    expect(status).toBe(1);
    expect(stderr).toContain("TypeError: a mistake of the script");
  });

  it("reads numbers and words", () => {
    expect(integer("0", "--n", 0)).toBe(0);
    expect(integers("1,2,4", "--n")).toEqual([1, 2, 4]);
    expect(() => integers("1,,4", "--n")).toThrow(/--n is ""/);
    expect(oneOf("b", "--w", ["a", "b"])).toBe("b");
    expect(() => oneOf("c", "--w", ["a", "b"])).toThrow(/--w is "c"; expected one of a, b/);
  });

  it("finds the usage behind the line of the interpreter, and none where there is none", () => {
    expect(usageOf("#!/usr/bin/env node\n/** Says it. */\nlet x;")).toBe("Says it.");
    expect(usageOf("let x; /** Not first. */")).toBe("");
  });
});
