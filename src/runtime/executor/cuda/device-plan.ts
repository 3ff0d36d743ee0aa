/**
 * A plan on the devices of a group: its kernel compiled and loaded, its windows allocated and told to the peers. Launches go
 * on a stream like any kernel, count themselves on the device, and may be captured: a graph replays them with no host work.
 * Ranks are threads of one process or processes; how they tell each other is the communicator's matter.
 */
import { chunkBytesOf, type ExecutionPlan, partBytesOf, proofOf, shapeOf } from "../../../authoring/plan/index.ts";
import {
  ClosedError,
  type DType,
  InvalidArgumentError,
  type NamedReduceOp,
  PlanError,
  Tensor,
  UnsupportedError,
} from "../../../core/index.ts";
import type { Communicator } from "../../comm/index.ts";
import {
  type Allocation,
  type CudaKernel,
  CudaModule,
  type CudaStream,
  type DeviceStorage,
  devicePtr,
  deviceStorageOf,
  KernelArguments,
  PeerMemory,
  type PinnedBuffer,
  type RankDevice,
  requireNvrtc,
} from "../../device/index.ts";
import { compileCached } from "./cubin-cache.ts";
import { type CudaOptions, type GeneratedKernel, generateCuda } from "./generate.ts";
import { launchWords, windowBytes } from "./launch-words.ts";

/** Threads that a multiprocessor holds at once, on every architecture from sm_80 on; blocks wait for each other. */
const THREADS_PER_MULTIPROCESSOR = 2048;

export interface DevicePlanOptions
  extends Pick<CudaOptions, "dtype" | "threads" | "unroll" | "packets" | "debugTurns"> {
  readonly op?: NamedReduceOp;
  /** The largest size that will be launched: bytes of the larger of a rank's two buffers. It decides how much memory is taken. */
  readonly maxBytes: number;
  /** Whether ranks are processes. False unless told: threads of one process. */
  readonly interprocess?: boolean;
}

/** What a rank tells its peers as a plan is opened. */
interface Told {
  readonly source: string;
  readonly maxBytes: number;
  readonly note: readonly number[];
}

/**
 * A plan, ready to run on the devices of a group. Every rank of the group opens it, launches it equally often and in the same
 * order among its other launches, and closes it when no rank runs it any more.
 * @example
 * import type { Communicator, Tensor } from "chorale";
 * import { algorithm } from "chorale/algorithms";
 * import type { RankDevice } from "chorale/device";
 * import { DevicePlan } from "chorale/executor";
 * import { compile } from "chorale/language";
 * import { provePlan } from "chorale/verifier";
 *
 * // Sums `x` over two ranks; `at` is what deviceOf(world) gives.
 * export async function sum(comm: Communicator, at: RankDevice, x: Tensor<"f32">, y: Tensor<"f32">): Promise<void> {
 *   const plan = compile(algorithm("one-shot-packet-all-reduce").make({ numRanks: 2, instances: 8 }), { verify: false });
 *   provePlan(plan);
 *   using kernel = await DevicePlan.open(comm, at, plan, { dtype: "f32", maxBytes: x.sizeBytes });
 *   kernel.launch(x, y);
 *   at.main.synchronize();
 *   await comm.barrier(); // before any rank frees what the others write to
 * }
 */
export class DevicePlan implements Disposable {
  readonly plan: ExecutionPlan;
  readonly rank: number;
  readonly dtype: DType;
  readonly kernel: GeneratedKernel;
  readonly maxBytes: number;
  readonly #at: RankDevice;
  readonly #entry: CudaKernel;
  readonly #state: Allocation;
  readonly #abort: PinnedBuffer;
  readonly #windows: readonly bigint[];
  readonly #args: KernelArguments;
  readonly #maxChunkBytes: number;
  /** Gives back what the plan holds, the last thing taken last. */
  readonly #giveBack: readonly (() => void)[];
  #closed = false;

  private constructor(parts: {
    readonly plan: ExecutionPlan;
    readonly rank: number;
    readonly dtype: DType;
    readonly kernel: GeneratedKernel;
    readonly maxBytes: number;
    readonly at: RankDevice;
    readonly entry: CudaKernel;
    readonly state: Allocation;
    readonly abort: PinnedBuffer;
    readonly windows: readonly bigint[];
    readonly maxChunkBytes: number;
    readonly giveBack: readonly (() => void)[];
  }) {
    this.plan = parts.plan;
    this.rank = parts.rank;
    this.dtype = parts.dtype;
    this.kernel = parts.kernel;
    this.maxBytes = parts.maxBytes;
    this.#at = parts.at;
    this.#entry = parts.entry;
    this.#state = parts.state;
    this.#abort = parts.abort;
    this.#windows = parts.windows;
    this.#maxChunkBytes = parts.maxChunkBytes;
    this.#giveBack = parts.giveBack;
    this.#args = new KernelArguments(parts.at.device, [{ type: "words", value: this.#words(0n, 0n, 0) }]);
  }

