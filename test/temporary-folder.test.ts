/** What fails a test run that leaves something in its temporary folder. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { scratchFolder } from "./helpers/scratch.ts";
import { leftIn } from "./support/temporary-folder.ts";

it("names what is left, and the test file", () => {
  const run = scratchFolder("run");
  mkdirSync(join(run, "cli--compile.test.ts"));
  expect(leftIn(run)).toEqual([]);
  writeFileSync(join(run, "cli--compile.test.ts", "chorale-modules-1"), "");
  mkdirSync(join(run, "node-compile-cache"));
  expect(leftIn(run).sort()).toEqual([
    "chorale-modules-1, of cli/compile.test.ts",
    "node-compile-cache, of no test file",
  ]);
});

it("stands in a fresh folder of this file", () => {
  expect(tmpdir()).toMatch(/chorale-run-\w+\/test--temporary-folder\.test\.ts$/);
  const made = mkdtempSync(join(tmpdir(), "chorale-seen-"));
  expect(leftIn(join(tmpdir(), ".."))).toContain(`${made.split("/").at(-1)}, of test/temporary-folder.test.ts`);
  rmSync(made, { recursive: true });
});
