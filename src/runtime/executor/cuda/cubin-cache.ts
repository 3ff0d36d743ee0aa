/**
 * Compiled kernels on disk: NVRTC takes a second for a kernel, and every rank of every run needs the same ones. Keyed by
 * the source, the architecture and the compiler's version. A file that cannot be read or written costs a compilation, no more.
 */
import { createHash } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import type { Nvrtc } from "../../../foreign/cuda/index.ts";
import { makeFolder } from "../../../foreign/formats/internal.ts";

/** Where compiled kernels are kept: `$XDG_CACHE_HOME/chorale/cubin`, below `~/.cache` where that is not set. */
function cubinFolder(): string {
  return join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "chorale", "cubin");
}

/** Compiles CUDA C++, or takes what an earlier compilation left. @throws NativeError with the compiler's log */
export function compileCached(
  nvrtc: Nvrtc,
  source: string,
  computeCapability: readonly [number, number],
  folder: string = cubinFolder(),
): Uint8Array {
  const key = JSON.stringify([computeCapability, nvrtc.version, source]);
  const path = join(folder, `${createHash("sha256").update(key).digest("hex").slice(0, 32)}.cubin`);
  const kept = read(path);
  if (kept !== undefined) return kept;
  const cubin = nvrtc.compile(source, computeCapability);
  try {
    makeFolder(folder);
    // Ranks compile the same at once: whole files only, the last one stays.
    const temporary = `${path}.${process.pid}.${Math.random().toString(36).slice(2)}`;
    writeFileSync(temporary, Buffer.concat([sum(cubin), cubin]));
    renameSync(temporary, path);
  } catch {
    // A folder that cannot be written to.
  }
  return cubin;
}

const SUM_BYTES = 32;

function sum(cubin: Uint8Array): Buffer {
  return createHash("sha256").update(cubin).digest();
}

/** A kept cubin; `undefined` where there is none, or a damaged one. */
function read(path: string): Uint8Array | undefined {
  try {
    const bytes = readFileSync(path);
    const cubin = new Uint8Array(bytes.subarray(SUM_BYTES));
    return sum(cubin).equals(bytes.subarray(0, SUM_BYTES)) ? cubin : undefined;
  } catch {
    return undefined;
  }
}
