/** Folders that tests write to. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const made = new Set<string>();
// Where all tests of a file are skipped, nothing runs after them.
process.once("exit", removeScratchFolders);

/** Makes a fresh folder, which is gone when the tests of this file have run. */
export function scratchFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `chorale-${name}-`));
  made.add(folder);
  return folder;
}

/** Removes them all. test/file-setup.ts calls it after each test file. */
export function removeScratchFolders(): void {
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
  made.clear();
}
