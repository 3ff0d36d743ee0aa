/** Files that an option of a command names. */
import { closeSync, openSync, writeFileSync } from "node:fs";
import { InvalidArgumentError } from "../../core/index.ts";
import { makeFolder } from "../../foreign/formats/internal.ts";
import { describeLack } from "./exit-codes.ts";

/** Opens a file anew. @throws InvalidArgumentError naming the option, but what the machine lacks as the system says it */
export function openOutput(option: string, file: string): number {
  try {
    return openSync(file, "w");
  } catch (cause) {
    if (describeLack(cause) !== undefined) throw cause;
    throw new InvalidArgumentError(option, file, `a file that can be written: ${(cause as Error).message}`, { cause });
  }
}

/** Makes a folder for files, unless it is there. @throws InvalidArgumentError when that cannot be */
export function makeOutputFolder(option: string, folder: string): void {
  try {
    makeFolder(folder);
  } catch (cause) {
    throw new InvalidArgumentError(option, folder, `a folder (${(cause as Error).message})`);
  }
}

/** Writes a file. @throws as `openOutput` */
export function writeOutput(option: string, file: string, content: string | Uint8Array): void {
  const fd = openOutput(option, file);
  try {
    writeFileSync(fd, content);
  } finally {
    closeSync(fd);
  }
}
