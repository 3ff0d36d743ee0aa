/**
 * Buffers that NCCL knows: the pool's segments are registered with every communicator (ncclCommRegister, 2.19), so that
 * NCCL may move data from and to them without its own copies. A registration belongs to one communicator and one segment.
 *
 * What NCCL wants for it, beside NVIDIA's words that all ranks pass registered buffers or none (src/register and
 * src/transport of v2.28.3-1):
 * - An all-reduce in place is not registered, one into another tensor is: ranks that differ in that would wait for each
 *   other on the device. It is part of the fingerprint then (`IN_PLACE`).
 * - From 2.23.4 to 2.28.9 memory that sends or receives have registered must not serve a collective: that would use null
 *   for the peer's address (NVIDIA/nccl#1859). So segments have a second address there, which sends and receives use.
 * - With NVLS every call that finds registered buffers blocks until all ranks of the host have made it, and ranks whose
 *   segments are not alike may wait in different places for ever (src/transport/nvls.cc). So it is refused there.
 */
import { InvalidArgumentError, MismatchError } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import type { NcclLibrary } from "../../../foreign/nccl/index.ts";
import type { CudaDevice } from "../../device/index.ts";
import { mapSecond, type SegmentListener, unmapSecond } from "../../device/internal.ts";
import type { Joining } from "../../progress/index.ts";
import { nvlsPossible } from "./capabilities.ts";

/** First version with that defect, and the first without it. */
const NEEDS_SECOND_ADDRESS = [22304, 22902] as const;

interface Segment {
  readonly sizeBytes: number;
  /** Where sends and receives find it. */
  readonly second: bigint | undefined;
}

export class Registrations implements SegmentListener {
  readonly #library: NcclLibrary;
  readonly #device: CudaDevice;
  readonly #segments = new Map<bigint, Segment>();
  /** By communicator: NCCL's handles by address. */
  readonly #open = new Map<bigint, Map<bigint, bigint>>();
  readonly #hasSecond: boolean;

  /** @throws InvalidArgumentError where NCCL may use NVLS on them */
  constructor(library: NcclLibrary, device: CudaDevice, interprocess: boolean) {
    // Among threads of one process NCCL registers nothing with NVLS unless told to.
    const inOneProcess = (process.env["NCCL_SINGLE_PROC_MEM_REG_ENABLE"] ?? "0") !== "0";
    if ((interprocess || inOneProcess) && nvlsPossible(library, device.info)) {
      const where = interprocess ? "ranks as processes" : "NCCL_SINGLE_PROC_MEM_REG_ENABLE";
      const accepted = "NCCL_NVLS_ENABLE=0 in the environment, or ranks as threads: with NVLS NCCL may hang";
      throw new InvalidArgumentError(
        "registerBuffers",
        described(`true, with ${where} where NCCL may use NVLS`),
        accepted,
      );
    }
    this.#library = library;
    this.#device = device;
    const [from, until] = NEEDS_SECOND_ADDRESS;
    this.#hasSecond = library.versionCode >= from && library.versionCode < until;
  }

  /** Where sends and receives are to find the memory at `address`. */
  readonly pairAddress = (address: number): number => {
    if (!this.#hasSecond) return address;
    for (const [start, { sizeBytes, second }] of this.#segments) {
      const offset = address - Number(start);
      if (offset >= 0 && offset < sizeBytes && second !== undefined) return Number(second) + offset;
    }
    return address;
  };

  /** A communicator has opened. @throws NativeError */
  opened(comm: bigint): void {
    this.#open.set(comm, new Map());
    for (const [address, segment] of this.#segments) this.#register(comm, address, segment);
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

  /** The pool has a new segment. @throws NativeError; NCCL knows nothing of it then */
  added(address: bigint, sizeBytes: number): void {
    const second = this.#hasSecond ? mapSecond(this.#device, address) : undefined;
    // Memory without a handle (NCCL_CUMEM_ENABLE=0), which NCCL could register for collectives and sends alike.
    if (this.#hasSecond && second === undefined) return;
    const segment = { sizeBytes, second };
    this.#segments.set(address, segment);
    try {
      for (const comm of this.#open.keys()) this.#register(comm, address, segment);
    } catch (error) {
      this.removed(address);
      throw error;
    }
  }

  /** The pool is about to free a segment. */
  removed(address: bigint): void {
    const segment = this.#segments.get(address);
    if (segment === undefined) return;
    this.#segments.delete(address);
    for (const [comm, handles] of this.#open) {
      for (const at of addressesOf(address, segment)) {
        const handle = handles.get(at);
        if (handle !== undefined) this.#deregister(comm, handle);
        handles.delete(at);
      }
    }
    if (segment.second === undefined) return;
    this.#device.ledger?.drop("secondMapping", segment.second);
    unmapSecond(this.#device.driver, segment.second);
  }

  #register(comm: bigint, address: bigint, segment: Segment): void {
    const out = new BigUint64Array(1);
    for (const at of addressesOf(address, segment)) {
      const status = this.#library.require("ncclCommRegister")(comm, at, segment.sizeBytes, out);
      this.#library.check("ncclCommRegister", status, comm);
      this.#open.get(comm)?.set(at, out[0] ?? 0n);
    }
  }

  #deregister(comm: bigint, handle: bigint): void {
    this.#library.require("ncclCommDeregister")(comm, handle);
  }
}

const addressesOf = (address: bigint, { second }: Segment): readonly bigint[] =>
  second === undefined ? [address] : [address, second];

/** @param registers of each member, what it said when it joined: 1 where it registers its buffers */
export function mixedRegistrations(registers: readonly Joining[]): MismatchError {
  return new MismatchError(
    "all ranks of a communicator must register their buffers, or none",
    registers.map(({ rank, hash }) => ({ rank, call: `registerBuffers: ${hash === 1}` })),
  );
}
