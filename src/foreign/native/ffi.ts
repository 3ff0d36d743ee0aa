/**
 * The one door to FFI. koffi is optional: it is loaded on first use, and its absence is a value. Nothing here knows any
 * library; rooms above bring prototypes, names and folders.
 */
import { createRequire } from "node:module";
import { type Unavailable, UnavailableError } from "../../core/index.ts";

/** What a native function takes: numbers, addresses, text, typed arrays (passed as pointers), null; structs by value. */
export type NativeArgument =
  | number
  | bigint
  | string
  | null
  | ArrayBufferView
  | readonly string[]
  | { readonly [member: string]: NativeArgument };

/** A bound function. `R` is what its prototype returns. */
export type NativeFunction<R = number> = (...args: readonly NativeArgument[]) => R;

type Koffi = typeof import("koffi");

let loaded: Koffi | Unavailable | undefined;

/** Largest stack of a native call, bytes: MPI and GPU drivers overflow koffi's default of 128 KiB for .async calls. */
const ASYNC_STACK_BYTES = 2 * 1024 * 1024;

/** Loads koffi, or says why it is not there. */
export function loadFfi(): Koffi | Unavailable {
  if (loaded !== undefined) return loaded;
  try {
    const koffi = createRequire(import.meta.url)("koffi") as Koffi;
    koffi.config({ async_stack_size: ASYNC_STACK_BYTES });
    loaded = koffi;
  } catch (error) {
    loaded = {
      available: false,
      what: "koffi",
      why: error instanceof Error ? (error.message.split("\n")[0] ?? "it did not load") : "it did not load",
      howToGetIt: "Install it with `npm install koffi` (an optional dependency; it has prebuilt binaries).",
    };
  }
  return loaded;
}

/** Loads koffi. @throws UnavailableError */
export function requireFfi(): Koffi {
  const ffi = loadFfi();
  if ("available" in ffi) throw new UnavailableError(ffi.what, ffi.why, ffi.howToGetIt);
  return ffi;
}

/** The address of a typed array's first byte. The array must own an ArrayBuffer: small arrays without one move. */
export function addressOf(array: ArrayBufferView): bigint {
  return requireFfi().address(array);
}

/** Views foreign memory as an ArrayBuffer. The caller keeps the memory alive as long as any view of it. */
export function viewMemory(address: bigint, sizeBytes: number): ArrayBuffer {
  return requireFfi().view(address, sizeBytes);
}

/** Reads a zero-terminated string at `address`; "" for a null pointer. */
export function readString(address: bigint): string {
  return address === 0n ? "" : requireFfi().decode.string(address);
}

/** Declares a struct, so that prototypes can name it and pass it by value. A second declaration is ignored. */
export function declareStruct(name: string, members: Readonly<Record<string, string>>): void {
  if (declared.has(name)) return;
  requireFfi().struct(name, { ...members });
  declared.add(name);
}
const declared = new Set<string>();
