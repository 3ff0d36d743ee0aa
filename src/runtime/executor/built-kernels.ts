/**
 * The reduction kernels as the package's build assembled them (scripts/built-plans.mjs): a rank that reads their file spares a
 * hundred milliseconds of its processor. Where the file is missing, as in a program that was bundled into one file, a
 * rank assembles them.
 */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const BUILT_KERNELS_FILE = "reduce-kernels.wasm";

export function builtKernels(): Uint8Array<ArrayBuffer> | undefined {
  try {
    return readFileSync(fileURLToPath(new URL(".", import.meta.url)) + BUILT_KERNELS_FILE);
  } catch {
    return undefined;
  }
}
