/**
 * Quantised all-reduces of one group whose tensors are on the device: kernels of ours on the communicator's stream, with its
 * all-to-all and all-gather between them. This thread waits for nothing, and graphs hold the same.
 */
import { InvariantError, sizeOf, type Tensor, UnsupportedError } from "../../core/index.ts";
import type { NcclCommunicator, NcclGroup } from "../backends/nccl/internal.ts";
import { driverOf, type Extension, hashNumbers, type Work } from "../comm/index.ts";
import {
  type CudaKernel,
  CudaStream,
  type DeviceStorage,
  deviceStorageOf,
  deviceTensor,
  KernelArguments,
  requireNvrtc,
} from "../device/index.ts";
import { deviceAddress } from "../device/internal.ts";
import { isLoaded, KERNEL_ENTRY, releaseModule, useModule } from "../executor/cuda/internal.ts";
import { BLOCK_SIZES, numParts, QUANTIZED_FORMATS, type QuantizedCall } from "./block-layout.ts";
import { cutIntoPieces, type Piece } from "./device-pieces.ts";
import { PieceOrder } from "./piece-order.ts";
import { blocksAtOnce, QUANTIZE_STEPS, QUANTIZE_THREADS, quantizeSource } from "./quantize-source.ts";
import type { CheckedQuantizedCall } from "./quantized-options.ts";

/** Blocks of the grid for each multiprocessor, at most: more find no place. */
const BLOCKS = 4;
/** The same beside kernels that exchange other pieces, which need places too. */
const SHARED_BLOCKS = 2;
const LANES = 32;

interface LoadedKernel {
  readonly source: string;
  kernel: CudaKernel | undefined;
}

interface Scratch {
  readonly sent: Tensor<"u8">;
  readonly received: Tensor<"u8">;
}

export class DeviceReduction implements Extension {
  readonly #communicator: NcclCommunicator;
  readonly #driver: NcclGroup;
  readonly #kernels = new Map<string, LoadedKernel>();
  /** What parts are made in and come to, by their bytes: of the largest calls so far. Graphs may have addresses of smaller ones. */
  #scratch: Scratch | undefined;
  /** Where pieces are quantised and summed while others are on the links. */
  #side: CudaStream | undefined;

  constructor(communicator: NcclCommunicator) {
    this.#communicator = communicator;
    this.#driver = driverOf(communicator) as NcclGroup;
  }

  submit(checked: CheckedQuantizedCall): Work<Tensor> {
    const { call, input, output, timeoutMs, signal } = checked;
    const communicator = this.#communicator;
    const { at, capturing } = communicator.parts.rank;
    const { size, rank, stream } = communicator;
    const addresses = [input, output].map((one) => deviceAddress(one, at.device, at.generation));
    const [from, to] = addresses as [number, number];
    const storages = [...new Set([input, output].map((one) => storageOf(one)))];
    for (const { pool, allocation } of storages) pool.recordUse(allocation, stream);
    const options = { ...(timeoutMs !== undefined && { timeoutMs }), ...(signal !== undefined && { signal }) };
    const agreed = agreedOf(call, checked.pieces);
    const common = { agreed: undefined, storages, value: undefined, timeoutMs };
    if (size === 1 || call.count === 0) {
      const copy = () => {
        const { sizeBytes } = input;
        if (from === to || sizeBytes === 0) return;
        at.device.call("cuMemcpyDtoDAsync_v2", "copy", BigInt(to), BigInt(from), sizeBytes, stream.handle);
      };
      return this.#driver.enqueue({ ...common, agreed, launch: copy, value: output }) as Work<Tensor>;
    }
    const kernel = this.#kernelOf(call);
    if (kernel.kernel === undefined && capturing !== undefined) {
      throw new UnsupportedError(
        "capture of a quantizedAllReduce of a kind that was not made before",
        "make it once outside of the graph",
      );
    }
    const pieces = cutIntoPieces(call, size, checked.pieces);
    const last = pieces.at(-1) as Piece;
    // Where ranks sum everything themselves, each part goes to its place among those of all.
    const isDirect = numParts(size) === 1;
    const { sent, received } = this.#scratchOf(last.at + size * last.partBytes, isDirect, capturing !== undefined);
    const [sentAt, receivedAt] = [sent, received].map((one) => deviceAddress(one, at.device, at.generation)) as [
      number,
      number,
    ];
    const launch = (step: number, piece: Piece, on: CudaStream) => {
      const { partBlocks, partBytes } = piece;
      const ownAt = sentAt + piece.at + (isDirect ? rank * partBytes : 0);
      const tensorAt = (step === QUANTIZE_STEPS.quantize ? from : to) + piece.from * sizeOf(call.dtype);
      const words = [step, tensorAt, ownAt, receivedAt + piece.at, piece.count, partBlocks, partBytes, rank];
      const args = new KernelArguments(at.device, [{ type: "words", value: BigUint64Array.from(words, BigInt) }]);
      const perBlock = (QUANTIZE_THREADS / LANES) * blocksAtOnce(call);
      const most = pieces.length > 1 ? SHARED_BLOCKS : BLOCKS;
      const grid = [Math.min(most * at.device.info.numMultiprocessors, Math.ceil(partBlocks / perBlock))] as const;
      this.#load(kernel).launch(on, { grid, block: [QUANTIZE_THREADS] }, args);
    };
    const exchange = (round: number, { at: first, partBytes }: Piece) => {
      const whole = (tensor: Tensor<"u8">) => tensor.slice(first, first + size * partBytes);
      const own = whole(sent).slice(rank * partBytes, (rank + 1) * partBytes);
      const gathers = isDirect || round > 0;
      quiet(
        gathers
          ? communicator.allGather(own, { ...options, output: whole(sent) })
          : communicator.allToAll(whole(sent), { ...options, output: whole(received) }),
      );
    };
    const rounds = isDirect ? 1 : 2;
    const order = new PieceOrder(at.device, stream, pieces.length > 1 ? this.#sideStream() : stream);
    // Loading waits for the device, which may wait for calls that this thread has yet to make.
    const ready = kernel.kernel === undefined ? () => this.#loadsNow(kernel) : undefined;
    const begin = () => {
      order.enter();
      for (const [k, piece] of pieces.entries()) {
        launch(QUANTIZE_STEPS.quantize, piece, order.side);
        order.mark(0, k);
      }
      order.waitFor(0, 0);
    };
    const first = this.#driver.enqueue({ ...common, agreed, ready, launch: begin });
    let work = first;
    quiet(work);
    try {
      for (let round = 0; round < rounds; round++)
        for (const [k, piece] of pieces.entries()) {
          exchange(round, piece);
          const isLast = piece === last;
          const goOn = () => {
            order.enter();
            launch(round + 1, piece, order.side);
            // The next exchange needs its piece alone; what follows the call, all of them.
            if (round + 1 < rounds || isLast) order.mark(round + 1, k);
            if (!isLast) order.waitFor(round, k + 1);
            else order.waitFor(round + 1, round + 1 < rounds ? 0 : k);
          };
          const isEnd = isLast && round + 1 === rounds;
          work = this.#driver.enqueue({ ...common, launch: goOn, value: isEnd ? output : undefined });
          if (!isEnd) quiet(work);
        }
      return work as Work<Tensor>;
    } catch (error) {
      // The group has failed since, as where members were asked for different things: the call was made, and tells it.
      if (first.state === "failed" && capturing === undefined) return first as Work<Tensor>;
      throw error;
    }
  }

  #sideStream(): CudaStream {
    this.#side ??= CudaStream.create(this.#communicator.parts.rank.at.device);
    return this.#side;
  }

