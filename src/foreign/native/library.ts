/**
 * Finds and opens shared libraries: says where it looked, which symbols are there, and turns the status codes of a
 * library into NativeError. Knows nothing of any particular library.
 */
import { existsSync } from "node:fs";
import { basename, dirname, isAbsolute, join } from "node:path";
import type { LibraryHandle } from "koffi";
import { NativeError, type Unavailable, UnavailableError, UnsupportedError } from "../../core/index.ts";
import { koffi } from "./koffi.ts";

export interface LibrarySpec {
  /** What people call it: `NVML`, `NCCL`. */
  readonly name: string;
  /** Sonames, versioned first, as the system's loader finds them: `libnvidia-ml.so.1`. Absolute paths are tried too. */
  readonly files: readonly string[];
  /** Folders to look in after the loader's own. */
  readonly folders?: readonly string[];
  /** An environment variable whose value, a file or a folder, is tried instead of everything else. */
  readonly variable?: string;
  /** Symbols that the library must export; a file without them is not the right library. */
  readonly requires?: readonly string[];
  /** Says what else is wrong with a library that exports them all, such as its version. */
  readonly problem?: (library: NativeLibrary) => string | undefined;
  readonly howToGetIt: string;
}

export interface Attempt {
  readonly path: string;
  readonly why: string;
}

/** A library that could not be opened, and every place that was tried. */
export interface LibraryUnavailable extends Unavailable {
  readonly tried: readonly Attempt[];
}

/** A C signature: a result type and argument types, in koffi's names (`int`, `uint32_t`, `void *`, `_Out_ int *`). */
export interface Signature {
  readonly result: string;
  readonly args: readonly string[];
}

export type NativeValue = number | bigint | string | boolean | null | undefined | object;
/** A bound function. */
export type NativeFunction = (...args: NativeValue[]) => NativeValue;

type KoffiFunction = ReturnType<LibraryHandle["func"]>;

export interface NativeLibrary {
  readonly available: true;
  readonly name: string;
  /** The path or name that the loader was given. */
  readonly path: string;
  /** Says whether the library exports `symbol`. */
  has(symbol: string): boolean;
  /**
   * Binds a function; the same symbol and signature is bound once.
   * @throws UnsupportedError when the library does not export it
   */
  bind(symbol: string, result: string, args: readonly string[]): NativeFunction;
  /** Like `bind`, but the call runs on a thread of the pool, so that a library that blocks does not stop the event loop. */
  bindAsync(symbol: string, result: string, args: readonly string[]): (...args: NativeValue[]) => Promise<NativeValue>;
  /** The address of a symbol. @throws UnsupportedError when the library does not export it */
  address(symbol: string): bigint;
  /** Unloads it. Bound functions must not be called afterwards. */
  close(): void;
}

const NO_FILE = "no such file";
/** So many attempts are told one by one; more are told by what they have in common. */
const FEW_ATTEMPTS = 3;

/** Says in one line where a library was looked for. */
export function describeAttempts(attempts: readonly Attempt[]): string {
  if (attempts.length <= FEW_ATTEMPTS) return attempts.map(({ path, why }) => `${path}: ${why}`).join("; ");
  const paths = attempts.filter(({ why }) => why === NO_FILE).map(({ path }) => path);
  const files = [...new Set(paths.map((path) => basename(path)))].join(", ");
  const folders = [...new Set(paths.map((path) => dirname(path)))].join(", ");
  const others = attempts.filter(({ why }) => why !== NO_FILE);
  const reasons = [...new Set(others.map(({ why }) => why))].map((why) => {
    const named = others.filter((attempt) => attempt.why === why).map(({ path }) => path);
    return `${named.join(", ")}: ${why}`;
  });
  if (paths.length > 0) reasons.push(`no file ${files} in ${folders}`);
  return reasons.join("; ");
}

/** The paths that would be tried, in order. */
export function candidates(spec: LibrarySpec, env: NodeJS.ProcessEnv = process.env): string[] {
  const named = spec.variable === undefined ? undefined : env[spec.variable];
  if (named !== undefined && named !== "") return [named, ...spec.files.map((file) => join(named, file))];
  const further = (spec.folders ?? []).flatMap((folder) =>
    spec.files.filter((file) => !isAbsolute(file)).map((file) => join(folder, file)),
  );
  return [...new Set([...spec.files, ...further])];
}

