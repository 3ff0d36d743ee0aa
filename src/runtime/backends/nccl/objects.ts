/**
 * Exchanges of bytes, through device memory. The length of what a rank gives travels in its fingerprint, so that one
 * held-back call moves everything; it runs when all members have come, with the lengths at hand.
 */

import { InvalidArgumentError } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import { MAX_OBJECT_BYTES } from "../../comm/index.ts";
import type { Allocation, CudaStream, PinnedBuffer, RankDevice } from "../../device/index.ts";
import { type CallTarget, inGroup, issue, type NcclCall } from "./nccl-calls.ts";

/** One exchange: members give bytes or nothing, all receive all. */
export class ObjectExchange {
  readonly #at: RankDevice;
  readonly #stream: CudaStream;
  readonly #mine: Uint8Array;
  readonly #lengths: () => readonly number[];
  #device: Allocation | undefined;
  #pinned: PinnedBuffer | undefined;
  #counts: readonly number[] = [];
  /** What each member gave; `undefined` for those that gave nothing. */
  given: readonly (Uint8Array | undefined)[] = [];

  /** @param lengths bytes that every member gives, callable once all have come */
  constructor(at: RankDevice, stream: CudaStream, mine: Uint8Array, lengths: () => readonly number[]) {
    this.#at = at;
    this.#stream = stream;
    this.#mine = mine;
    this.#lengths = lengths;
  }

  /**
   * Issues the exchange inside a group.
   * @param target where it runs now. @throws why it cannot run any more: the pool may have waited for the device, and
   *   the group or the world have ended meanwhile
   * @param untilIssued waits until NCCL has put it on the stream
   * @returns NCCL's status
   */
  run(target: () => CallTarget, untilIssued: () => void): number {
    const counts = this.#lengths();
    for (const [rank, count] of counts.entries()) {
      if (count > MAX_OBJECT_BYTES) {
        throw new InvalidArgumentError(
          `object of rank ${rank}`,
          described(`${count} bytes`),
          `at most ${MAX_OBJECT_BYTES}`,
        );
      }
    }
    this.#counts = counts;
    const total = counts.reduce((a, b) => a + b, 0);
    const device = this.#at.pool.allocate(total, this.#stream, "objects");
    const pinned = this.#at.pinned.take(total);
    this.#device = device;
    this.#pinned = pinned;
    const at = target();
    const own = counts.slice(0, at.rank).reduce((a, b) => a + b, 0);
    const base = Number(device.address);
    const send = base + own;
    if (this.#mine.length > 0) {
      new Uint8Array(pinned.buffer).set(this.#mine, own);
      const from = pinned.address + BigInt(own);
      this.#at.device.call("cuMemcpyHtoDAsync_v2", "objects", send, from, this.#mine.length, at.stream);
    }
    const { library } = at;
    const call: NcclCall = {
      op: "all_gather_v",
      dtype: "u8",
      count: 0,
      send,
      recv: base,
      root: 0,
      redop: 0,
      counts,
      sendCounts: [],
      recvCounts: [],
    };
    const status = inGroup(library, () => issue(call, at));
    untilIssued();
    if (total > 0) {
      this.#at.device.call("cuMemcpyDtoHAsync_v2", "objects", pinned.address, device.address, total, at.stream);
    }
    return status;
  }

  /** Reads what arrived and gives the memory back. */
  finish(ok: boolean): void {
    if (ok && this.#pinned !== undefined) {
      let offset = 0;
      const bytes = new Uint8Array(this.#pinned.buffer);
      this.given = this.#counts.map((count) => {
        offset += count;
        return count === 0 ? undefined : bytes.slice(offset - count, offset);
      });
    }
    if (this.#device !== undefined) this.#at.pool.free(this.#device);
    if (this.#pinned !== undefined) this.#at.pinned.giveBack(this.#pinned);
  }
}
