/** NCCL, loaded once per thread: where it is looked for, its version, its functions, its errors. */
import { readdirSync } from "node:fs";
import { NativeError, type Unavailable, UnavailableError } from "../../core/index.ts";
import { type CudaDriver, DRIVER_FOLDERS, requireCudaDriver, toolkitFolders } from "../cuda/index.ts";
import {
  bindAll,
  bindOptional,
  declareStruct,
  keepLoaded,
  type LibrarySpec,
  type NativeLibrary,
  openLibrary,
  type StatusFunction,
  type TextFunction,
} from "../native/index.ts";
import {
  NCCL_OPTIONAL,
  NCCL_PROTOTYPES,
  NCCL_RESULT,
  NCCL_TEXT_PROTOTYPES,
  type NcclOptionalSymbol,
  type NcclSymbol,
  UNIQUE_ID_BYTES,
  UNIQUE_ID_STRUCT,
} from "./symbols.ts";

function text(library: NativeLibrary, symbol: keyof typeof NCCL_TEXT_PROTOTYPES): TextFunction | undefined {
  return bindOptional(library, symbol, NCCL_TEXT_PROTOTYPES[symbol]) as TextFunction | undefined;
}

/** Decodes ncclGetVersion: up to 2.8 the code is major * 1000 + minor * 100 + patch, from 2.9 major * 10000. */
export function decodeVersion(code: number): readonly [major: number, minor: number, patch: number] {
  return code < 10000
    ? [Math.floor(code / 1000), Math.floor((code % 1000) / 100), code % 100]
    : [Math.floor(code / 10000), Math.floor((code % 10000) / 100), code % 100];
}

/** A loaded NCCL: version, functions and errors. `loadNccl` makes it. */
export class NcclLibrary {
  readonly path: string;
  readonly versionCode: number;
  /** `2.28.3` */
  readonly version: string;
  readonly api: Readonly<Record<NcclSymbol, StatusFunction>>;
  readonly optional: { readonly [S in NcclOptionalSymbol]?: StatusFunction };
  readonly #errorString: TextFunction | undefined;
  readonly #lastError: TextFunction | undefined;

  constructor(library: NativeLibrary) {
    declareStruct(UNIQUE_ID_STRUCT.name, UNIQUE_ID_STRUCT.members);
    this.path = library.path;
    this.api = bindAll(library, NCCL_PROTOTYPES);
    const optional: { [S in NcclOptionalSymbol]?: StatusFunction } = {};
    for (const [symbol, { prototype }] of Object.entries(NCCL_OPTIONAL)) {
      const fn = bindOptional(library, symbol, prototype);
      if (fn !== undefined) optional[symbol as NcclOptionalSymbol] = fn;
    }
    this.optional = optional;
    this.#errorString = text(library, "ncclGetErrorString");
    this.#lastError = text(library, "ncclGetLastError");
    const out = new Int32Array(1);
    this.check("ncclGetVersion", this.api.ncclGetVersion(out));
    this.versionCode = out[0] ?? 0;
    this.version = decodeVersion(this.versionCode).join(".");
  }

  /** Throws unless `status` is success; "in progress" passes, for the caller polls. @throws NativeError */
  check(symbol: string, status: number, comm?: bigint): void {
    if (status !== NCCL_RESULT.success && status !== NCCL_RESULT.inProgress) throw this.error(symbol, status, comm);
  }

