/** Numbers that all ranks of a world see, however they run: shared memory of threads, a mapped file of processes. */
import { closeSync, ftruncateSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mapShared } from "../../foreign/native/index.ts";
import type { Isolation } from "../../runtime/world/index.ts";

/** What travels to the ranks. */
export type SharedWords = Int32Array | { readonly path: string; readonly length: number };

/** Makes `length` zeros. `close` removes them. */
export function makeSharedWords(
  length: number,
  isolation: Isolation,
): { readonly words: Int32Array; readonly handle: SharedWords; close(): void } {
  if (isolation === "thread") {
    const words = new Int32Array(new SharedArrayBuffer(4 * length));
    return { words, handle: words, close: () => {} };
  }
  const folder = mkdtempSync(join(tmpdir(), "chorale-conformance-"));
  const path = join(folder, "words");
  const fd = openSync(path, "wx", 0o600);
  ftruncateSync(fd, 4 * length);
  closeSync(fd);
  const words = openSharedWords({ path, length });
  return { words, handle: { path, length }, close: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Opens them on a rank. */
export function openSharedWords(handle: SharedWords): Int32Array {
  if (handle instanceof Int32Array) return handle;
  const fd = openSync(handle.path, "r+");
  try {
    return new Int32Array(mapShared(fd, 4 * handle.length).buffer);
  } finally {
    closeSync(fd);
  }
}
