/** What each test file begins and ends with. */
import { afterAll, expect } from "vitest";
import { removeScratchFolders } from "./helpers/scratch.ts";
import { useFolderOf } from "./support/temporary-folder.ts";

useFolderOf(expect.getState().testPath ?? "unknown");
afterAll(removeScratchFolders);

// Vitest ends its workers by a signal. What a process does as it exits belongs to what is tested.
const isSet = Symbol.for("chorale: a test worker ends by exit");
const marks = globalThis as unknown as Record<symbol, boolean>;
if (marks[isSet] !== true) {
  marks[isSet] = true;
  process.once("SIGTERM", () => process.exit());
}
