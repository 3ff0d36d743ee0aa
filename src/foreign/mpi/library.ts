/**
 * One MPI library of this machine: its functions, bound with handles of its width, and its errors. The one
 * that is loaded belongs to the launcher that started this process, since its ranks meet through no other;
 * `CHORALE_MPI_LIBRARY` names another. Nothing here initialises MPI.
 */
import { NativeError, type Unavailable, UnavailableError } from "../../core/index.ts";
import {
  addressOf,
  bindAll,
  copyMemory,
  cString,
  keepLoaded,
  type LibrarySpec,
  type MemoryCopy,
  type NativeLibrary,
  openLibrary,
  type StatusFunction,
} from "../native/index.ts";
import { abiOf, type MpiAbi, type MpiHandles, OPEN_MPI_WORLD } from "./abi.ts";
import { MPI_ABILITIES, MPI_PROTOTYPES, type MpiSymbol } from "./prototypes.ts";
import { type LaunchedBy, launchedBy } from "./started-by.ts";
import { type UlfmState, ulfmOf } from "./ulfm.ts";

/** MPI_MAX_LIBRARY_VERSION_STRING is 256 in Open MPI and 8192 in MPICH. */
const VERSION_BYTES = 8192;
/** MPI_MAX_ERROR_STRING: 256 in Open MPI, 512 in MPICH and the standard. */
const ERROR_BYTES = 1024;

const OPEN_MPI_FILES = ["libmpi.so.40", "libmpi.so.80", "libmpi.40.dylib"];
const MPICH_FILES = ["libmpich.so.12", "libmpi.so.12", "libmpi.12.dylib"];
const STANDARD_FILES = ["libmpi_abi.so.1", "libmpi_abi.so.0"];
/** Where distributions and vendors install libraries outside the loader's search path. */
const FOLDERS = [
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/lib64/openmpi/lib",
  "/usr/lib64/mpich/lib",
  "/usr/local/lib",
  "/opt/amazon/openmpi/lib64",
  "/opt/amazon/openmpi/lib",
  "/usr/local/mpi/lib",
  "/opt/intel/oneapi/mpi/latest/lib",
  "/opt/intel/oneapi/mpi/latest/lib/release",
  "/opt/cray/pe/lib64",
  "/opt/homebrew/lib",
];

const HOW =
  "Install one (Debian and Ubuntu: apt-get install openmpi-bin; RHEL: dnf install openmpi; macOS: brew install open-mpi), or name the library in CHORALE_MPI_LIBRARY.";

/** Where MPI is looked for, the launcher's own library first. */
export function mpiLibrary(by: LaunchedBy | undefined = launchedBy()): LibrarySpec {
  const groups = by?.family === "MPICH" ? [MPICH_FILES, OPEN_MPI_FILES] : [OPEN_MPI_FILES, MPICH_FILES];
  return { ...spec("MPI"), files: [...groups.flat(), ...STANDARD_FILES] };
}

/** Every MPI that may be here, for `doctor`. */
export function mpiLibraries(): readonly LibrarySpec[] {
  return [
    { ...spec("Open MPI"), files: OPEN_MPI_FILES, requires: ["MPI_Iallreduce", OPEN_MPI_WORLD] },
    { ...spec("MPICH (or Intel MPI)"), files: MPICH_FILES },
  ];
}

function spec(name: string): Omit<LibrarySpec, "files"> {
  return {
    name,
    folders: FOLDERS,
    variable: "CHORALE_MPI_LIBRARY",
    requires: ["MPI_Init_thread", "MPI_Iallreduce", "MPI_Get_library_version"],
    howToGetIt: HOW,
  };
}

/** The address of a typed array that owns its memory, as a number. */
const addressNumber = (array: ArrayBufferView): number => Number(addressOf(array));

export class MpiLibrary {
  readonly path: string;
  readonly abi: MpiAbi;
  readonly handles: MpiHandles;
  readonly api: Readonly<Record<MpiSymbol, StatusFunction>>;
  /** `Open MPI 4.1.4`, `MPICH 4.0.2`: its usual name, from its version string. */
  readonly name: string;
  /** Its version string, in full. */
  readonly versionText: string;
  readonly abilities: Readonly<Record<keyof typeof MPI_ABILITIES, boolean>>;
  readonly ulfm: UlfmState;
  /** Yields this core to another process. */
  readonly yieldCore: () => void;
  /** C's memcpy: to one address, from another, so many bytes. */
  readonly copy: MemoryCopy;

  constructor(library: NativeLibrary) {
    this.path = library.path;
    this.versionText = versionOf(library);
    this.abi = abiOf(library, this.versionText);
    this.name = shortName(this.versionText);
    this.handles = this.abi.handles(library);
    const typed = (prototype: string) =>
      prototype.replace(/\bH (?=\w)/g, `${this.abi.handleType} `).replace(/\bA (?=\w)/g, "intptr_t ");
    this.api = bindAll(
      library,
      Object.fromEntries(Object.entries(MPI_PROTOTYPES).map(([symbol, text]) => [symbol, typed(text)])) as Record<
        MpiSymbol,
        string
      >,
    );
    this.abilities = Object.fromEntries(
      Object.entries(MPI_ABILITIES).map(([ability, symbol]) => [ability, library.has(symbol)]),
    ) as Record<keyof typeof MPI_ABILITIES, boolean>;
    this.ulfm = ulfmOf(library, this.name);
    // The C library is among the library's dependencies, so its symbols are found through it.
    const sched = library.has("sched_yield") ? library.bind("sched_yield", "int", []) : undefined;
    this.yieldCore = () => void sched?.();
    this.copy = copyMemory();
  }

