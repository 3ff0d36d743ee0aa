/**
 * Memory that JavaScript did not allocate, as ArrayBuffers: how they are made, and emptied before the memory is freed.
 *
 * Node marks such buffers as untransferable. structuredClone refuses them from Node 21 on, and in Node 20 it copies them
 * and leaves the original as it was, silently. `detach` lists what detaches them on every version.
 */
import { koffi } from "./koffi.ts";

/** `transfer` exists from Node 21 on; the types are those of Node 20. */
type Detachable = ArrayBuffer & { transfer?(length: number): ArrayBuffer };

/**
 * Views foreign memory as an ArrayBuffer. The caller keeps the memory alive as long as any view of it, or ends the views
 * with `emptyViews`.
 */
export function viewMemory(address: bigint, sizeBytes: number): ArrayBuffer {
  return koffi().view(address, sizeBytes);
}

/**
 * Empties a buffer of `viewMemory`, and every typed array over it, so that the memory can be freed: a view that is
 * still referenced has length 0 instead of pointing at freed memory.
 * @returns false when the buffer had been detached before: it was transferred, its new owner may still point at the
 * memory, and the memory must not be freed
 */
export function emptyViews(buffer: ArrayBuffer): boolean {
  // Foreign memory is never empty, so an empty buffer is one that was detached.
  if (buffer.byteLength === 0) return false;
  detach(buffer);
  return buffer.byteLength === 0;
}

function detach(buffer: Detachable): void {
  if (buffer.transfer !== undefined) {
    buffer.transfer(0);
    return;
  }
  // Node 20: a byte stream takes over the buffer of the view that it is to read into. The stream has no source.
  const reader = new ReadableStream({ type: "bytes" }).getReader({ mode: "byob" });
  const ignore = () => {};
  reader.read(new Uint8Array(buffer)).catch(ignore);
  reader.cancel().catch(ignore);
}
