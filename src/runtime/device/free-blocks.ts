/**
 * The free blocks of a memory pool, by stream and size: the smallest that fits is found by bisection over the sizes that
 * there are, of which there are few, and one block of a size is as good as another.
 */
import type { CudaStream } from "./stream.ts";

/** A stretch of a segment. A segment is the first of its blocks. */
export interface Block {
  readonly address: bigint;
  sizeBytes: number;
  free: boolean;
  /** Where it stands among the free blocks of its size. */
  slot: number;
  /** The stream whose order protects the block. */
  stream: CudaStream;
  previous: Block | undefined;
  next: Block | undefined;
}

/** Cuts what is beyond `sizeBytes` off a block, if that is at least `least`. @returns the rest */
export function splitBlock(block: Block, sizeBytes: number, least: number): Block | undefined {
  const restBytes = block.sizeBytes - sizeBytes;
  if (restBytes < least) return undefined;
  const rest: Block = {
    address: block.address + BigInt(sizeBytes),
    sizeBytes: restBytes,
    free: false,
    slot: -1,
    stream: block.stream,
    previous: block,
    next: block.next,
  };
  if (block.next !== undefined) block.next.previous = rest;
  block.next = rest;
  block.sizeBytes = sizeBytes;
  return rest;
}

/** Merges a block with its right neighbour. Neither may be among the free ones. */
export function absorbNext(block: Block): void {
  const { next } = block;
  if (next === undefined) return;
  block.sizeBytes += next.sizeBytes;
  block.next = next.next;
  if (next.next !== undefined) next.next.previous = block;
}

/** Free blocks of one stream. */
class BySize {
  /** Ascending. */
  readonly sizes: number[] = [];
  readonly blocks = new Map<number, Block[]>();

  /** Index of the first size of at least `sizeBytes`. */
  indexOf(sizeBytes: number): number {
    let low = 0;
    let high = this.sizes.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.sizes[middle] ?? 0) < sizeBytes) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

export class FreeBlocks {
  readonly #streams = new Map<CudaStream, BySize>();

  add(block: Block): void {
    block.free = true;
    let of = this.#streams.get(block.stream);
    if (of === undefined) {
      of = new BySize();
      this.#streams.set(block.stream, of);
    }
    let blocks = of.blocks.get(block.sizeBytes);
    if (blocks === undefined) {
      blocks = [];
      of.blocks.set(block.sizeBytes, blocks);
      of.sizes.splice(of.indexOf(block.sizeBytes), 0, block.sizeBytes);
    }
    block.slot = blocks.length;
    blocks.push(block);
  }

  /** Takes a block out. */
  remove(block: Block): void {
    block.free = false;
    const of = this.#streams.get(block.stream);
    const blocks = of?.blocks.get(block.sizeBytes);
    const last = blocks?.pop();
    if (of === undefined || blocks === undefined || last === undefined) return;
    if (last !== block) {
      blocks[block.slot] = last;
      last.slot = block.slot;
    }
    if (blocks.length > 0) return;
    of.blocks.delete(block.sizeBytes);
    of.sizes.splice(of.indexOf(block.sizeBytes), 1);
    if (of.sizes.length === 0) this.#streams.delete(block.stream);
  }

  /** Takes out the smallest block of `stream` that has `sizeBytes`. */
  take(stream: CudaStream, sizeBytes: number): Block | undefined {
    const of = this.#streams.get(stream);
    if (of === undefined) return undefined;
    const found = of.blocks.get(of.sizes[of.indexOf(sizeBytes)] ?? 0)?.at(-1);
    if (found !== undefined) this.remove(found);
    return found;
  }

  /** Takes out a block of `sizeBytes` of a stream that was closed: its work is done, and anybody may use what it had. */
  takeClosed(sizeBytes: number): Block | undefined {
    for (const stream of this.#streams.keys()) {
      const found = stream.closed ? this.take(stream, sizeBytes) : undefined;
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Takes out all blocks of streams that were closed, for `stream` to use. */
  adopt(stream: CudaStream): readonly Block[] {
    const adopted: Block[] = [];
    for (const [owner, { blocks }] of this.#streams) {
      if (!owner.closed) continue;
      this.#streams.delete(owner);
      for (const some of blocks.values()) adopted.push(...some);
    }
    for (const block of adopted) {
      block.free = false;
      block.stream = stream;
    }
    return adopted;
  }

  get largestBytes(): number {
    let largest = 0;
    for (const { sizes } of this.#streams.values()) largest = Math.max(largest, sizes.at(-1) ?? 0);
    return largest;
  }

  clear(): void {
    this.#streams.clear();
  }
}
