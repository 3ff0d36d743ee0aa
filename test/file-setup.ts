/** What each test file begins and ends with. */
import { readFileSync } from "node:fs";
import { afterAll, expect } from "vitest";
import { removeScratchFolders } from "./helpers/scratch.ts";
import { useFolderOf } from "./support/temporary-folder.ts";

const path = expect.getState().testPath ?? "unknown";
useFolderOf(path);
afterAll(removeScratchFolders);

// One seed repeats every property of a run. Files without properties do not pay for loading fast-check.
const seed = process.env["CHORALE_SEED"];
if (seed !== undefined && readFileSync(path, "utf8").includes(' from "fast-check"')) {
  const { default: fc } = await import("fast-check");
  fc.configureGlobal({ seed: Number(seed) });
}

// Vitest ends its workers by a signal. What a process does as it exits belongs to what is tested.
const isSet = Symbol.for("chorale: a test worker ends by exit");
const marks = globalThis as unknown as Record<symbol, boolean>;
if (marks[isSet] !== true) {
  marks[isSet] = true;
  process.once("SIGTERM", () => process.exit());
}
