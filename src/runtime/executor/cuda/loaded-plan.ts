/**
 * One rank's part of a plan on its device: the kernel compiled and loaded, its window and state allocated. It knows nothing of
 * how ranks talk: whoever owns it tells the peers its note, and gives it theirs. From then on launches go on a stream like any
 * kernel, count themselves on the device, and may be captured.
 */
import { chunkBytesOf, type ExecutionPlan, proofOf, shapeOf } from "../../../authoring/plan/index.ts";
import { type DType, UnsupportedError } from "../../../core/index.ts";
import {
  type Allocation,
  type CudaDevice,
  type CudaDeviceInfo,
  type CudaKernel,
  type CudaStream,
  KernelArguments,
  type LaunchShape,
  type PeerMemory,
  type PinnedBuffer,
  type RankDevice,
} from "../../device/index.ts";
import { LaunchGraph } from "../../device/internal.ts";
import { FoldedKernels } from "./folded-kernels.ts";
import { type CudaOptions, type GeneratedKernel, generateCuda } from "./generate.ts";
import { isLoaded, releaseModule, useModule } from "./kernel-modules.ts";
import { END_WORDS, LAUNCH_WORDS, REPORT_WORDS } from "./launch-layout.ts";
import {
  chunkOfLaunch,
  type LaunchEpilogue,
  launchWords,
  packetBytes,
  type WindowSizes,
  windowBytes,
  writeShifts,
  writeWord,
} from "./launch-words.ts";
import { PlanGraphs } from "./plan-graphs.ts";
import { waitReport } from "./wait-report.ts";

/** Threads that a multiprocessor holds at once, on every architecture from sm_80 on; blocks wait for each other. */
const THREADS_PER_MULTIPROCESSOR = 2048;

/** Registers of a multiprocessor, on the same; a warp takes them in units of 256. */
const REGISTERS_PER_MULTIPROCESSOR = 65_536;

/** What a device is like, as far as blocks find their places there. */
type Places = Pick<CudaDeviceInfo, "computeCapability" | "numMultiprocessors">;

/** Whether blocks form clusters there: from sm_90 on. */
export const hasClusters = ({ computeCapability }: Pick<CudaDeviceInfo, "computeCapability">): boolean =>
  computeCapability[0] >= 9;

/**
 * Places for blocks that a device must have so that all blocks find theirs. Those of a cluster do in one group of multiprocessors
 * (a GPC), or none does: in every group all but one of them may be left over. Data centre devices have 8 groups, others up to 12.
 */
export function placesFor(blocks: number, blocksPerStrand: number, device: Pick<Places, "computeCapability">): number {
  return blocks + (device.computeCapability[0] < 11 ? 8 : 12) * (blocksPerStrand - 1);
}

/** Where the word that ends launches stands in pinned memory: behind those in which launches tell their ends. */
const ABORT_AT = 4 * END_WORDS;

/** How a plan becomes a kernel: see `CudaOptions`. */
export type KernelShape = Pick<
  CudaOptions,
  "dtype" | "op" | "threads" | "unroll" | "packets" | "prefersLines" | "blocksPerStrand" | "debugTurns" | "epilogue"
>;

/**
 * Writes the kernel of a plan for devices of a kind. What nobody has proved meets its peers in every launch.
 * @param interprocess whether ranks are processes: launches then say what to add to the addresses that peers tell (`shifts`)
 * @throws UnsupportedError for more blocks than such a device holds at once; what `generateCuda` throws
 */
