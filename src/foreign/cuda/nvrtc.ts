/** NVRTC: CUDA C++ to device code at run time. */
import { readdirSync } from "node:fs";
import { NativeError, type Unavailable, UnavailableError } from "../../core/index.ts";
import {
  bindAll,
  type LibrarySpec,
  type NativeLibrary,
  openLibrary,
  parsePrototype,
  type StatusFunction,
} from "../native/index.ts";
import { toolkitFolders } from "./search-folders.ts";
import { NVRTC_PROTOTYPES, type NvrtcSymbol } from "./symbols.ts";

/** Loaded NVRTC. */
export class Nvrtc {
  readonly path: string;
  readonly version: readonly [major: number, minor: number];
  readonly #api: Readonly<Record<NvrtcSymbol, StatusFunction>>;

  readonly #compileAside: ReturnType<NativeLibrary["bindAsync"]>;

  constructor(library: NativeLibrary) {
    const api = bindAll(library, NVRTC_PROTOTYPES);
    this.path = library.path;
    this.#api = api;
    const { result, args } = parsePrototype(NVRTC_PROTOTYPES.nvrtcCompileProgram);
    this.#compileAside = library.bindAsync("nvrtcCompileProgram", result, args);
    const out = new Int32Array(2);
    api.nvrtcVersion(out.subarray(0, 1), out.subarray(1, 2));
    this.version = [out[0] ?? 0, out[1] ?? 0];
  }

  /**
   * Compiles one translation unit to a cubin.
   * @throws NativeError whose text is the compiler's log
   */
  compile(source: string, computeCapability: readonly [number, number], options: readonly string[] = []): Uint8Array {
    const program = this.#create(source);
    try {
      const all = optionsFor(computeCapability, options);
      return this.#cubinOf(program, this.#api.nvrtcCompileProgram(program[0] ?? 0n, all.length, all));
    } finally {
      this.#api.nvrtcDestroyProgram(program);
    }
  }

  /**
   * The same on another thread of the process: the event loop goes on.
   * @throws (rejects with) NativeError whose text is the compiler's log
   * @example
   * import { requireNvrtc } from "chorale/device";
   *
   * const source = `extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }`;
   * const cubin = await requireNvrtc().compileAside(source, [9, 0]);
   * console.log(cubin.length > 0); // true
   */
  async compileAside(source: string, computeCapability: readonly [number, number]): Promise<Uint8Array> {
    const program = this.#create(source);
    try {
      const all = optionsFor(computeCapability, []);
      return this.#cubinOf(program, Number(await this.#compileAside(program[0] ?? 0n, all.length, all)));
    } finally {
      this.#api.nvrtcDestroyProgram(program);
    }
  }

  #create(source: string): BigUint64Array {
    const program = new BigUint64Array(1);
    this.#check("nvrtcCreateProgram", this.#api.nvrtcCreateProgram(program, source, "chorale.cu", 0, null, null));
    return program;
  }

  #cubinOf([handle = 0n]: BigUint64Array, status: number): Uint8Array {
    if (status !== 0) throw new NativeError("NVRTC", "nvrtcCompileProgram", status, this.#log(handle));
    const size = new BigUint64Array(1);
    this.#check("nvrtcGetCUBINSize", this.#api.nvrtcGetCUBINSize(handle, size));
    const image = new Uint8Array(Number(size[0]));
    this.#check("nvrtcGetCUBIN", this.#api.nvrtcGetCUBIN(handle, image));
    return image;
  }

  #log(program: bigint): string {
    const size = new BigUint64Array(1);
    this.#api.nvrtcGetProgramLogSize(program, size);
    const log = new Uint8Array(Number(size[0]));
    this.#api.nvrtcGetProgramLog(program, log);
    return Buffer.from(log).toString("utf8").replace(/\0+$/, "").trim();
  }

  #check(symbol: NvrtcSymbol, status: number): void {
    if (status !== 0) throw new NativeError("NVRTC", symbol, status, "see nvrtc.h");
  }
}

const optionsFor = (computeCapability: readonly [number, number], more: readonly string[]) => [
  `--gpu-architecture=sm_${computeCapability.join("")}`,
  "--std=c++17",
  ...more,
];

let loaded: Nvrtc | Unavailable | undefined;

/** Libraries named libnvrtc.so.N in the usual CUDA folders, newest first. */
function installed(): string[] {
  return toolkitFolders().flatMap((folder) => {
    try {
      return readdirSync(folder)
        .filter((name) => /^libnvrtc\.so\.\d+$/.test(name))
        .sort()
        .reverse()
        .map((name) => `${folder}/${name}`);
    } catch {
      return [];
    }
  });
}

/** Where NVRTC is looked for. */
export function nvrtcLibrary(): LibrarySpec {
  return {
    name: "NVRTC",
    variable: "CHORALE_NVRTC_LIBRARY",
    files: ["libnvrtc.so.13", "libnvrtc.so.12", ...installed(), "libnvrtc.so", "libnvrtc.so.11.2"],
    requires: ["nvrtcGetCUBIN"],
    howToGetIt:
      "Install the CUDA toolkit's nvrtc package, set CUDA_HOME, or name the library in CHORALE_NVRTC_LIBRARY.",
  };
}

/**
 * Loads NVRTC, or says where it was looked for.
 * @example
 * import { loadNvrtc } from "chorale/device";
 *
 * const nvrtc = loadNvrtc();
 * console.log("available" in nvrtc ? nvrtc.howToGetIt : nvrtc.version.join("."));
 */
export function loadNvrtc(): Nvrtc | Unavailable {
  if (loaded !== undefined) return loaded;
  const library = openLibrary(nvrtcLibrary());
  loaded = library.available ? new Nvrtc(library) : library;
  return loaded;
}

/** Loads NVRTC. @throws UnavailableError saying every place where it was looked for */
export function requireNvrtc(): Nvrtc {
  const nvrtc = loadNvrtc();
  if ("available" in nvrtc) throw new UnavailableError(nvrtc.what, nvrtc.why, nvrtc.howToGetIt);
  return nvrtc;
}
