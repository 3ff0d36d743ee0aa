/** Folders to write to. */
import { mkdirSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";

/**
 * Makes a folder and those above it, unless they are there. Node's `mkdir` with `recursive` never returns on file
 * systems that allow none, such as /proc.
 * @throws the system's error
 */
export function makeFolder(folder: string, mode = 0o777): void {
  try {
    makeOne(folder, mode);
  } catch (error) {
    const above = dirname(resolve(folder));
    if ((error as NodeJS.ErrnoException).code !== "ENOENT" || above === resolve(folder)) throw error;
    makeFolder(above, mode);
    makeOne(folder, mode);
  }
}

function makeOne(folder: string, mode: number): void {
  try {
    mkdirSync(folder, { mode });
  } catch (error) {
    if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) throw error;
  }
}
