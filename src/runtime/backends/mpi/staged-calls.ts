/**
 * Calls on device tensors: MPI moves host memory, so what a call reads is copied to page-locked memory before it begins, and
 * what it writes is copied to the device behind it, both on the rank's main stream. MPI is never given a device's address,
 * also where it could take one.
 */
import type { Tensor } from "../../../core/index.ts";
import { type Allocation, CudaEvent, deviceStorageOf, type PinnedBuffer, type RankDevice } from "../../device/index.ts";
import { deviceAddress } from "../../device/internal.ts";
import type { Span } from "../../memory/index.ts";
import { EMPTY } from "./move-calls.ts";
import type { Activity, CallTarget } from "./mpi-entry.ts";

/** Page-locked memory that stands for a device tensor while a call uses it. */
export class StagedTensor {
  readonly span: Span;
  readonly #at: RankDevice;
  readonly #address: bigint;
  readonly #pinned: PinnedBuffer | undefined;
  readonly #allocation: Allocation;
  #event: CudaEvent | undefined;
  #isBrought = false;
  #isOver = false;

  /**
   * @throws ClosedError for a tensor that was freed, InvalidArgumentError for one of another device, OutOfMemoryError
   * @param tensor in device memory
   */
  constructor(at: RankDevice, tensor: Tensor) {
    const address = deviceAddress(tensor, at.device, at.generation);
    const storage = deviceStorageOf(tensor);
    if (storage === undefined) throw new TypeError("not a device tensor");
    this.#at = at;
    this.#address = BigInt(address);
    this.#allocation = storage.allocation;
    const { sizeBytes } = tensor;
    this.#pinned = sizeBytes === 0 ? undefined : at.pinned.take(sizeBytes);
    this.span =
      this.#pinned === undefined
        ? EMPTY
        : { bytes: new Uint8Array(this.#pinned.buffer, 0, sizeBytes), address: Number(this.#pinned.address) };
    storage.pool.recordUse(storage.allocation, at.main);
    storage.allocation.pendingUses++;
  }

  /** Issues the copy to the host, behind what the main stream was given. */
  download(): void {
    this.#copy("cuMemcpyDtoHAsync_v2", BigInt(this.span.address), this.#address);
  }

  /** Issues the copy to the host, the first time. @returns whether it is done */
  bring(): boolean {
    if (!this.#isBrought) this.download();
    this.#isBrought = true;
    return this.isDone();
  }

  /** Issues the copy to the device. */
  upload(): void {
    this.#copy("cuMemcpyHtoDAsync_v2", this.#address, BigInt(this.span.address));
  }

  #copy(symbol: "cuMemcpyDtoHAsync_v2" | "cuMemcpyHtoDAsync_v2", to: bigint, from: bigint): void {
    if (this.#pinned === undefined) return;
    const { device, main } = this.#at;
    device.call(symbol, "staging", to, from, this.span.bytes.length, main.handle);
    main.touched = true;
    this.#event ??= CudaEvent.borrow(device);
    this.#event.record(main);
  }

  /** Whether the copy that was issued last is done. @throws NativeError when the device has failed */
  isDone(): boolean {
    return this.#event === undefined || this.#event.isDone("staging");
  }

  /**
   * Ends the use of the tensor. Idempotent.
   * @param isFree whether MPI has nothing to do with the page-locked memory any more: otherwise nobody gets it again
   */
  giveBack(isFree: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#allocation.pendingUses--;
    if (!isFree || !this.isDone()) return;
    if (this.#pinned !== undefined) this.#at.pinned.giveBack(this.#pinned);
    this.#event?.giveBack();
  }
}

/** A call of which some tensors are on the device. */
export class StagedCall implements Activity {
  readonly stepped: boolean;
  readonly #inner: Activity;
  readonly #reads: StagedTensor | undefined;
  readonly #writes: StagedTensor | undefined;
  #target: CallTarget | undefined;
  #stage: "reading" | "moving" | "writing" = "reading";

  /** @param reads what is copied to the host first @param writes what is copied to the device behind it; both may be one */
  constructor(inner: Activity, reads: StagedTensor | undefined, writes: StagedTensor | undefined) {
    this.#inner = inner;
    this.#reads = reads;
    this.#writes = writes;
    // One that begins at once holds up others no more than its inner one.
    this.stepped = reads !== undefined || inner.stepped;
  }

  begin(target: CallTarget): void {
    this.#target = target;
    this.#reads?.download();
    if (this.#reads === undefined) this.#move(target);
  }

  #move(target: CallTarget): void {
    this.#stage = "moving";
    this.#inner.begin(target);
  }

  advance(): boolean {
    if (this.#stage === "reading") {
      if (this.#target === undefined || this.#reads?.isDone() !== true) return false;
      this.#move(this.#target);
    }
    if (this.#stage === "moving") {
      if (!this.#inner.advance()) return false;
      this.#writes?.upload();
      this.#stage = "writing";
    }
    return this.#writes?.isDone() !== false;
  }

  stop(): void {
    this.#inner.stop?.();
    this.#reads?.giveBack(false);
    this.#writes?.giveBack(false);
  }
}

/** What gives tensors back when their call has ended, well or not: one that MPI has begun was given up before (`stop`). */
export const givingBack = (tensors: readonly StagedTensor[]): (() => void)[] =>
  tensors.map((one) => () => one.giveBack(true));

/** The first activity of a batch: brings to the host what its messages send. Messages of later calls wait for it. */
export class Downloads implements Activity {
  readonly stepped = true;
  readonly holdsMessages = true;
  readonly #tensors: readonly StagedTensor[];

  constructor(tensors: readonly StagedTensor[]) {
    this.#tensors = tensors;
  }

  begin(): void {
    for (const one of this.#tensors) one.download();
  }

  advance(): boolean {
    return this.#tensors.every((one) => one.isDone());
  }

  stop(): void {
    for (const one of this.#tensors) one.giveBack(false);
  }
}
