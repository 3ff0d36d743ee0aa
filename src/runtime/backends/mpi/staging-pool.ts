/** Memory that MPI reads in place of a caller's, used again: fresh memory costs a fault for every page. */
import { type HostAddresses, part, type Span } from "../../memory/index.ts";

/** Most that is kept of one size. */
const MAX_KEPT = 4;
const LEAST_BYTES = 64;

export class StagingPool {
  readonly #addresses: HostAddresses;
  /** By size, which are powers of two. */
  readonly #free = new Map<number, Span[]>();

  constructor(addresses: HostAddresses) {
    this.#addresses = addresses;
  }

  /** A copy of some bytes. */
  copyOf(bytes: Uint8Array): Staged {
    const size = Math.max(LEAST_BYTES, 2 ** Math.ceil(Math.log2(bytes.length)));
    const whole = this.#free.get(size)?.pop() ?? this.#addresses.fresh(size);
    whole.bytes.set(bytes);
    return { whole, span: part(whole, 0, bytes.length) };
  }

  /** Gives a copy back that MPI has read. */
  give({ whole }: Staged): void {
    const size = whole.bytes.length;
    const free = this.#free.get(size) ?? [];
    this.#free.set(size, free);
    if (free.length < MAX_KEPT) free.push(whole);
  }
}

/** A copy, and the memory that it lies in. */
interface Staged {
  readonly whole: Span;
  readonly span: Span;
}
