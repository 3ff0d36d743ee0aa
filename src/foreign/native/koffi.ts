/** Loads koffi, the optional FFI package, when it is first needed: a machine without it still plans, verifies and simulates. */
import { createRequire } from "node:module";
import type * as KoffiModule from "koffi";
import { UnavailableError } from "../../core/index.ts";

type Koffi = typeof KoffiModule;

let loaded: Koffi | Error | undefined;

/** Whether no descriptor was left, which may be otherwise a moment later. */
const isOutOfFiles = (error: Error) => /EMFILE|ENFILE|too many open files/i.test(error.message);

/**
 * Returns koffi.
 * @throws UnavailableError when the package is not installed or has no binary for this platform
 */
export function koffi(): Koffi {
  if (loaded === undefined) {
    try {
      loaded = createRequire(import.meta.url)("koffi") as Koffi;
    } catch (error) {
      loaded = error instanceof Error ? error : new Error(String(error));
    }
  }
  if (!(loaded instanceof Error)) return loaded;
  const cause = loaded;
  if (isOutOfFiles(cause)) loaded = undefined;
  throw new UnavailableError(
    "FFI (the package koffi)",
    cause.message.split("\n")[0]?.replace(/\.+$/, "") ?? "it could not be loaded",
    loaded === undefined ? "Raise the limit of open files: ulimit -n 65536." : "Install it with: npm install koffi",
    { cause },
  );
}