  /** The error of a status, with NCCL's last words for the communicator. */
  error(symbol: string, status: number, comm?: bigint): NativeError {
    const text = this.#errorString?.(status) ?? "unknown result";
    const last = comm === undefined ? "" : (this.#lastError?.(comm) ?? "");
    return new NativeError(`NCCL ${this.version}`, symbol, status, last === "" ? text : `${text} (${last.trim()})`);
  }

  /** An optional function. @throws UnavailableError naming the version that brought it */
  require(symbol: NcclOptionalSymbol): StatusFunction {
    const fn = this.optional[symbol];
    if (fn === undefined) {
      throw new UnavailableError(
        symbol,
        `NCCL ${this.version} at ${this.path} does not export it`,
        `It needs NCCL ${NCCL_OPTIONAL[symbol].since} or newer.`,
      );
    }
    return fn;
  }

  /** Draws a unique id: rank 0 of a communicator draws it and the others receive it. */
  uniqueId(): Uint8Array {
    const id = new Uint8Array(UNIQUE_ID_BYTES);
    this.check("ncclGetUniqueId", this.api.ncclGetUniqueId(id));
    return id;
  }
}

/** NCCL of Python wheels: `lib/python3.x/site-packages/nvidia/nccl/lib` of an environment. */
function wheels(prefix: string | undefined): string[] {
  if (prefix === undefined) return [];
  try {
    return readdirSync(`${prefix}/lib`)
      .filter((name) => /^python3\.\d+$/.test(name))
      .map((name) => `${prefix}/lib/${name}/site-packages/nvidia/nccl/lib/libnccl.so.2`);
  } catch {
    return [];
  }
}

/** The oldest NCCL that has what every world needs (ncclCommInitRankConfig), and its version code. */
export const OLDEST_NCCL = "2.14";
const OLDEST_NCCL_CODE = 21400;

/** Why a library that calls itself NCCL cannot be used. */
function problemOf(library: NativeLibrary): string | undefined {
  const out = new Int32Array(1);
  const getVersion = bindOptional(library, "ncclGetVersion", NCCL_PROTOTYPES.ncclGetVersion);
  const status = getVersion?.(out) ?? -1;
  if (status !== NCCL_RESULT.success) return `ncclGetVersion answers ${status}`;
  const version = decodeVersion(out[0] ?? 0).join(".");
  if ((out[0] ?? 0) < OLDEST_NCCL_CODE) return `is NCCL ${version}, older than ${OLDEST_NCCL}, the oldest that will do`;
  const missing = Object.keys(NCCL_PROTOTYPES).filter((symbol) => !library.has(symbol));
  return missing.length === 0 ? undefined : `is NCCL ${version}, but does not export ${missing.join(", ")}`;
}

/** Where NCCL is looked for. */
export function ncclLibrary(): LibrarySpec {
  const conda = process.env["CONDA_PREFIX"];
  return {
    name: "NCCL",
    variable: "CHORALE_NCCL_LIBRARY",
    files: [
      ...wheels(process.env["VIRTUAL_ENV"]),
      ...wheels(conda),
      ...(conda === undefined ? [] : [`${conda}/lib/libnccl.so.2`]),
      "libnccl.so.2",
    ],
    folders: [...toolkitFolders(), ...DRIVER_FOLDERS, "/usr/local/lib"],
    requires: ["ncclGetVersion"],
    problem: problemOf,
    howToGetIt: `Install libnccl2 (or the nvidia-nccl wheel) ${OLDEST_NCCL} or newer, or name the library in CHORALE_NCCL_LIBRARY.`,
  };
}

let loaded: NcclLibrary | Unavailable | undefined;

/**
 * Loads NCCL, or says where it was looked for. Tried once per thread.
 * @example
 * import { loadNccl } from "chorale/nccl";
 *
 * const nccl = loadNccl();
 * console.log("available" in nccl ? nccl.why : `NCCL ${nccl.version} at ${nccl.path}`);
 */
export function loadNccl(): NcclLibrary | Unavailable {
  if (loaded !== undefined) return loaded;
  const library = openLibrary(ncclLibrary());
  if (library.available) keepLoaded(library);
  loaded = library.available ? new NcclLibrary(library) : library;
  return loaded;
}

/** Loads NCCL. @throws UnavailableError saying every place where it was looked for */
export function requireNccl(): NcclLibrary {
  const nccl = loadNccl();
  if ("available" in nccl) throw new UnavailableError(nccl.what, nccl.why, nccl.howToGetIt);
  return nccl;
}

/** Loads what a rank over NCCL calls: NCCL and the CUDA driver. @throws UnavailableError for the first that is missing */
export function requireEngine(): { readonly library: NcclLibrary; readonly driver: CudaDriver } {
  return { library: requireNccl(), driver: requireCudaDriver() };
}
