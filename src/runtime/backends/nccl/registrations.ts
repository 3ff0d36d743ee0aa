/**
 * Buffers that NCCL knows: the pool's segments are registered with every communicator (ncclCommRegister, 2.19), so that
 * NCCL may move data from and to them without its own copies. A registration belongs to one communicator and one segment.
 */
import type { NcclLibrary } from "./library.ts";
import { NCCL_RESULT } from "./symbols.ts";

export class Registrations {
  readonly #library: NcclLibrary;
  readonly #segments = new Map<bigint, number>();
  /** By communicator: NCCL's handles by segment. */
  readonly #open = new Map<bigint, Map<bigint, bigint>>();
  /** Segments that NCCL did not take; its calls work without. */
  numRefused = 0;

  constructor(library: NcclLibrary) {
    this.#library = library;
  }

  /** A communicator has opened. */
  opened(comm: bigint): void {
    this.#open.set(comm, new Map());
    for (const [address, sizeBytes] of this.#segments) this.#register(comm, address, sizeBytes);
  }

  /** A communicator is about to be destroyed. */
  closing(comm: bigint): void {
    for (const handle of this.#open.get(comm)?.values() ?? []) this.#deregister(comm, handle);
    this.#open.delete(comm);
  }

  /** A communicator is about to be aborted, and frees what it knows itself. */
  forget(comm: bigint): void {
    this.#open.delete(comm);
  }

  /** The pool has a new segment. */
  added(address: bigint, sizeBytes: number): void {
    this.#segments.set(address, sizeBytes);
    for (const comm of this.#open.keys()) this.#register(comm, address, sizeBytes);
  }

  /** The pool is about to free a segment. */
  removed(address: bigint): void {
    this.#segments.delete(address);
    for (const [comm, handles] of this.#open) {
      const handle = handles.get(address);
      if (handle !== undefined) this.#deregister(comm, handle);
      handles.delete(address);
    }
  }

  #register(comm: bigint, address: bigint, sizeBytes: number): void {
    const out = new BigUint64Array(1);
    const status = this.#library.require("ncclCommRegister")(comm, address, sizeBytes, out);
    if (status === NCCL_RESULT.success) this.#open.get(comm)?.set(address, out[0] ?? 0n);
    else this.numRefused++;
  }

  #deregister(comm: bigint, handle: bigint): void {
    this.#library.require("ncclCommDeregister")(comm, handle);
  }
}
