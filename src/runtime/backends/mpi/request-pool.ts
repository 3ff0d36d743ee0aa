/** Places for MPI's requests, in memory that does not move; a request is known by the address of its place. */
import type { MpiLibrary } from "../../../foreign/mpi/index.ts";
import { addressOf } from "../../../foreign/native/index.ts";

/** Places of one block of memory. */
const BLOCK = 512;
const PLACE_BYTES = 8;

export class RequestPool {
  readonly #library: MpiLibrary;
  readonly #free: number[] = [];
  /** Kept: their addresses are given out. */
  readonly #blocks: ArrayBuffer[] = [];
  readonly #flag = new Int32Array(new ArrayBuffer(4));
  readonly #flagAt: number;
  readonly #statusIgnore: number;

  constructor(library: MpiLibrary) {
    this.#library = library;
    this.#flagAt = Number(addressOf(this.#flag));
    this.#statusIgnore = library.abi.statusIgnore;
  }

  /** A place for a request. */
  take(): number {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    const block = new ArrayBuffer(BLOCK * PLACE_BYTES);
    this.#blocks.push(block);
    const base = Number(addressOf(new Uint8Array(block)));
    for (let i = BLOCK - 1; i > 0; i--) this.#free.push(base + i * PLACE_BYTES);
    return base;
  }

  /** Gives a place back, whose request is done. */
  give(place: number): void {
    this.#free.push(place);
  }

  /** Whether the request is done; MPI goes on with all others meanwhile. @throws NativeError when it has failed */
  done(place: number): boolean {
    const status = this.#library.api.MPI_Test(place, this.#flagAt, this.#statusIgnore);
    if (status !== 0) throw this.#library.error("MPI_Test", status);
    return this.#flag[0] !== 0;
  }
}