export function kernelFor(
  plan: ExecutionPlan,
  device: Places,
  shape: KernelShape,
  interprocess: boolean,
): GeneratedKernel {
  const proof = proofOf(plan);
  const isProved = proof?.ok === true;
  const { numMultiprocessors } = device;
  const { blocksPerStrand = 1 } = shape;
  if (blocksPerStrand > 1 && !hasClusters(device)) {
    throw new UnsupportedError(
      `${blocksPerStrand} blocks a strand on a device of compute capability ${device.computeCapability.join(".")}`,
      "blocks form clusters from 9.0 on; use more instances",
    );
  }
  const blocks = blocksPerStrand * Math.max(1, ...plan.ranks.map(({ strands }) => strands.length));
  const blocksPerMultiprocessor = Math.ceil(placesFor(blocks, blocksPerStrand, device) / numMultiprocessors);
  const kernel = generateCuda(plan, {
    ...shape,
    blocksPerMultiprocessor,
    relaunches: isProved && proof.relaunches(),
    endsAlone: isProved && proof.endsAlone(),
    interprocess,
  });
  if (blocksPerMultiprocessor * kernel.threads > THREADS_PER_MULTIPROCESSOR) {
    throw new UnsupportedError(
      `${blocks} blocks of ${kernel.threads} threads, which wait for each other`,
      `at most ${numMultiprocessors * Math.floor(THREADS_PER_MULTIPROCESSOR / kernel.threads)} fit on this device at once`,
    );
  }
  return kernel;
}

/** Hears of launches that tell the host of their ends, in the order in which they go onto a stream. */
export interface LaunchEnds {
  /** The launch that was put on the stream has ended once all of `words`, as numbers of 32 bits, are `count`, or above. */
  launched(words: Int32Array, count: number): void;
}

/** What a plan is loaded with. */
export interface LoadedPlanParts {
  readonly plan: ExecutionPlan;
  readonly rank: number;
  readonly dtype: DType;
  readonly kernel: GeneratedKernel;
  /** The largest size of the largest of all ranks' buffers, bytes: the same on all ranks. */
  readonly maxBytes: number;
  readonly at: RankDevice;
  readonly peers: PeerMemory;
  /** What is allocated is made ready on it, and launches come behind that. */
  readonly stream: CudaStream;
  /**
   * Whether nothing of this rank is on its device, nor goes into a graph: then kernels of sizes that repeat may be loaded. Without it sizes
   * stay arguments.
   */
  readonly isQuiet?: () => boolean;
}

