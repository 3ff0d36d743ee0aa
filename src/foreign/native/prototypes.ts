/** Tables of C prototypes bound at once, structs by value, and foreign memory seen from JavaScript. */
import { NativeError } from "../../core/index.ts";
import { koffi } from "./koffi.ts";
import type { NativeLibrary, NativeValue } from "./library.ts";

/** A function that returns a status code. */
export type StatusFunction = (...args: readonly NativeValue[]) => number;
/** A function that returns text, or null. */
export type TextFunction = (...args: readonly NativeValue[]) => string | null;

interface Prototype {
  readonly result: string;
  readonly args: readonly string[];
}

/** Splits `int f(void *a, size_t n)` into its types: parameter names are for readers. */
export function parsePrototype(prototype: string): Prototype {
  const match = /^(.*?[\s*])(\w+)\((.*)\)$/.exec(prototype);
  const list = (match?.[3] ?? "").trim();
  return {
    result: (match?.[1] ?? "").trim(),
    args:
      list === ""
        ? []
        : list.split(",").map((parameter) =>
            parameter
              .trim()
              .replace(/\b\w+$/, "")
              .trim(),
          ),
  };
}

/** Binds the function of a prototype, or `undefined` when the library does not export it. */
export function bindOptional(library: NativeLibrary, symbol: string, prototype: string): StatusFunction | undefined {
  if (!library.has(symbol)) return undefined;
  const { result, args } = parsePrototype(prototype);
  return library.bind(symbol, result, args) as StatusFunction;
}

/**
 * Binds every function of a table of prototypes.
 * @throws NativeError naming all symbols that the library lacks
 */
export function bindAll<S extends string>(
  library: NativeLibrary,
  prototypes: Readonly<Record<S, string>>,
): Readonly<Record<S, StatusFunction>> {
  const symbols = Object.keys(prototypes) as S[];
  const missing = symbols.filter((symbol) => !library.has(symbol));
  if (missing.length > 0) {
    throw new NativeError(library.name, missing[0] ?? "", -1, `${library.path} lacks ${missing.join(", ")}: too old`);
  }
  return Object.fromEntries(
    symbols.map((symbol) => [symbol, bindOptional(library, symbol, prototypes[symbol])]),
  ) as Record<S, StatusFunction>;
}

const declared = new Set<string>();

/** Declares a struct, so that prototypes can name it and pass it by value. A second declaration is ignored. */
export function declareStruct(name: string, members: Readonly<Record<string, string>>): void {
  if (declared.has(name)) return;
  koffi().struct(name, { ...members });
  declared.add(name);
}

/**
 * The address of a typed array's first byte. The array must own its ArrayBuffer: the garbage collector moves small arrays
 * that have none.
 */
export function addressOf(array: ArrayBufferView): bigint {
  return koffi().address(array);
}

/** Reads a zero-terminated string at `address`; "" for a null pointer. */
export function readString(address: bigint): string {
  return address === 0n ? "" : koffi().decode.string(address);
}

const RTLD_LAZY_NODELETE = 0x1001;

/**
 * Keeps a library mapped until the process ends. koffi closes a library when the thread that opened it ends, but the
 * driver and NCCL still have threads of their own that run its code.
 */
export function keepLoaded(library: NativeLibrary): void {
  if (process.platform !== "linux") return;
  koffi().load(null).func("void *dlopen(const char *path, int flags)")(library.path, RTLD_LAZY_NODELETE);
}
