/** A file mapped into memory that processes share: mmap(2) of the C library, on Linux and macOS. */
import { InvalidArgumentError, NativeError, UnavailableError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { viewMemory } from "./foreign-memory.ts";
import { koffi } from "./koffi.ts";
import { addressOf } from "./prototypes.ts";

const PROT_READ_WRITE = 1 | 2;
const MAP_SHARED = 1;
const MAP_FIXED = 0x10;
/** Pages of every system have this many bytes, or more. */
const LEAST_PAGE_BYTES = 4096;
/** MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS; the last differs between the systems. On Linux MAP_NORESERVE too: no page is touched. */
const MAP_NOTHING_HERE = 0x02 | 0x10 | (process.platform === "darwin" ? 0x1000 : 0x20 | 0x4000);

interface Functions {
  mmap(address: bigint | number, length: number, protection: number, flags: number, fd: number, offset: number): number;
  munmap(address: bigint | number, length: number): number;
}
let functions: Functions | undefined;

function libc(): Functions {
  if (process.platform !== "linux" && process.platform !== "darwin") {
    throw new UnavailableError("memory shared by processes", `this is ${process.platform}`, "Use ranks as threads.");
  }
  if (functions === undefined) {
    const library = koffi().load(null);
    functions = {
      mmap: library.func("mmap", "intptr_t", ["intptr_t", "size_t", "int", "int", "int", "int64_t"]),
      munmap: library.func("munmap", "int", ["intptr_t", "size_t"]),
    };
  }
  return functions;
}

/** Memory of a file. `Atomics.load`, `store` and `compareExchange` work on it; `Atomics.wait` does not. */
export interface SharedMapping {
  readonly buffer: ArrayBuffer;
  /**
   * Unmaps the file. Views that still exist then read zeros that are private to this process: if the pages were gone, the
   * next access would end the process.
   */
  close(): void;
}

const collected = new FinalizationRegistry<{ readonly address: number; readonly sizeBytes: number }>(
  ({ address, sizeBytes }) => void libc().munmap(address, sizeBytes),
);

/**
 * Maps the first `sizeBytes` of an open file for reading and writing. The descriptor may be closed afterwards.
 * @throws UnavailableError without FFI, or on other systems; NativeError
 */
export function mapShared(fd: number, sizeBytes: number): SharedMapping {
  const { mmap } = libc();
  const address = mmap(0, sizeBytes, PROT_READ_WRITE, MAP_SHARED, fd, 0);
  if (address === -1) throw new NativeError("C library", "mmap", koffi().errno(), `cannot map ${sizeBytes} bytes`);
  const buffer = viewMemory(BigInt(address), sizeBytes);
  collected.register(buffer, { address, sizeBytes });
  let closed = false;
  return {
    buffer,
    close: () => {
      if (closed) return;
      closed = true;
      mmap(address, sizeBytes, PROT_READ_WRITE, MAP_NOTHING_HERE, -1, 0);
    },
  };
}

/**
 * Maps the first `sizeBytes` of an open file over memory that is there already, such as a WebAssembly memory's: what the
 * engine's code reads and writes there is shared by processes from now on. The memory begins on a page of its own, keeps its
 * address, and goes with its owner; what it held is lost.
 * @param atByte of the memory, where the file is to begin
 * @returns lets the file go: the memory is zeros that are private to this process then
 * @throws UnavailableError without FFI, or on other systems; NativeError, InvalidArgumentError for memory on no page boundary
 */
export function mapSharedOver(memory: SharedArrayBuffer, fd: number, sizeBytes: number, atByte = 0): () => void {
  const address = addressOf(new Uint8Array(memory)) + BigInt(atByte);
  const isWhole = address % BigInt(LEAST_PAGE_BYTES) === 0n && sizeBytes % LEAST_PAGE_BYTES === 0;
  if (!isWhole || atByte + sizeBytes > memory.byteLength) {
    throw new InvalidArgumentError(
      "memory",
      described(`${sizeBytes} of ${memory.byteLength} bytes at ${address}`),
      "whole pages",
    );
  }
  const flags = MAP_SHARED | MAP_FIXED;
  const { mmap } = libc();
  if (mmap(address, sizeBytes, PROT_READ_WRITE, flags, fd, 0) === -1) {
    throw new NativeError("C library", "mmap", koffi().errno(), `cannot map ${sizeBytes} bytes over memory`);
  }
  return () => void mmap(address, sizeBytes, PROT_READ_WRITE, MAP_NOTHING_HERE, -1, 0);
}

/** Copied at a time while memory is replaced. */
const REPLACED_BYTES = 4 * 2 ** 20;

/**
 * Puts memory that is private to this process in the place of a stretch of pages that a file is mapped over, with what they hold.
 * @throws NativeError
 */
export function mapPrivateOver(memory: SharedArrayBuffer, fromByte: number, toByte: number): void {
  const { mmap } = libc();
  for (let at = fromByte; at < toByte; at += REPLACED_BYTES) {
    const bytes = new Uint8Array(memory, at, Math.min(REPLACED_BYTES, toByte - at));
    const held = bytes.slice();
    if (mmap(addressOf(bytes), bytes.length, PROT_READ_WRITE, MAP_NOTHING_HERE, -1, 0) === -1) {
      throw new NativeError("C library", "mmap", koffi().errno(), `cannot map ${bytes.length} bytes over memory`);
    }
    bytes.set(held);
  }
}