  /** @throws NativeError when `status` is not MPI_SUCCESS */
  check(symbol: string, status: number): void {
    if (status !== 0) throw this.error(symbol, status);
  }

  /** The error of a status, with MPI's own text. */
  error(symbol: string, status: number): NativeError {
    const text = new Uint8Array(new ArrayBuffer(ERROR_BYTES));
    const length = new Int32Array(new ArrayBuffer(4));
    const told = this.api.MPI_Error_string(status, addressNumber(text), addressNumber(length)) === 0;
    const words = told ? cString(Buffer.from(text.buffer)) : "no text for this code";
    return new NativeError(this.name, symbol, status, words.trim().replaceAll(/\s*\n\s*/g, "; "));
  }

  /** Reads an integer that a function writes. */
  integer(symbol: MpiSymbol, call: (out: number) => number): number {
    const out = new Int32Array(new ArrayBuffer(4));
    this.check(symbol, call(addressNumber(out)));
    return out[0] ?? 0;
  }

  /** Reads a handle that a function writes. */
  handle(symbol: MpiSymbol, call: (out: number) => number): number {
    const out = new ArrayBuffer(8);
    this.check(symbol, call(addressNumber(new Uint8Array(out))));
    return this.abi.handleBytes === 4 ? (new Int32Array(out)[0] ?? 0) : Number(new BigInt64Array(out)[0]);
  }

  /** Gives a handle's place to a function that frees it. */
  withHandle(symbol: MpiSymbol, handle: number, call: (place: number) => number): void {
    const at = new ArrayBuffer(8);
    if (this.abi.handleBytes === 4) new Int32Array(at)[0] = handle;
    else new BigInt64Array(at)[0] = BigInt(handle);
    this.check(symbol, call(addressNumber(new Uint8Array(at))));
  }
}

/** May be asked before MPI is initialised. */
function versionOf(library: NativeLibrary): string {
  const text = new Uint8Array(new ArrayBuffer(VERSION_BYTES));
  const length = new Int32Array(new ArrayBuffer(4));
  const ask = library.bind("MPI_Get_library_version", "int", ["intptr_t", "intptr_t"]);
  ask(addressNumber(text), addressNumber(length));
  return cString(Buffer.from(text.buffer)).trim();
}

/** What a library is called, and what is known of its ULFM. Initialises nothing. */
export function describeMpi(library: NativeLibrary): { readonly name: string; readonly ulfm: UlfmState } {
  const name = shortName(versionOf(library));
  return { name, ulfm: ulfmOf(library, name) };
}

function shortName(text: string): string {
  const open = /Open MPI v?([\d.]+\w*)/.exec(text);
  if (open !== null) return `Open MPI ${open[1]}`;
  const mpich = /^(MPICH|MVAPICH2?|CRAY MPICH)\s*(?:Version)?\s*:?\s*([\d.]+\w*)/i.exec(text);
  if (mpich !== null) return `${mpich[1]} ${mpich[2]}`;
  const intel = /Intel\(R\) MPI Library ([\d.]+)/.exec(text);
  if (intel !== null) return `Intel MPI ${intel[1]}`;
  return text.split("\n")[0] || "an unnamed MPI";
}

/** By the library that the environment names; "" where it names none. */
const loaded = new Map<string, MpiLibrary | Unavailable>();

/** Loads MPI, or says why there is none. Tried once for each library that is named. */
function loadMpi(env: NodeJS.ProcessEnv = process.env): MpiLibrary | Unavailable {
  const key = env["CHORALE_MPI_LIBRARY"] ?? "";
  let found = loaded.get(key);
  if (found === undefined) {
    found = open(env);
    loaded.set(key, found);
  }
  return found;
}

function open(env: NodeJS.ProcessEnv): MpiLibrary | Unavailable {
  // UCX's own handlers would take the signals by which V8 catches WebAssembly traps.
  process.env["UCX_ERROR_SIGNALS"] ??= "";
  // To try its hooks, UCX grows the heap by a page and takes the page back: if a thread of V8 allocates in between, that
  // page is no longer UCX's, and the process crashes later (seen with MPICH 4.0.2 and UCX 1.13.1, once in 20 to 60 starts).
  process.env["UCX_MEM_MMAP_HOOK_MODE"] ??= "none";
  const library = openLibrary(mpiLibrary(launchedBy(env)), env);
  if (!library.available) return library;
  try {
    keepLoaded(library);
    return new MpiLibrary(library);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { available: false, what: "MPI", why: `${library.path}: ${why}`, howToGetIt: HOW };
  }
}

/** Loads MPI. @throws UnavailableError saying where it was looked for */
export function requireMpi(env: NodeJS.ProcessEnv = process.env): MpiLibrary {
  const mpi = loadMpi(env);
  if ("available" in mpi) throw new UnavailableError(mpi.what, mpi.why, mpi.howToGetIt);
  return mpi;
}
