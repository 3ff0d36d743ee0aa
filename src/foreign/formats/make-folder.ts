/** Folders to write to. */
import { mkdirSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";

/**
 * Makes a folder and those above it, unless they are there. Node's `mkdir` with `recursive` never returns on file
 * systems that allow none, such as /proc.
 * @throws the system's error
 */
export function makeFolder(folder: string, mode = 0o777): void {
  for (const isLast of [false, true]) {
    try {
      mkdirSync(folder, { mode });
      return;
    } catch (error) {
      if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) return;
      const above = dirname(resolve(folder));
      if (isLast || (error as NodeJS.ErrnoException).code !== "ENOENT" || above === resolve(folder)) throw error;
      makeFolder(above, mode);
    }
  }
}