/**
 * Opens the first of a library's candidates that loads and has the required symbols. A library or an FFI that is absent
 * is a value that says what was tried.
 */
export function openLibrary(
  spec: LibrarySpec,
  env: NodeJS.ProcessEnv = process.env,
): NativeLibrary | LibraryUnavailable {
  const tried: Attempt[] = [];
  try {
    const ffi = koffi();
    for (const path of candidates(spec, env)) {
      // The loader is not asked for a path that does not exist; a bare name it looks up itself.
      if (isAbsolute(path) && !existsSync(path)) {
        tried.push({ path, why: NO_FILE });
        continue;
      }
      let handle: LibraryHandle;
      try {
        handle = ffi.load(path);
      } catch (error) {
        tried.push({ path, why: loaderMessage(error, path) });
        continue;
      }
      const library = wrap(spec.name, path, handle);
      const missing = (spec.requires ?? []).filter((symbol) => !library.has(symbol));
      const problem = missing.length > 0 ? `does not export ${missing.join(", ")}` : spec.problem?.(library);
      if (problem === undefined) return library;
      tried.push({ path, why: problem });
      library.close();
    }
  } catch (error) {
    if (!(error instanceof UnavailableError)) throw error;
    // The library itself may be installed: what is missing is a way to call it.
    const { why, howToGetIt } = error.unavailable;
    tried.push({ path: "koffi", why });
    return {
      available: false,
      what: spec.name,
      why: `${error.unavailable.what} is missing: ${why}`,
      howToGetIt,
      tried,
    };
  }
  const named = spec.variable === undefined ? "" : (env[spec.variable] ?? "");
  const where = named === "" ? "tried" : `${spec.variable} names ${named}, and nothing else is tried:`;
  const why = `${where} ${describeAttempts(tried) || "nothing"}`;
  return { available: false, what: spec.name, why, howToGetIt: spec.howToGetIt, tried };
}

/** What the system's loader said, without the path that stands before it anyway. */
function loaderMessage(error: unknown, path: string): string {
  const text = error instanceof Error ? error.message : String(error);
  const line = text.replace(/^Failed to load shared library:?\s*/i, "").split("\n")[0] || "could not be loaded";
  return line.startsWith(`${path}: `) ? line.slice(path.length + 2) : line;
}

function wrap(name: string, path: string, handle: LibraryHandle): NativeLibrary {
  const bound = new Map<string, KoffiFunction>();
  const present = new Map<string, boolean>();
  const has = (symbol: string): boolean => {
    let known = present.get(symbol);
    if (known === undefined) {
      try {
        handle.symbol(symbol);
        known = true;
      } catch {
        known = false;
      }
      present.set(symbol, known);
    }
    return known;
  };
  const find = (symbol: string, result: string, args: readonly string[]): KoffiFunction => {
    const key = `${symbol}(${args.join(",")})${result}`;
    const known = bound.get(key);
    if (known !== undefined) return known;
    if (!has(symbol)) {
      throw new UnsupportedError(`${symbol} of ${name}`, `${path} does not export it; a newer ${name} may`);
    }
    const fn = handle.func(symbol, result, [...args]);
    bound.set(key, fn);
    return fn;
  };
  return {
    available: true,
    name,
    path,
    has,
    bind: (symbol, result, args) => find(symbol, result, args) as NativeFunction,
    bindAsync: (symbol, result, args) => {
      const fn = find(symbol, result, args);
      return (...values) =>
        new Promise((resolve, reject) => {
          fn.async(...values, (error: unknown, value: NativeValue) => (error ? reject(error) : resolve(value)));
        });
    },
    address: (symbol) => {
      if (!has(symbol)) throw new UnsupportedError(`${symbol} of ${name}`, `${path} does not export it`);
      return koffi().address(handle.symbol(symbol));
    },
    close: () => handle.unload(),
  };
}

/**
 * Checks a status code.
 * @param text turns a code into words, if the library can
 * @throws NativeError when `status` is not 0
 */
export function checkStatus(
  library: string,
  symbol: string,
  status: NativeValue,
  text?: (status: number) => string,
): void {
  const code = typeof status === "number" ? status : Number(status);
  if (code !== 0) throw new NativeError(library, symbol, code, text?.(code) ?? "no text for this code");
}
