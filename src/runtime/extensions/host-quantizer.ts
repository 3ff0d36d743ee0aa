/**
 * The memory and the local steps of quantised all-reduces of one group on CPUs. What is exchanged lies in the kernels' memory, where
 * it is made and read; a program's own tensors pass through a tile that stays in the first cache.
 */
import { InvariantError, MismatchError, OutOfMemoryError, sizeOf, type Tensor } from "../../core/index.ts";
import { copyMemory, ffiProblem, type MemoryCopy } from "../../foreign/native/index.ts";
import { MAX_PAGES, newSharedMemory, PAGE_BYTES } from "../executor/internal.ts";
import { HostAddresses } from "../memory/index.ts";
import {
  BLOCK_SIZES,
  blockLayout,
  numParts,
  QUANTIZED_DTYPES,
  QUANTIZED_FORMATS,
  QUANTIZED_OPS,
  type QuantizedCall,
} from "./block-layout.ts";
import { quantizeKernels } from "./quantize-kernels.ts";

/** Elements of a tile: a multiple of every block's size. */
const TILE = 4096;
const TILE_AT = 1024;
const SUMS_AT = TILE_AT + 4 * TILE;
const SPARE_AT = SUMS_AT + 4 * TILE;
const WIRE_AT = PAGE_BYTES;
/** What each part ends with: what its sender was asked for. */
const HEADER_BYTES = 16;
const MOST_BYTES = MAX_PAGES * PAGE_BYTES - WIRE_AT;
/** Scratch that stays, however small calls are. */
const KEPT_BYTES = 64 << 20;
/** Larger scratch is given back after so many calls in a row that each need less than a quarter of it. */
const MANY_SMALL_CALLS = 16;

export class HostQuantizer {
  #memory = newSharedMemory(1, MAX_PAGES);
  #kernels = quantizeKernels(this.#memory);
  #tile = new Uint8Array(this.#memory.buffer, TILE_AT, 4 * TILE);
  readonly #addresses = new HostAddresses();
  readonly #copy = cCopy();
  /** Where C finds the tile: the memory grows in place. */
  #tileAddress = this.#addressOfTile();
  /** Calls since the last one that needed a quarter of the memory. */
  #numSmall = 0;

  /** Bytes of scratch that are held now. */
  get heldBytes(): number {
    return this.#memory.buffer.byteLength;
  }

