/**
 * Sends and receives outside of a batch. NCCL's block the stream until the other end comes, and deadlock when two ranks
 * both send first; a send here copies into a buffer of its own, is done, and leaves a note in the control segment where
 * the buffer is; the receiver copies from there, over NVLink where there is one, and acknowledges. Inside a batch, sends
 * and receives are NCCL's own.
 */
import { AbortedError, FormatError } from "../../../core/index.ts";
import type { Allocation, MemoryPool, PeerMemory, RankDevice } from "../../device/index.ts";
import { type GroupControl, pauseUntil } from "../../memory/index.ts";

interface Outgoing {
  readonly to: number;
  readonly number: number;
  readonly buffer: Allocation;
}

/** The messages of one group, as one member sends and receives them. */
export class PairMail {
  readonly #control: GroupControl;
  readonly #at: RankDevice;
  readonly #peers: PeerMemory;
  readonly #outgoing: Outgoing[] = [];

  constructor(control: GroupControl, at: RankDevice, peers: PeerMemory) {
    this.#control = control;
    this.#at = at;
    this.#peers = peers;
  }

  /** Where buffers come from. */
  get pool(): MemoryPool {
    return this.#peers.pool;
  }

  hasRoom(to: number, number: number): boolean {
    this.sweep();
    return this.#control.hasRoom(to, number);
  }

  /** Hands `buffer`, whose contents are there, to `to` as message `number`; it is freed when acknowledged. */
  post(to: number, number: number, buffer: Allocation, sizeBytes: number): void {
    this.#control.post(to, number, this.#peers.describe(buffer.address, sizeBytes));
    this.#outgoing.push({ to, number, buffer });
  }

  /** Whether message `number` of `from` is there. */
  has(from: number, number: number): boolean {
    return this.#control.mail(from, number) !== undefined;
  }

  /** Copies message `number` of `from` to `address` on the stream. */
  fetch(from: number, number: number, address: number, sizeBytes: number, stream: bigint): void {
    const note = this.#control.mail(from, number);
    if (note === undefined) throw new FormatError(`message ${number} of rank ${from}`, "is not there");
    const source = this.#peers.locate(note);
    if (source.sizeBytes !== sizeBytes) {
      throw new FormatError(
        `message ${number} of rank ${from}`,
        `has ${source.sizeBytes} bytes, expected ${sizeBytes}`,
      );
    }
    if (sizeBytes > 0) {
      this.#at.device.call("cuMemcpyDtoDAsync_v2", "recv", address, source.address, sizeBytes, stream);
    }
  }

  acknowledge(from: number, number: number): void {
    this.#control.acknowledge(from, number);
  }

  /** Frees buffers that receivers are done with. @returns how many are still out */
  sweep(): number {
    for (let i = this.#outgoing.length - 1; i >= 0; i--) {
      const one = this.#outgoing[i];
      if (one === undefined || this.#control.acknowledged(one.to) <= one.number) continue;
      this.pool.free(one.buffer);
      this.#outgoing.splice(i, 1);
    }
    return this.#outgoing.length;
  }

  /** The ranks that have yet to take something, each once. */
  get #receivers(): readonly number[] {
    return [...new Set(this.#outgoing.map(({ to }) => to))].sort((a, b) => a - b);
  }

  /** Waits until receivers have taken what was sent to them, and ends the mail. @returns what is to be said of those who never will */
  async drain(group: string, timeoutMs: number): Promise<AbortedError | undefined> {
    const control = this.#control;
    // No member makes a call after it has said so.
    control.announceClose();
    // What is there once all are closing is taken by nobody any more: it may have been just before that.
    const isLeft = () => control.allClosing && this.sweep() > 0;
    // What a group that failed has sent is not missed.
    await pauseUntil(() => this.sweep() === 0 || control.failed || isLeft(), timeoutMs);
    const receivers = control.failed ? [] : this.#receivers;
    this.#close();
    if (receivers.length === 0) return undefined;
    return new AbortedError(`${group} was closed, and rank ${receivers.join(", ")} never received what was sent to it`);
  }

  /** Frees every buffer: the group is over. */
  #close(): void {
    for (const { buffer } of this.#outgoing) this.pool.free(buffer);
    this.#outgoing.length = 0;
  }
}
