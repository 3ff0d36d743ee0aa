/**
 * A plan on the devices of a group: its kernel compiled and loaded, its windows allocated and told to the peers. Launches go
 * on a stream like any kernel, count themselves on the device, and may be captured: a graph replays them with no host work.
 * Ranks are threads of one process or processes; how they tell each other is the communicator's matter.
 */
import { createHash } from "node:crypto";
import { type ExecutionPlan, partBytesOf, proofOf } from "../../../authoring/plan/index.ts";
import {
  ClosedError,
  type DType,
  InvalidArgumentError,
  type NamedReduceOp,
  PlanError,
  Tensor,
  UnsupportedError,
} from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import type { Communicator } from "../../comm/index.ts";
import {
  CudaStream,
  type DeviceStorage,
  devicePtr,
  deviceStorageOf,
  PeerMemory,
  type RankDevice,
} from "../../device/index.ts";
import type { CudaOptions, GeneratedKernel } from "./generate.ts";
import { kernelFor, LoadedPlan } from "./loaded-plan.ts";

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
  readonly #loaded: LoadedPlan;
  readonly #peers: PeerMemory;
  /** Nothing else runs on it: what ends launches goes there. */
  readonly #aside: CudaStream;
  #closed = false;

  private constructor(parts: {
    readonly plan: ExecutionPlan;
    readonly rank: number;
    readonly dtype: DType;
    readonly maxBytes: number;
    readonly at: RankDevice;
    readonly loaded: LoadedPlan;
    readonly peers: PeerMemory;
    readonly aside: CudaStream;
  }) {
    this.plan = parts.plan;
    this.rank = parts.rank;
    this.dtype = parts.dtype;
    this.kernel = parts.loaded.kernel;
    this.maxBytes = parts.maxBytes;
    this.#at = parts.at;
    this.#loaded = parts.loaded;
    this.#peers = parts.peers;
    this.#aside = parts.aside;
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
        described(`for ${plan.ranks.length} ranks`),
        `one for the group's ${comm.size} ranks`,
      );
    const proof = proofOf(plan);
    const name = plan.name ?? "the plan";
    if (proof === undefined)
      throw new InvalidArgumentError(
        "plan",
        described(`${name}, which was not verified`),
        "one that provePlan() passed",
      );
    if (!proof.ok) throw new PlanError(name, [], proof.opinion);
    const kernel = kernelFor(plan, at.device.info, shape, interprocess);
    if (kernel.shiftsAddresses) {
      throw new UnsupportedError(
        `${name} among processes`,
        "it reaches buffers of other ranks, of which launches here cannot tell: use comm.run, or a plan that sends to scratch",
      );
    }
    const peers = new PeerMemory(at.device, at.pool, { interprocess });
    const aside = CudaStream.create(at.device);
    let loaded: LoadedPlan | undefined;
    try {
      const own = { plan, rank: comm.rank, dtype: options.dtype, maxBytes, at, peers };
      loaded = new LoadedPlan({ ...own, kernel, stream: at.main });
      at.main.synchronize("plan");
      const source = createHash("sha256").update(kernel.source).digest("hex");
      const note = [...loaded.describe()];
      const told = (await comm.gatherObjects({ source, maxBytes, note } satisfies Told)) as Told[];
      told.forEach((other, rank) => {
        if (other.source === source && other.maxBytes === maxBytes) return;
        throw new InvalidArgumentError(
          "plan and options",
          described(`others than rank ${rank}'s`),
          "the same on all ranks",
        );
      });
      loaded.connect(told.map((other) => Int32Array.from(other.note)));
      return new DevicePlan({ ...own, loaded, aside });
    } catch (error) {
      loaded?.close();
      aside.close();
      peers.close();
      throw error;
    }
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
    if (!this.#loaded.hasRoom(partBytes))
      throw new InvalidArgumentError(
        "input",
        described(`${from.sizeBytes} bytes`),
        `at most maxBytes, ${this.maxBytes}`,
      );
    for (const { storage } of [from, to]) if (storage !== undefined) storage.pool.recordUse(storage.allocation, stream);
    this.#loaded.launch(stream, from.address, to.address, partBytes);
  }

  #operand(name: string, tensor: Tensor | undefined) {
    if (tensor === undefined) return { address: 0n, sizeBytes: 0, storage: undefined };
    if (!(tensor instanceof Tensor) || tensor.dtype !== this.dtype)
      throw new InvalidArgumentError(name, tensor, `a device tensor of ${this.dtype}`);
    const address = devicePtr(tensor, this.#at.device, this.#at.generation);
    return { address, sizeBytes: tensor.sizeBytes, storage: deviceStorageOf(tensor) as DeviceStorage };
  }

  /** Ends launches that wait for other ranks, on all of them, with whatever their outputs hold then. The plan cannot be used any more. */
  abort(): void {
    if (!this.#closed) this.#loaded.abort(this.#aside);
  }

  /** Gives back what the plan holds. No rank may be running it, nor will. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#loaded.close();
    this.#aside.close();
    this.#peers.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
