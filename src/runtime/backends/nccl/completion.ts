/**
 * How a thread learns without a call into the driver what its stream has done: behind the calls it puts a write of a
 * number to pinned memory, and reads that. A stream with little on it is asked directly instead, which spares the write.
 */

import { CUDA_STATUS } from "../../../foreign/cuda/index.ts";
import type { CudaStream, PinnedBuffer, RankDevice } from "../../device/index.ts";

export class Completion {
  readonly #at: RankDevice;
  readonly #stream: CudaStream;
  readonly #flag: PinnedBuffer;
  readonly #done: Uint32Array;
  #marker = 0;

  constructor(at: RankDevice, stream: CudaStream) {
    this.#at = at;
    this.#stream = stream;
    this.#flag = at.pinned.take(4);
    this.#done = new Uint32Array(this.#flag.buffer, 0, 1);
    this.#done[0] = 0;
  }

  /** Puts a mark behind everything on the stream. @returns its number @throws NativeError, ClosedError */
  mark(): number {
    const { device } = this.#at;
    const marker = ++this.#marker;
    device.activate();
    const write = device.driver.api.cuStreamWriteValue32_v2;
    const status = write(this.#stream.handle, this.#flag.deviceAddress, marker >>> 0, 0);
    if (status !== CUDA_STATUS.success) device.fail("cuStreamWriteValue32_v2", status, "completion");
    return marker;
  }

  /** Whether the stream has come to a mark; 0 is none. */
  reached(marker: number): boolean {
    return marker !== 0 && (((this.#done[0] ?? 0) - marker) | 0) >= 0;
  }

  /** Whether everything on the stream is done. Errors are left to `isDone` of the stream. */
  idle(): boolean {
    return this.#at.device.driver.api.cuStreamQuery(this.#stream.handle) === CUDA_STATUS.success;
  }

  /**
   * Gives the flag back; no mark may be under way then.
   * @param settled whether the stream is known to have passed every mark
   */
  close(settled: boolean): void {
    // A late write would tell whoever has the buffer next that its work is done: such a buffer stays out of use.
    if (settled) this.#at.pinned.giveBack(this.#flag);
  }
}