  #kernelOf({ dtype, format, blockSize, op }: QuantizedCall): LoadedKernel {
    const key = `${dtype} ${format} ${blockSize} ${op}`;
    let known = this.#kernels.get(key);
    if (known === undefined) {
      // Before anything is sent.
      requireNvrtc();
      const { size: numRanks } = this.#communicator;
      known = { source: quantizeSource({ dtype, format, blockSize, op, numRanks }), kernel: undefined };
      this.#kernels.set(key, known);
    }
    return known;
  }

  /** Whether the kernel is there; loads it where the driver need not wait for anything. */
  #loadsNow(kernel: LoadedKernel): boolean {
    const { device } = this.#communicator.parts.rank.at;
    if (kernel.kernel === undefined && !isLoaded(device, kernel.source) && !device.isIdle()) return false;
    this.#load(kernel);
    return true;
  }

  #load(kernel: LoadedKernel): CudaKernel {
    kernel.kernel ??= useModule(this.#communicator.parts.rank.at.device, kernel.source).kernel(KERNEL_ENTRY);
    return kernel.kernel;
  }

  #scratchOf(sizeBytes: number, isOne: boolean, isCaptured: boolean): Scratch {
    const known = this.#scratch;
    if (known !== undefined && known.sent.size >= sizeBytes) return known;
    if (isCaptured) {
      throw new UnsupportedError(
        "capture of a quantizedAllReduce that is larger than all before it",
        "make it once outside of the graph",
      );
    }
    const { at } = this.#communicator.parts.rank;
    const { stream } = this.#communicator;
    const make = () =>
      deviceTensor(at.pool, stream, "u8", [sizeBytes], { generation: at.generation, label: "quantised parts" });
    // The smaller one goes when no call and no graph has it any more.
    const sent = make();
    this.#scratch = { sent, received: isOne ? sent : make() };
    return this.#scratch;
  }

  abort(): void {}

  async close(): Promise<void> {
    const { queue, rank } = this.#communicator.parts;
    // Calls that are held back launch them yet.
    await queue.drain();
    const { device } = rank.at;
    for (const { kernel, source } of this.#kernels.values()) if (kernel !== undefined) releaseModule(device, source);
    this.#kernels.clear();
    this.#side?.close();
    this.#scratch = undefined;
  }
}

/** What members must agree on of a call beside its element type, operator and count. */
function agreedOf({ dtype, op, count, format, blockSize }: QuantizedCall, pieces = 0) {
  return {
    dtype,
    op,
    count,
    hash: hashNumbers([QUANTIZED_FORMATS.indexOf(format) + 1, BLOCK_SIZES.indexOf(blockSize), count, pieces]),
    text: `quantizedAllReduce, ${format} in blocks of ${blockSize}`,
  };
}

function storageOf(tensor: Tensor): DeviceStorage {
  const storage = deviceStorageOf(tensor);
  if (storage === undefined) throw new InvariantError("a device tensor has device storage");
  return storage;
}

/** The work of a step: what becomes of it the whole call's work tells. */
function quiet(work: Work<unknown>): void {
  (work as { seen?: boolean }).seen = true;
}