  /**
   * Compiles the plan's kernel for this device, or takes it from the cache on disk, and connects the ranks. A collective of
   * the group: every rank calls it with the same plan and options.
   * @throws (rejects with) InvalidArgumentError for a plan of another number of ranks or one that was not proved, and when ranks differ; PlanError for one
   *   that is wrong, UnsupportedError for more blocks than the device holds at once, and among processes for a plan that reaches
   *   buffers of other ranks; UnavailableError without NVRTC; OutOfMemoryError
   */
  static async open(
    comm: Communicator,
    at: RankDevice,
    plan: ExecutionPlan,
    options: DevicePlanOptions,
  ): Promise<DevicePlan> {
    const { maxBytes, interprocess = false, ...shape } = options;
    if (!Number.isSafeInteger(maxBytes) || maxBytes < 1)
      throw new InvalidArgumentError("maxBytes", maxBytes, "a whole number of bytes, at least 1");
    if (plan.ranks.length !== comm.size)
      throw new InvalidArgumentError(
        "plan",
        `for ${plan.ranks.length} ranks`,
        `one for the group's ${comm.size} ranks`,
      );
    const proof = proofOf(plan);
    const name = plan.name ?? "the plan";
    if (proof === undefined)
      throw new InvalidArgumentError("plan", `${name}, which was not verified`, "one that provePlan() passed");
    if (!proof.ok) throw new PlanError(name, [], proof.opinion);
    const { numMultiprocessors, computeCapability } = at.device.info;
    const blocks = Math.max(1, ...plan.ranks.map(({ strands }) => strands.length));
    const blocksPerMultiprocessor = Math.ceil(blocks / numMultiprocessors);
    const kernel = generateCuda(plan, {
      ...shape,
      blocksPerMultiprocessor,
      relaunches: proof.relaunches(),
      endsAlone: proof.endsAlone(),
    });
    if (blocksPerMultiprocessor * kernel.threads > THREADS_PER_MULTIPROCESSOR) {
      throw new UnsupportedError(
        `${blocks} blocks of ${kernel.threads} threads, which wait for each other`,
        `at most ${numMultiprocessors * Math.floor(THREADS_PER_MULTIPROCESSOR / kernel.threads)} fit on this device at once`,
      );
    }
    if (kernel.reachesBuffers && interprocess) {
      throw new UnsupportedError(
        `${name} among processes`,
        "it reaches buffers of other ranks, which only threads of one process can tell each other; use an algorithm that sends to scratch",
      );
    }
    const cubin = compileCached(requireNvrtc(), kernel.source, computeCapability);
    const maxChunkBytes = largestChunk(plan, comm.rank, maxBytes);
    const sizeBytes = windowBytes(kernel, maxChunkBytes).bytes;
    // What is taken is given back when a later step fails.
    const taken: (() => void)[] = [];
    const take = <T>(made: T, giveBack: (made: T) => void): T => {
      taken.push(() => giveBack(made));
      return made;
    };
    try {
      const module = take(CudaModule.load(at.device, cubin), (made) => made.close());
      const entry = module.kernel(kernel.entry);
      const peers = take(new PeerMemory(at.device, at.pool, { interprocess }), (made) => made.close());
      const window = take(peers.pool.allocate(sizeBytes, at.main, "window of a plan"), (made) => peers.pool.free(made));
      const stateBytes = 4 * kernel.state.words;
      const state = take(at.pool.allocate(stateBytes, at.main, "state of a plan"), (made) => at.pool.free(made));
      const abort = take(at.pinned.take(4), (made) => at.pinned.giveBack(made));
      new Uint32Array(abort.buffer, 0, 1)[0] = 0;
      for (const [address, bytes] of [
        [window.address, sizeBytes],
        [state.address, stateBytes],
      ] as const)
        at.device.call("cuMemsetD8Async", "plan", address, 0, bytes, at.main.handle);
      const semaphores = Uint32Array.from(kernel.semaphores[comm.rank]!);
      if (semaphores.length > 0) {
        const to = state.address + BigInt(4 * kernel.state.semaphores);
        at.device.call("cuMemcpyHtoDAsync_v2", "plan", to, semaphores, semaphores.byteLength, at.main.handle);
      }
      at.main.synchronize("plan");
      const note = [...peers.describe(window.address, sizeBytes)];
      const told = (await comm.gatherObjects({ source: kernel.source, maxBytes, note } satisfies Told)) as Told[];
      told.forEach((other, rank) => {
        if (other.source === kernel.source && other.maxBytes === maxBytes) return;
        throw new InvalidArgumentError("plan and options", `others than rank ${rank}'s`, "the same on all ranks");
      });
      const windows = told.map((other, rank) =>
        rank === comm.rank ? window.address : peers.locate(Int32Array.from(other.note)).address,
      );
      const own = { plan, rank: comm.rank, dtype: options.dtype, kernel, maxBytes, at, maxChunkBytes };
      return new DevicePlan({ ...own, entry, state, abort, windows, giveBack: taken });
    } catch (error) {
      for (const giveBack of taken.reverse()) giveBack();
      throw error;
    }
  }

