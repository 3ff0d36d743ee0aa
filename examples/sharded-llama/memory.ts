/**
 * A rank's private memory: weights, KV cache and scratch in WASM memories, where the kernels reach them. One memory
 * addresses 4 GiB, so a rank may have several ("arenas"); a layer and its cache lie in one of them, and the
 * activations (a few KiB a token) are copied where the next layer's arena is another.
 */
import { freemem, hostname } from "node:os";
import { OutOfMemoryError } from "chorale";
import { type Kernels, kernelsOver } from "./kernels.ts";
import { newMemory, PAGE_BYTES } from "./wasm.ts";

/** Largest arena. The last page stays out, so that no end address wraps to 0. */
export const MAX_ARENA_BYTES = 65_535 * PAGE_BYTES;
const ALIGN_BYTES = 64;

/** Bytes that `floats` elements take in an arena. */
export const roomFor = (floats: number): number => Math.ceil((floats * 4) / ALIGN_BYTES) * ALIGN_BYTES;

/** One WASM memory with the kernels over it, filled from the bottom up. */
export class Arena {
  readonly kernels: Kernels;
  readonly #buffer: ArrayBuffer;
  // Address 0 means "none".
  #next = ALIGN_BYTES;

  constructor(sizeBytes: number) {
    const memory = newMemory(Math.ceil((sizeBytes + ALIGN_BYTES) / PAGE_BYTES));
    this.#buffer = memory.buffer;
    this.kernels = kernelsOver(memory);
  }

  /** Reserves zeros and gives their address. */
  allocate(floats: number): number {
    const address = this.#next;
    this.#next += roomFor(floats);
    return address;
  }

  /** The elements at an address. */
  view(address: number, floats: number): Float32Array<ArrayBuffer> {
    return new Float32Array(this.#buffer, address, floats);
  }
}

/**
 * Groups consecutive blocks (layers, the head) into arenas.
 * @param scratchBytes what each arena needs besides its blocks
 * @returns the number of blocks in each arena
 * @throws OutOfMemoryError when one block alone is larger than an arena
 */
export function groupBlocks(
  blockBytes: readonly number[],
  scratchBytes: number,
  maxArenaBytes: number = MAX_ARENA_BYTES,
): readonly number[] {
  const groups: number[] = [];
  let used = maxArenaBytes + 1;
  for (const bytes of blockBytes) {
    if (bytes + scratchBytes + ALIGN_BYTES > maxArenaBytes) {
      throw new OutOfMemoryError(
        "one layer, or the head, of this rank",
        bytes + scratchBytes,
        maxArenaBytes,
        "A WASM memory addresses 4 GiB and a layer must fit one: raise tp, or shorten prompt and max-new-tokens.",
      );
    }
    if (used + bytes > maxArenaBytes) {
      groups.push(0);
      used = scratchBytes + ALIGN_BYTES;
    }
    groups[groups.length - 1]! += 1;
    used += bytes;
  }
  return groups;
}

/** What a rank needs, and what its machine has, before anybody allocates. */
export interface MemoryNeed {
  readonly host: string;
  readonly bytes: number;
  readonly freeBytes: number;
}

export const memoryNeed = (bytes: number): MemoryNeed => ({ host: hostname(), bytes, freeBytes: freemem() });

/**
 * Checks that every machine has memory for the ranks that run on it. All ranks see the same needs, so all throw or none.
 * @throws OutOfMemoryError before anything is allocated, instead of a kill by the system after
 */
export function checkFreeMemory(needs: readonly MemoryNeed[]): void {
  for (const host of new Set(needs.map((need) => need.host))) {
    const here = needs.filter((need) => need.host === host);
    const needed = here.reduce((sum, { bytes }) => sum + bytes, 0);
    const free = Math.min(...here.map(({ freeBytes }) => freeBytes));
    if (needed > free) {
      throw new OutOfMemoryError(
        `f32 weights, KV cache and scratch of ${here.length} ranks on ${host}`,
        needed,
        free,
        "Take a smaller model, fewer replicas (dp), or shorter prompts.",
      );
    }
  }
}
