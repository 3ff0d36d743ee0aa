/**
 * Copies of a launch by copy engines, beside the stream that it is on: units on streams of their own in turn, so that one
 * copy is set up while another runs, and the numbers that announce them on one more, in order. All of it may be captured.
 */
import { CudaEvent, CudaStream, type RankDevice } from "../../device/index.ts";
import { type CopyRows, type EngineSends, type LaunchSends, numTurns, turnOf } from "./engine-sends.ts";

/** Words of CUDA_MEMCPY2D (cuda.h), each 8 bytes, of which these are not 0. */
const COPY_2D = {
  fromKind: 2,
  from: 4,
  fromPitch: 6,
  toKind: 9,
  to: 11,
  toPitch: 13,
  bytes: 14,
  rows: 15,
  words: 16,
} as const;
/** CU_MEMORYTYPE_UNIFIED: an address says by itself whose memory it is, as those of peers must. */
const UNIFIED = 4n;

/** By the stream that launches are on. Not one for the device: groups must not wait for each other's copies. */
const shared = new WeakMap<CudaStream, EngineStreams>();

export class EngineStreams {
  readonly #at: RankDevice;
  /** Who takes launches that use them. */
  #users = 0;
  readonly #beside: CudaStream;
  readonly #data: CudaStream[] = [];
  readonly #flags: CudaStream;
  readonly #event: CudaEvent;
  readonly #copy = new BigUint64Array(new ArrayBuffer(8 * COPY_2D.words));

  /** Those beside a stream, to be closed by everybody who took them. The device has few queues: plans of a stream share them. */
  static beside(stream: CudaStream, at: RankDevice): EngineStreams {
    const streams = shared.get(stream) ?? new EngineStreams(stream, at);
    shared.set(stream, streams);
    streams.#users++;
    return streams;
  }

  private constructor(beside: CudaStream, at: RankDevice) {
    this.#beside = beside;
    this.#at = at;
    this.#flags = CudaStream.create(at.device);
    this.#event = CudaEvent.create(at.device);
    this.#copy[COPY_2D.fromKind] = UNIFIED;
    this.#copy[COPY_2D.toKind] = UNIFIED;
  }

  /** Sends what a rank sends, behind what `stream` was given. `join` puts the stream behind that in turn. */
  send(
    stream: CudaStream,
    sends: EngineSends & { readonly numStreams: number },
    rank: number,
    launch: LaunchSends,
  ): void {
    while (this.#data.length < sends.numStreams) this.#data.push(CudaStream.create(this.#at.device));
    const inTurn = this.#data.slice(0, sends.numStreams);
    const turns = numTurns(sends, launch.chunkBytes);
    this.#event.record(stream);
    for (const one of [...inTurn.slice(0, turns), this.#flags]) one.waitFor(this.#event);
    for (let turn = 0; turn < turns; turn++) {
      const on = inTurn[turn % inTurn.length] as CudaStream;
      const { data, flags } = turnOf(sends, rank, turn, launch);
      for (const rows of data) this.#run(rows, on);
      this.#event.record(on);
      // Numbers grow: those of a turn come behind those of the turn before.
      this.#flags.waitFor(this.#event);
      for (const rows of flags) this.#run(rows, this.#flags);
    }
  }

  join(stream: CudaStream): void {
    this.#event.record(this.#flags);
    stream.waitFor(this.#event);
  }

  close(): void {
    if (--this.#users > 0) return;
    shared.delete(this.#beside);
    for (const one of [...this.#data, this.#flags, this.#event]) one.close();
  }

  #run({ to, from, bytes, rows, toPitch, fromPitch }: CopyRows, { handle }: CudaStream): void {
    const { device } = this.#at;
    if (rows === 1) {
      device.call("cuMemcpyDtoDAsync_v2", "copy to a peer", to, from, bytes, handle);
      return;
    }
    const words = this.#copy;
    words[COPY_2D.from] = BigInt(from);
    words[COPY_2D.fromPitch] = BigInt(fromPitch);
    words[COPY_2D.to] = BigInt(to);
    words[COPY_2D.toPitch] = BigInt(toPitch);
    words[COPY_2D.bytes] = BigInt(bytes);
    words[COPY_2D.rows] = BigInt(rows);
    device.call("cuMemcpy2DAsync_v2", "copies to a peer", words, handle);
  }
}
