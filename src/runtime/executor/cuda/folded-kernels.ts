/**
 * Kernels of a plan for launches of one size alone, in the place of the one whose sizes are arguments: of sizes that repeat, and of those
 * that a program called before it captures. They are compiled on another thread, or taken from the cache on disk, and loaded when nothing
 * of this rank is on its device: a driver waits for that. No call waits for them. What ranks tell each other is the same with both, so
 * each rank changes from one to the other by itself (bench/results/cuda-folded-2026-11-29.md).
 */
import { ChoraleError } from "../../../core/index.ts";
import { oneOf } from "../../../core/internal.ts";
import { type CudaDevice, type CudaKernel, requireNvrtc } from "../../device/index.ts";
import { compileAside, keptCubin } from "./cubin-cache.ts";
import type { GeneratedKernel } from "./generate.ts";
import { releaseModule, useModule } from "./kernel-modules.ts";
import type { FoldedSizes } from "./launch-layout.ts";

const FOLD_VARIABLE = "CHORALE_CUDA_FOLD";
/** Parts from which on nothing is gained: bench/results/cuda-folded-2026-11-29.md. */
const MOST_PART_BYTES = 8 << 20;
/** Kernels of a plan, of one element type and operator, beside its own. */
const MOST_KERNELS = 8;
/** Sizes that were called last, as far as a capture asks. */
const RECENT_SIZES = 4;
/** Compilations that a thread waits for: of more at once the rest comes when it repeats again. */
const MOST_WAITING = 16;
/** How often it is looked whether a kernel may be loaded, ms: at first, and at last. */
const [FIRST_LOOK_MS, LAST_LOOK_MS] = [1, 256] as const;
const UNIT_BYTES = 16;

interface FoldingPlace {
  readonly device: CudaDevice;
  readonly kernel: GeneratedKernel;
  /** How much of a multiprocessor a block may take: there is room for that. */
  readonly fits: (kernel: CudaKernel) => boolean;
  readonly sizesOf: (partBytes: number) => FoldedSizes;
  /** Whether nothing of this rank is on its device, nor goes into a graph. */
  readonly isQuiet: () => boolean;
  /** A size has a kernel of its own from now on. */
  readonly changed: () => void;
}

interface Folded {
  readonly source: string;
  cubin: Uint8Array | undefined;
  /** Once it is loaded; `null` where it cannot be. */
  kernel: CudaKernel | null | undefined;
}

/** What the environment says of it. @throws InvalidArgumentError */
export function foldsSizes(): boolean {
  return oneOf(process.env[FOLD_VARIABLE] || "on", FOLD_VARIABLE, ["on", "off"]) === "on";
}

let compiling: Promise<unknown> = Promise.resolve();
let numWaiting = 0;

export class FoldedKernels {
  readonly #place: FoldingPlace;
  /** By bytes of a part. */
  readonly #found = new Map<number, Folded>();
  readonly #recent: number[] = [];
  #nextRecent = 0;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  /** @returns undefined where nothing is gained, or the environment says not to @throws InvalidArgumentError */
  static of(place: FoldingPlace): FoldedKernels | undefined {
    return foldsSizes() && place.kernel.foldedSource !== undefined ? new FoldedKernels(place) : undefined;
  }

  private constructor(place: FoldingPlace) {
    this.#place = place;
  }

  /** The kernel for a launch, if it has one of its own. */
  kernelFor(partBytes: number, input: number, output: number): CudaKernel | undefined {
    const kernel = this.#found.get(partBytes)?.kernel ?? undefined;
    return kernel !== undefined && input % UNIT_BYTES === 0 && output % UNIT_BYTES === 0 ? kernel : undefined;
  }

  /** Notes the size of a call: it may be captured next. */
  called(partBytes: number): void {
    this.#recent[this.#nextRecent] = partBytes;
    this.#nextRecent = (this.#nextRecent + 1) % RECENT_SIZES;
  }

  /** Has a size that repeats compiled, for later calls: not before the one that is being made is over. */
  repeated(partBytes: number): void {
    if (this.#found.get(partBytes)?.kernel !== undefined) return;
    setTimeout(() => this.#compile(partBytes), FIRST_LOOK_MS).unref();
  }

  /** Loads what has been compiled of the sizes that were called last, and has the rest compiled for the next time. */
  beforeCapture(): void {
    for (const partBytes of this.#recent) this.#compile(partBytes);
    this.#load();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const { source, kernel } of this.#found.values())
      if (kernel !== undefined && kernel !== null) releaseModule(this.#place.device, source);
    this.#found.clear();
  }

  #fold(partBytes: number): Folded | undefined {
    const known = this.#found.get(partBytes);
    if (known !== undefined) return known;
    const { kernel, sizesOf } = this.#place;
    const isSmall = partBytes > 0 && partBytes <= MOST_PART_BYTES && partBytes % UNIT_BYTES === 0;
    if (!isSmall || this.#found.size === MOST_KERNELS || kernel.foldedSource === undefined) return undefined;
    const made = { source: kernel.foldedSource(sizesOf(partBytes)), cubin: undefined, kernel: undefined };
    this.#found.set(partBytes, made);
    return made;
  }

  #compile(partBytes: number): void {
    const folded = this.#closed ? undefined : this.#fold(partBytes);
    if (folded === undefined || folded.cubin !== undefined || folded.kernel !== undefined) return;
    if (numWaiting === MOST_WAITING) return;
    const { computeCapability } = this.#place.device.info;
    const nvrtc = requireNvrtc();
    folded.cubin = keptCubin(nvrtc, folded.source, computeCapability);
    if (folded.cubin !== undefined) {
      this.#loadWhenQuiet(FIRST_LOOK_MS);
      return;
    }
    // Until it is there.
    folded.kernel = null;
    numWaiting++;
    compiling = compiling.then(async () => {
      try {
        if (this.#closed) return;
        folded.cubin = await compileAside(nvrtc, folded.source, computeCapability);
        folded.kernel = undefined;
        this.#loadWhenQuiet(FIRST_LOOK_MS);
      } catch (error) {
        if (!(error instanceof ChoraleError)) throw error;
      } finally {
        numWaiting--;
      }
    });
  }

  #loadWhenQuiet(afterMs: number): void {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      if (!this.#load()) this.#loadWhenQuiet(Math.min(LAST_LOOK_MS, 2 * afterMs));
    }, afterMs).unref();
  }

  /** Loads what is compiled, if that may be done now. @returns whether nothing is left to load */
  #load(): boolean {
    const { device, kernel, fits, isQuiet, changed } = this.#place;
    const ready = [...this.#found.values()].filter((one) => one.cubin !== undefined && one.kernel === undefined);
    if (ready.length === 0 || this.#closed) return true;
    if (device.poison !== undefined || device.closed) return true;
    try {
      if (!isQuiet()) return false;
      for (const one of ready) {
        const { cubin } = one;
        // Should that fail: the kernel whose sizes are arguments goes on.
        one.cubin = undefined;
        one.kernel = null;
        const made = useModule(device, one.source, cubin).kernel(kernel.entry);
        if (fits(made)) one.kernel = made;
        else releaseModule(device, one.source);
      }
      changed();
    } catch (error) {
      if (!(error instanceof ChoraleError)) throw error;
    }
    return true;
  }
}
