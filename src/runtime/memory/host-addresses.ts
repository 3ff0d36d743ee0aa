/** Where host memory lies, for libraries: a look-up per buffer, so that a call gives numbers alone. */
import type { OperationName } from "../../collectives/index.ts";
import { addressOf } from "../../foreign/native/index.ts";

/** In place of the address of what has no bytes. */
export const emptyAddress = 0;

/** A stretch of host memory that a library reads or writes. */
export interface Span {
  readonly bytes: Uint8Array;
  readonly address: number;
}

export class HostAddresses {
  /** Of buffers, which do not move; small typed arrays do until their buffer is asked for. */
  readonly #known = new WeakMap<ArrayBufferLike, number>();

  /** The address of a view's first byte. The view must be kept for as long as the address is used. */
  of(view: ArrayBufferView): number {
    if (view.byteLength === 0) return emptyAddress;
    return this.at(view.buffer, view.byteOffset);
  }

  /** The address of a byte of a buffer that is not empty. */
  at(buffer: ArrayBufferLike, byteOffset: number): number {
    let base = this.#known.get(buffer);
    if (base === undefined) {
      base = Number(addressOf(new Uint8Array(buffer)));
      this.#known.set(buffer, base);
    }
    return base + byteOffset;
  }

  span(view: ArrayBufferView): Span {
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    return { bytes, address: this.of(bytes) };
  }

  /** Fresh memory. */
  fresh(sizeBytes: number): Span {
    return this.span(new Uint8Array(new ArrayBuffer(sizeBytes)));
  }
}

/** Bytes [start, start + length) of a span. */
export function part({ bytes, address }: Span, start: number, length: number): Span {
  return { bytes: bytes.subarray(start, start + length), address: length === 0 ? emptyAddress : address + start };
}

export function overlaps(a: Span, b: Span): boolean {
  return a.address < b.address + b.bytes.length && b.address < a.address + a.bytes.length;
}

/** A rank's part in a collective, as others that read its input see it. */
export interface LentCall {
  readonly op: OperationName;
  /** The rank's number in the group. */
  readonly rank: number;
  readonly partBytes: number;
  readonly input: Span;
  readonly output: Span;
}

/** Whether others can read a rank's input while it writes its result: in place, it writes only what nobody else reads. */
export function isReadableMeanwhile({ op, rank, partBytes, input, output }: LentCall): boolean {
  if (!overlaps(input, output)) return true;
  const own = rank * partBytes;
  if (op === "all_gather") return input.address === output.address + own;
  if (op === "reduce_scatter") return output.address === input.address + own;
  return op !== "all_to_all" && input.address === output.address;
}