export class LoadedPlan {
  readonly kernel: GeneratedKernel;
  /** The largest chunk that windows have room for. */
  readonly #maxChunkBytes: number;
  readonly #parts: LoadedPlanParts;
  readonly #entry: CudaKernel;
  readonly #shape: LaunchShape;
  readonly #window: Allocation;
  readonly #sizes: WindowSizes;
  readonly #state: Allocation;
  /** Holds the words in which launches tell their ends, the word that ends launches, and what the semaphores begin with. */
  readonly #pinned: PinnedBuffer;
  /** The first of these, as the host and as the device sees them. */
  readonly #endWords: Int32Array;
  readonly #endsAt: number;
  /** What launches of a debug build say when they give up, and where that is. */
  readonly #report: Int32Array;
  readonly #reportAt: number;
  /** How many launches were to tell their ends. */
  #numTold = 0;
  readonly #graphs: PlanGraphs = new PlanGraphs(
    () => this.#graphOfLaunch(),
    (partBytes) => this.#folded?.repeated(partBytes),
  );
  readonly #folded: FoldedKernels | undefined;
  #scalar: bigint | undefined;
  /** Gives back what was taken, the last thing last. */
  readonly #taken: (() => void)[] = [];
  #windows: readonly bigint[] = [];
  #args: KernelArguments | undefined;
  /** The launch's words, where the driver reads them, as pairs of 4 bytes. */
  #halves: Uint32Array = new Uint32Array(0);
  #partBytes = -1;
  /** Of the epilogue, where its blocks do not meet; 0 where they do. */
  #unitBytes = 0;
  #closed = false;

  /**
   * Whether the kernel is on a device, because another plan brought it there. Otherwise the driver waits, as the plan is loaded, for
   * whatever runs on the device.
   */
  static isKernelLoaded(device: CudaDevice, kernel: GeneratedKernel): boolean {
    return isLoaded(device, kernel.source);
  }

  /** @throws UnavailableError without NVRTC, NativeError with the compiler's log, OutOfMemoryError; nothing is held then */
  constructor(parts: LoadedPlanParts) {
    const { plan, rank, kernel, maxBytes, at, peers, stream } = parts;
    this.#parts = parts;
    this.kernel = kernel;
    this.#maxChunkBytes = largestChunk(plan, maxBytes);
    this.#sizes = windowBytes(kernel, this.#maxChunkBytes);
    this.#shape = { grid: [kernel.blocks[rank]!], block: [kernel.threads] };
    try {
      const module = this.#take(useModule(at.device, kernel.source), () => releaseModule(at.device, kernel.source));
      this.#entry = module.kernel(kernel.entry);
      this.#folded = this.#foldedKernels();
      const fromPool = (pool: typeof at.pool, bytes: number, label: string) =>
        this.#take(pool.allocate(bytes, stream, label), (made) => pool.free(made));
      this.#window = fromPool(peers.pool, this.#sizes.bytes, "window of a plan");
      this.#take(this.#noteLaunches(), (word) => at.device.ledger?.drop("launches", word));
      const stateBytes = 4 * kernel.state.words;
      this.#state = fromPool(at.pool, stateBytes, "state of a plan");
      const first = kernel.semaphores[rank]!;
      this.#reportAt = ABORT_AT + 4 + 4 * first.length;
      const pinnedBytes = this.#reportAt + 4 * REPORT_WORDS;
      this.#pinned = this.#take(at.pinned.take(pinnedBytes), (made) => at.pinned.giveBack(made));
      this.#endWords = new Int32Array(this.#pinned.buffer, 0, END_WORDS).fill(0);
      this.#endsAt = Number(this.#pinned.deviceAddress);
      this.#report = new Int32Array(this.#pinned.buffer, this.#reportAt, REPORT_WORDS).fill(0);
      this.#take(this.#graphs, (made) => made.close());
      new Uint32Array(this.#pinned.buffer, ABORT_AT, 1 + first.length).set([1, ...first]);
      const clear = ({ address }: Allocation, bytes: number) =>
        at.device.call("cuMemsetD8Async", "plan", address, 0, bytes, stream.handle);
      clear(this.#window, this.#sizes.bytes);
      clear(this.#state, stateBytes);
      if (first.length > 0) {
        const [to, from] = [
          this.#state.address + BigInt(4 * kernel.state.semaphores),
          this.#pinned.address + BigInt(ABORT_AT + 4),
        ];
        at.device.call("cuMemcpyHtoDAsync_v2", "plan", to, from, 4 * first.length, stream.handle);
      }
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Places that blocks of this rank's launches need, and of a multiprocessor's threads or registers what each takes, from 0 to 1. */
  get demand(): { readonly blocks: number; readonly share: number } {
    const [blocks = 1] = this.#shape.grid;
    const { blocksPerStrand } = this.kernel;
    return {
      blocks: placesFor(blocks, blocksPerStrand, this.#parts.at.device.info),
      share: this.#shareOf(this.#entry),
    };
  }

  /** Of a multiprocessor's threads or registers what a block takes, from 0 to 1. */
  #shareOf({ numRegisters }: CudaKernel): number {
    const { threads } = this.kernel;
    // Not known: as many as a block may have.
    const ofRegisters =
      numRegisters === undefined ? 1 : (Math.ceil(numRegisters / 8) * 8 * threads) / REGISTERS_PER_MULTIPROCESSOR;
    return Math.min(1, Math.max(threads / THREADS_PER_MULTIPROCESSOR, ofRegisters));
  }

  #foldedKernels(): FoldedKernels | undefined {
    const { at, isQuiet, plan } = this.#parts;
    if (isQuiet === undefined || this.kernel.reports) return undefined;
    const share = this.#shareOf(this.#entry);
    const folded = FoldedKernels.of({
      device: at.device,
      kernel: this.kernel,
      isQuiet,
      fits: (kernel) => this.#shareOf(kernel) <= share,
      sizesOf: (part) => {
        const chunk = chunkBytesOf(shapeOf(plan), part);
        const { bytes: _, ...places } = this.#sizes;
        return { ...places, part, chunk, packetChunk: packetBytes(this.kernel, chunk) };
      },
      changed: () => this.#graphs.forget(),
    });
    return folded && this.#take(folded, (made) => made.close());
  }

  /** Brings kernels of the sizes that were called last, where they have been compiled: what is captured next launches them. */
  beforeCapture(): void {
    this.#folded?.beforeCapture();
  }

  /** What the peers must know of this rank's window. */
  describe(): Int32Array {
    return this.#parts.peers.describe(this.#window.address, this.#sizes.bytes);
  }

  /** Takes the peers' notes, by rank; the own one is not looked at. @throws NativeError for memory that cannot be reached */
  connect(notes: readonly Int32Array[]): void {
    const { peers, rank, at } = this.#parts;
    this.#windows = notes.map((note, other) => (other === rank ? this.#window.address : peers.locate(note).address));
    this.#args = new KernelArguments(at.device, [{ type: "words", value: this.#firstWords() }]);
    const { buffer, byteOffset, length } = this.#args.words(0);
    this.#halves = new Uint32Array(buffer, byteOffset, 2 * length);
  }

  /** Whether windows have room for a size. */
  hasRoom(partBytes: number): boolean {
    return chunkBytesOf(shapeOf(this.#parts.plan), partBytes) <= this.#maxChunkBytes;
  }

  /**
   * Launches the plan behind what the stream was given.
   * @param input address of this rank's buffer as the plan wants it, 0 where it uses none
   * @param partBytes of the collective's buffers; `hasRoom` said yes to it
   * @param ends is told of the launch, which says when it is done. Not in a capture: replays would not be counted
   */
  launch(
    stream: CudaStream,
    input: number | bigint,
    output: number | bigint,
    partBytes: number,
    ends?: LaunchEnds,
  ): void {
    const [from, to] = [Number(input), Number(output)];
    if (this.kernel.reports) {
      this.#launchReporting(stream, from, to, partBytes);
      return;
    }
    if (ends !== undefined && this.#graphs.relaunch(stream, from, to, partBytes)) {
      ends.launched(this.#endWords, ++this.#numTold);
      return;
    }
    this.#folded?.called(partBytes);
    const kernel = this.#folded?.kernelFor(partBytes, from, to) ?? this.#entry;
    this.#write(from, to, partBytes, ends === undefined ? 0 : this.#endsAt);
    if (ends === undefined || !this.#graphs.launch(stream, from, to, partBytes, kernel))
      kernel.launch(stream, this.#shape, this.#args as KernelArguments);
    ends?.launched(this.#endWords, ++this.#numTold);
  }

  /** What the launch says of itself comes behind it: so its end is that of the copy, of which the kernel knows nothing. */
  #launchReporting(stream: CudaStream, input: number, output: number, partBytes: number): void {
    this.#write(input, output, partBytes, 0);
    this.#entry.launch(stream, this.#shape, this.#args as KernelArguments);
    const from = this.#state.address + BigInt(4 * this.kernel.state.report);
    const to = this.#pinned.address + BigInt(this.#reportAt);
    this.#parts.at.device.call("cuMemcpyDtoHAsync_v2", "report of a launch", to, from, 4 * REPORT_WORDS, stream.handle);
  }

  /** Which strand has given up waiting for what, in a launch that has ended; of a kernel with `reports`. */
  get gaveUp(): string | undefined {
    return this.#closed ? undefined : waitReport(this.#parts.plan, this.#parts.rank, this.#report);
  }

  #graphOfLaunch(): LaunchGraph | undefined {
    try {
      return LaunchGraph.make(this.#entry, this.#shape, this.#args as KernelArguments);
    } catch (error) {
      // There may be no memory for it, which no call needs.
      if (this.#parts.at.device.poison !== undefined) throw error;
      return undefined;
    }
  }

  #write(input: number, output: number, partBytes: number, endsAt: number): void {
    const halves = this.#halves;
    if (partBytes !== this.#partBytes) {
      const chunkBytes = chunkOfLaunch(this.kernel, shapeOf(this.#parts.plan), partBytes, this.#unitBytes);
      writeWord(halves, "part", partBytes);
      writeWord(halves, "chunk", chunkBytes);
      writeWord(halves, "packetChunk", packetBytes(this.kernel, chunkBytes));
      if (this.kernel.epilogueWords > 0) this.#writeUnits(chunkBytes);
      this.#partBytes = partBytes;
    }
    writeWord(halves, "input", input);
    writeWord(halves, "output", output);
    writeWord(halves, "done", endsAt);
  }

  #writeUnits(chunkBytes: number): void {
    const { kernel } = this;
    const isApart = kernel.ownsChunks && this.#unitBytes > 0;
    const all = (this.#args as KernelArguments).words(0);
    all[all.length - kernel.epilogueWords - 1] = BigInt(isApart ? chunkBytes / this.#unitBytes : 0);
  }

  /** What preMulSum multiplies with from now on, as the bits of the type that elements are combined in. */
  set scalar(bits: bigint) {
    if (bits === this.#scalar) return;
    this.#scalar = bits;
    this.#graphs.forget();
    (this.#args as KernelArguments).words(0)[LAUNCH_WORDS.indexOf("scalar")] = bits;
  }

  /**
   * What launches add from now on to the addresses that ranks tell of their inputs, then of their outputs: of a kernel with
   * `shiftsAddresses`, whose ranks are processes.
   */
  set shifts(shifts: readonly number[]) {
    if (writeShifts(this.#halves, shifts)) this.#graphs.forget();
  }

  /** What launches give the kernel's epilogue from now on. */
  set epilogue({ words, unitBytes }: LaunchEpilogue) {
    const all = (this.#args as KernelArguments).words(0);
    const first = all.length - this.kernel.epilogueWords;
    let changed = unitBytes !== this.#unitBytes;
    if (changed) this.#partBytes = -1;
    this.#unitBytes = unitBytes;
    for (let i = 0; i < words.length; i++) {
      changed ||= all[first + i] !== words[i];
      all[first + i] = words[i] as bigint;
    }
    if (changed) this.#graphs.forget();
  }

  /** Of a launch of no bytes: those that a size decides are written when it is launched. */
  #firstWords(): BigUint64Array {
    const { rank } = this.#parts;
    return BigUint64Array.from(
      launchWords(this.kernel, {
        rank,
        input: 0n,
        output: 0n,
        state: this.#state.address,
        abort: this.#window.address + BigInt(this.kernel.window.abort),
        partBytes: 0,
        chunkBytes: 0,
        sizes: this.#sizes,
        windows: this.#windows,
      }),
    );
  }

  /**
   * Ends launches of all ranks that wait for others, with whatever their outputs hold then; the plan is of no use afterwards.
   * A rank that died may have left one running, so everybody ends everybody's.
   * @param stream one on which nothing waits. Copies need no multiprocessor, all of which may be taken
   */
  abort(stream: CudaStream): void {
    const { device } = this.#parts.at;
    if (this.#closed || device.poison !== undefined || device.closed) return;
    for (const window of this.#windows) {
      const to = window + BigInt(this.kernel.window.abort);
      device.call(
        "cuMemcpyHtoDAsync_v2",
        "end of a plan",
        to,
        this.#pinned.address + BigInt(ABORT_AT),
        4,
        stream.handle,
      );
    }
  }

  /** Writes down where launches are ended: whoever frees what a killed rank held must end them first. */
  #noteLaunches(): bigint {
    const word = this.#window.address + BigInt(this.kernel.window.abort);
    return this.#parts.at.device.make("launches", (out) => {
      out[0] = word;
    });
  }

  /** Gives back what it holds. No rank may be running it, nor will. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const giveBack of this.#taken.reverse()) giveBack();
  }

  #take<T>(made: T, giveBack: (made: T) => void): T {
    this.#taken.push(() => giveBack(made));
    return made;
  }
}

/**
 * The chunk of the largest size, where the largest buffer of any rank has `maxBytes`. Ranks reckon with it where things lie in
 * each other's windows: it may not depend on the rank, some of whose buffers can be smaller than others'.
 */
export function largestChunk(plan: ExecutionPlan, maxBytes: number): number {
  const shape = shapeOf(plan);
  return chunkBytesOf(shape, Math.ceil(maxBytes / shape.mostParts));
}
