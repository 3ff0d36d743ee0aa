/** Finding and loading shared libraries, and binding their symbols. */
import { existsSync } from "node:fs";
import { NativeError, type Unavailable } from "../../core/index.ts";
import { loadFfi, type NativeFunction, type requireFfi } from "./ffi.ts";

/** Where a library may be. */
export interface LibrarySearch {
  /** What people call it: "NVIDIA driver (libcuda)". */
  readonly what: string;
  /** An environment variable that names the file, tried first and alone when set. */
  readonly envVariable: string;
  /** Names for the system's loader and absolute paths, best first. A path that does not exist is skipped. */
  readonly candidates: readonly string[];
  readonly howToGetIt: string;
  /** Makes its symbols visible to libraries loaded later (Open MPI's plugins need it). */
  readonly global?: boolean;
}

/** What happened at one place that was searched. */
export interface SearchAttempt {
  readonly candidate: string;
  readonly outcome: string;
}

export type MissingLibrary = Unavailable & { readonly attempts: readonly SearchAttempt[] };

/** A loaded library. */
export class NativeLibrary {
  readonly what: string;
  readonly path: string;
  readonly #handle: ReturnType<ReturnType<typeof requireFfi>["load"]>;

  constructor(what: string, path: string, handle: ReturnType<ReturnType<typeof requireFfi>["load"]>) {
    this.what = what;
    this.path = path;
    this.#handle = handle;
  }

  /** Binds the function of a C prototype, or `undefined` when the library does not export it. */
  find<R = number>(prototype: string): NativeFunction<R> | undefined {
    try {
      return this.#handle.func(prototype) as NativeFunction<R>;
    } catch (error) {
      if (error instanceof Error && /cannot find function/i.test(error.message)) return undefined;
      throw error;
    }
  }

  /** Says whether the library exports `symbol`. */
  exports(symbol: string): boolean {
    return this.find(`void ${symbol}()`) !== undefined;
  }

  /**
   * Binds every function of a table of prototypes.
   * @throws NativeError naming the symbols that the library lacks
   */
  bind<S extends string>(prototypes: Readonly<Record<S, string>>): Readonly<Record<S, NativeFunction>> {
    const names = Object.keys(prototypes) as S[];
    const bound = names.map((name) => [name, this.find(prototypes[name])] as const);
    const missing = bound.filter(([, fn]) => fn === undefined).map(([name]) => name);
    if (missing.length > 0) {
      throw new NativeError(this.path, missing[0] ?? "", -1, `the library lacks ${missing.join(", ")}: it is too old`);
    }
    return Object.fromEntries(bound) as Record<S, NativeFunction>;
  }
}

/** Finds and loads a library, or says where it was looked for and what each place answered. */
export function openLibrary(search: LibrarySearch): NativeLibrary | MissingLibrary {
  const attempts: SearchAttempt[] = [];
  const missing = (why: string): MissingLibrary => ({
    available: false,
    what: search.what,
    why,
    howToGetIt: search.howToGetIt,
    attempts,
  });
  const ffi = loadFfi();
  if ("available" in ffi) return missing(`koffi is missing: ${ffi.why}`);
  const override = process.env[search.envVariable];
  const candidates = override === undefined || override === "" ? search.candidates : [override];
  for (const candidate of candidates) {
    if (candidate.includes("/") && !existsSync(candidate)) {
      attempts.push({ candidate, outcome: "no such file" });
      continue;
    }
    try {
      return new NativeLibrary(search.what, candidate, ffi.load(candidate, { global: search.global === true }));
    } catch (error) {
      attempts.push({ candidate, outcome: error instanceof Error ? error.message : String(error) });
    }
  }
  const list = attempts.map(({ candidate, outcome }) => `${candidate} (${outcome})`).join("; ");
  return missing(`looked for ${list}${override ? `, named by ${search.envVariable}` : ""}`);
}
