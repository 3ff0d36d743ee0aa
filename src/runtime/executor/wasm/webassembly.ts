/**
 * The part of the WebAssembly JavaScript API that we use, with types: neither TypeScript's es2023 library nor Node's
 * types describe it fully. One memory here is always shared.
 */

export interface WasmMemory {
  /** The bytes; a new object after `grow`, over the same memory. */
  readonly buffer: SharedArrayBuffer;
  /** Grows by pages of 64 KiB and returns the old number of pages. @throws RangeError beyond the maximum */
  grow(pages: number): number;
}
/** Compiled code, which may be posted to other threads. */
export interface WasmModule {
  readonly [Symbol.toStringTag]: "WebAssembly.Module";
}
export type WasmFunction = (...args: number[]) => number;
interface WasmApi {
  Memory: new (descriptor: { initial: number; maximum: number; shared: true }) => WasmMemory;
  Module: new (bytes: Uint8Array<ArrayBuffer>) => WasmModule;
  Instance: new (
    module: WasmModule,
    imports: Record<string, Record<string, unknown>>,
  ) => { readonly exports: Readonly<Record<string, unknown>> };
}

export const PAGE_BYTES = 65_536;
/** WebAssembly addresses have 32 bits: 65,536 pages of 64 KiB. */
export const MAX_PAGES = 65_536;

const api = (globalThis as unknown as { WebAssembly: WasmApi }).WebAssembly;

/** Reserves address space for `maximumPages` and commits `initialPages`, shared between threads. */
export function newSharedMemory(initialPages: number, maximumPages: number): WasmMemory {
  return new api.Memory({ initial: initialPages, maximum: maximumPages, shared: true });
}

/** Compiles. Synchronous; our modules take a few milliseconds. */
export function compileModule(bytes: Uint8Array<ArrayBuffer>): WasmModule {
  return new api.Module(bytes);
}

/** Instantiates a module that imports `env.memory`, and functions by their names. */
export function instantiate<Exports>(
  module: WasmModule,
  memory: WasmMemory,
  functions: Readonly<Record<string, (...args: number[]) => void>> = {},
): Exports {
  return new api.Instance(module, { env: { memory, ...functions } }).exports as Exports;
}
