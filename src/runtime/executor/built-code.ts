/**
 * WebAssembly as the package's build assembled it (scripts/built-plans.mjs): a rank that reads the file spares the time that
 * assembling takes, tens of milliseconds of its processor. Where the file is missing, as in a program that was bundled into
 * one file, the rank assembles the code.
 */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The reduction kernels by themselves. */
export const BUILT_KERNELS_FILE = "reduce-kernels.wasm";

export function builtCode(file: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return readFileSync(fileURLToPath(new URL(".", import.meta.url)) + file);
  } catch {
    return undefined;
  }
}