  #words(input: bigint, output: bigint, partBytes: number): BigUint64Array {
    const chunkBytes = chunkBytesOf(shapeOf(this.plan), partBytes);
    return BigUint64Array.from(
      launchWords(this.kernel, {
        rank: this.rank,
        input,
        output,
        state: this.#state.address,
        abort: this.#abort.deviceAddress,
        partBytes,
        chunkBytes,
        windows: this.#windows,
      }),
    );
  }

  /**
   * Launches the plan behind whatever the stream was given. In place, `input` and `output` are as the collective's in-place form
   * says. The result is there when the stream has come past it.
   * @param stream the rank's main stream unless told; also one that captures
   * @throws InvalidArgumentError for tensors that do not fit the plan, are of another dtype, or are larger than `maxBytes`; ClosedError
   */
  launch(input: Tensor | undefined, output: Tensor | undefined, stream: CudaStream = this.#at.main): void {
    if (this.#closed) throw new ClosedError("plan", "was closed");
    const [from, to] = [this.#operand("input", input), this.#operand("output", output)];
    const partBytes = partBytesOf(this.plan, this.rank, from.sizeBytes, to.sizeBytes);
    if (chunkBytesOf(shapeOf(this.plan), partBytes) > this.#maxChunkBytes)
      throw new InvalidArgumentError("input", `${from.sizeBytes} bytes`, `at most maxBytes, ${this.maxBytes}`);
    for (const { storage } of [from, to]) if (storage !== undefined) storage.pool.recordUse(storage.allocation, stream);
    this.#args.set(0, { type: "words", value: this.#words(from.address, to.address, partBytes) });
    const { blocks, threads } = this.kernel;
    this.#entry.launch(stream, { grid: [blocks[this.rank]!], block: [threads] }, this.#args);
  }

  #operand(name: string, tensor: Tensor | undefined) {
    if (tensor === undefined) return { address: 0n, sizeBytes: 0, storage: undefined };
    if (!(tensor instanceof Tensor) || tensor.dtype !== this.dtype)
      throw new InvalidArgumentError(name, tensor, `a device tensor of ${this.dtype}`);
    const address = devicePtr(tensor, this.#at.device, this.#at.generation);
    return { address, sizeBytes: tensor.sizeBytes, storage: deviceStorageOf(tensor) as DeviceStorage };
  }

  /** Ends launches that wait for other ranks, with whatever their outputs hold then. The plan cannot be used any more. */
  abort(): void {
    if (!this.#closed) new Uint32Array(this.#abort.buffer, 0, 1)[0] = 1;
  }

  /** Gives back what the plan holds. No rank may be running it, nor will. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const giveBack of [...this.#giveBack].reverse()) giveBack();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** The chunk of the largest size, where the larger of the rank's buffers has `maxBytes`. */
function largestChunk(plan: ExecutionPlan, rank: number, maxBytes: number): number {
  const own = plan.ranks[rank]!;
  const shape = shapeOf(plan);
  const parts = Math.max(
    1,
    ...[own.input, own.output].map((buffer) =>
      buffer.chunks === 0 ? 0 : shape.exact ? buffer.chunks : buffer.segments,
    ),
  );
  return chunkBytesOf(shape, Math.ceil(maxBytes / parts));
}