  #addressOfTile(): number {
    return this.#copy === undefined ? 0 : this.#addresses.at(this.#memory.buffer, TILE_AT);
  }

  /** Before a call: memory does not shrink, so another takes its place. */
  #giveBackUnused(neededBytes: number): void {
    const { heldBytes } = this;
    const isSmall = heldBytes > KEPT_BYTES && 4 * neededBytes < heldBytes;
    this.#numSmall = isSmall ? this.#numSmall + 1 : 0;
    if (this.#numSmall < MANY_SMALL_CALLS) return;
    this.#numSmall = 0;
    this.#memory = newSharedMemory(1, MAX_PAGES);
    this.#kernels = quantizeKernels(this.#memory);
    this.#tile = new Uint8Array(this.#memory.buffer, TILE_AT, 4 * TILE);
    this.#tileAddress = this.#addressOfTile();
  }

  /** @throws OutOfMemoryError */
  #bytes(at: number, sizeBytes: number): Uint8Array {
    const end = at + sizeBytes;
    if (end - WIRE_AT > MOST_BYTES) {
      throw new OutOfMemoryError(
        "scratch of quantised all-reduces",
        end - WIRE_AT,
        MOST_BYTES,
        "Sum in several calls.",
      );
    }
    const missing = end - this.#memory.buffer.byteLength;
    if (missing > 0) this.#grow(missing);
    return new Uint8Array(this.#memory.buffer, at, sizeBytes);
  }

  /** @throws OutOfMemoryError instead of V8's RangeError, which names no size */
  #grow(missing: number): void {
    try {
      this.#memory.grow(Math.ceil(missing / PAGE_BYTES));
    } catch (cause) {
      const free = process.availableMemory();
      throw new OutOfMemoryError("scratch of quantised all-reduces", missing, free, "Sum in several calls.", { cause });
    }
  }

  /** The buffers of a call for so many ranks, where no other call is under way; nothing is received where each rank sums everything. @throws OutOfMemoryError */
  buffers(call: QuantizedCall, numRanks: number): { readonly sent: Uint8Array; readonly received: Uint8Array } {
    const whole = partBytes(call, numRanks) * numRanks;
    this.#giveBackUnused(WIRE_AT + (numParts(numRanks) === 1 ? whole : 2 * whole));
    if (numParts(numRanks) === 1) return { sent: this.#bytes(WIRE_AT, whole), received: this.#bytes(WIRE_AT, 0) };
    const received = this.#bytes(WIRE_AT + whole, whole);
    return { sent: this.#bytes(WIRE_AT, whole), received };
  }

  /** Quantises the tensor into the parts that are sent; where there is one, it goes to this rank's place among those of all. */
  quantize(call: QuantizedCall, numRanks: number, rank: number, input: Tensor): void {
    const { count, dtype, format, blockSize } = call;
    const parts = numParts(numRanks);
    const { partElements, scalesAt, endAt } = blockLayout(count, blockSize, parts);
    const kernel = this.#kernels[`quantize_${dtype}_${format}`];
    const size = sizeOf(dtype);
    const bytes = bytesOf(input);
    for (let part = 0; part < parts; part++) {
      const partAt = WIRE_AT + (parts === 1 ? rank : part) * partBytes(call, numRanks);
      for (let from = 0; from < partElements; from += TILE) {
        const length = Math.min(TILE, partElements - from);
        const given = Math.max(0, Math.min(length, count - part * partElements - from));
        if (given > 0) this.#toTile(bytes, (part * partElements + from) * size, given * size);
        if (given < length) this.#bytes(TILE_AT + given * size, (length - given) * size).fill(0);
        kernel(TILE_AT, partAt + from, partAt + scalesAt + from / blockSize, length / blockSize, blockSize, SPARE_AT);
      }
      new Uint32Array(this.#memory.buffer, partAt + endAt, HEADER_BYTES / 4).set(headerOf(call));
    }
  }

  /** Sums what came for this rank's part, in the order of the ranks, and quantises that into its place among what was sent. */
  sum(call: QuantizedCall, numRanks: number, rank: number): void {
    const { count, format, blockSize } = call;
    const { partElements, scalesAt } = blockLayout(count, blockSize, numParts(numRanks));
    const bytes = partBytes(call, numRanks);
    const quantize = this.#kernels[`quantize_f32_${format}`];
    const to = WIRE_AT + rank * bytes;
    for (let from = 0; from < partElements; from += TILE) {
      const blocks = Math.min(TILE, partElements - from) / blockSize;
      this.#sumTile(call, numRanks, WIRE_AT + numRanks * bytes, from, blocks);
      quantize(SUMS_AT, to + from, to + scalesAt + from / blockSize, blocks, blockSize, SPARE_AT);
    }
  }

  /** Sums what all ranks sent, in the order of the ranks, where each sums everything. */
  sumAll(call: QuantizedCall, numRanks: number, output: Tensor): void {
    const { count, dtype, blockSize } = call;
    const kernel = this.#kernels[`finish_${dtype}`];
    const size = sizeOf(dtype);
    const bytes = bytesOf(output);
    for (let from = 0; from < count; from += TILE) {
      const wanted = Math.min(TILE, count - from);
      const blocks = Math.ceil(wanted / blockSize);
      this.#sumTile(call, numRanks, WIRE_AT, from, blocks);
      kernel(TILE_AT, SUMS_AT, blocks * blockSize);
      this.#fromTile(bytes, from * size, wanted * size);
    }
  }

  /** Leaves the sums of some blocks of the parts at `firstAt`, one of each rank, in the tile of sums. */
  #sumTile(call: QuantizedCall, numRanks: number, firstAt: number, from: number, blocks: number): void {
    const { count, format, blockSize, op } = call;
    const { scalesAt } = blockLayout(count, blockSize, numParts(numRanks));
    const bytes = partBytes(call, numRanks);
    const [place, add] = [this.#kernels[`place_${format}`], this.#kernels[`add_${format}`]];
    const scales = scalesAt + from / blockSize;
    for (let peer = 0; peer < numRanks; peer++) {
      const at = firstAt + peer * bytes;
      (peer === 0 ? place : add)(SUMS_AT, at + from, at + scales, blocks, blockSize);
    }
    if (op === "avg") this.#kernels.divide(SUMS_AT, blocks * blockSize, numRanks);
  }

  /** Writes the sums of all parts, which lie where this rank's were sent from. */
  restore(call: QuantizedCall, numRanks: number, output: Tensor): void {
    const { count, dtype, format, blockSize } = call;
    const { partElements, scalesAt } = blockLayout(count, blockSize, numRanks);
    const kernel = this.#kernels[`restore_${dtype}_${format}`];
    const size = sizeOf(dtype);
    const bytes = bytesOf(output);
    for (let part = 0; part < numRanks; part++) {
      const partAt = WIRE_AT + part * partBytes(call, numRanks);
      for (let from = 0; from < partElements; from += TILE) {
        const first = part * partElements + from;
        const wanted = Math.min(TILE, partElements - from, count - first);
        if (wanted <= 0) return;
        const blocks = Math.ceil(wanted / blockSize);
        kernel(TILE_AT, partAt + from, partAt + scalesAt + from / blockSize, blocks, blockSize);
        this.#fromTile(bytes, first * size, wanted * size);
      }
    }
  }

  /** @throws MismatchError where a member was asked for something else */
  checkHeaders(call: QuantizedCall, numRanks: number, ranks: readonly number[], rank: number): void {
    const mine = headerOf(call);
    for (let peer = 0; peer < numRanks; peer++) {
      const first = numParts(numRanks) === 1 ? 0 : numRanks;
      const at = WIRE_AT + (first + peer + 1) * partBytes(call, numRanks) - HEADER_BYTES;
      const theirs = new Uint32Array(this.#memory.buffer, at, HEADER_BYTES / 4);
      if (mine.every((word, i) => word === theirs[i])) continue;
      throw new MismatchError("ranks made different calls", [
        { rank: ranks[rank] ?? rank, call: describeHeader(mine) },
        { rank: ranks[peer] ?? peer, call: describeHeader(theirs) },
      ]);
    }
  }

  #toTile(from: Uint8Array, offset: number, sizeBytes: number): void {
    if (this.#copy === undefined) this.#tile.set(from.subarray(offset, offset + sizeBytes));
    else this.#copy(this.#tileAddress, this.#addresses.of(from) + offset, sizeBytes);
  }

  #fromTile(to: Uint8Array, offset: number, sizeBytes: number): void {
    if (this.#copy === undefined) to.set(this.#tile.subarray(0, sizeBytes), offset);
    else this.#copy(this.#addresses.of(to) + offset, this.#tileAddress, sizeBytes);
  }
}

/** C's copy, where there is FFI: twice as fast as V8's to and from shared memory. */
function cCopy(): MemoryCopy | undefined {
  return ffiProblem() === undefined ? copyMemory() : undefined;
}

function partBytes({ count, blockSize }: QuantizedCall, numRanks: number): number {
  return blockLayout(count, blockSize, numParts(numRanks)).endAt + HEADER_BYTES;
}

function bytesOf({ storage, byteOffset, sizeBytes }: Tensor): Uint8Array {
  if (storage.buffer === undefined) throw new InvariantError("a host tensor has memory");
  return new Uint8Array(storage.buffer, byteOffset, sizeBytes);
}

function headerOf({ count, dtype, format, blockSize, op }: QuantizedCall): Uint32Array {
  const codes = [QUANTIZED_DTYPES.indexOf(dtype), QUANTIZED_FORMATS.indexOf(format), QUANTIZED_OPS.indexOf(op)];
  const code = codes.reduce((all, one) => 16 * all + one, BLOCK_SIZES.indexOf(blockSize));
  return Uint32Array.of(count % 2 ** 32, Math.floor(count / 2 ** 32), code, 0);
}

/** A call as its user knows it. */
export function describeCall(call: QuantizedCall): string {
  return describeHeader(headerOf(call));
}

function describeHeader([low = 0, high = 0, code = 0]: Uint32Array): string {
  const [size, dtype, format, op] = [12, 8, 4, 0].map((shift) => (code >>> shift) & 15) as [
    number,
    number,
    number,
    number,
  ];
  const count = high * 2 ** 32 + low;
  return `quantizedAllReduce(${count} x ${QUANTIZED_DTYPES[dtype]}, ${QUANTIZED_OPS[op]}, ${QUANTIZED_FORMATS[format]} in blocks of ${BLOCK_SIZES[size]})`;
}
