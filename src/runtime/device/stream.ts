/** Streams, events and graphs of a device: thin owners of the driver's handles. */
import { ClosedError, InvalidArgumentError, wordTable } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { CUDA_STATUS } from "../../foreign/cuda/index.ts";
import type { HeldKind } from "../memory/index.ts";
import { checkMade, MADE_HERE, type MadeHere } from "./construction-key.ts";
import { type CudaDevice, checkDevice } from "./device.ts";
import type { Following, StreamSource } from "./device-waiting.ts";
import { callSynchronous } from "./synchronous-call.ts";

const NON_BLOCKING = 1;
const DISABLE_TIMING = 2;
/** Capture of this thread only: other threads' calls neither join nor break it (cuda.h). */
const CAPTURE_MODE_THREAD_LOCAL = 1;

/** Who makes what holds a handle, by the name of its class. */
const FACTORIES: Readonly<Record<string, string>> = wordTable({
  CudaStream: "CudaStream.create(device)",
  CudaEvent: "CudaEvent.create(device)",
  CudaGraph: "stream.capture(fn)",
});

/** A handle as a number, which passes through FFI sooner than a bigint: addresses of a process have 47 bits. */
let numberOf: (one: Handle) => number;

abstract class Handle implements Disposable {
  readonly device: CudaDevice;
  readonly #handle: bigint;
  readonly #number: number;
  readonly #what: "stream" | "event" | "graph";
  #closed = false;

  /** For the factories of this file: anybody else is refused. */
  constructor(key: MadeHere, device: CudaDevice, handle: bigint, what: "stream" | "event" | "graph") {
    const { name } = new.target;
    checkMade(key, name, FACTORIES[name] ?? "CudaStream.create(device)");
    this.device = device;
    this.#handle = handle;
    this.#number = Number(handle);
    this.#what = what;
    device.track(this);
  }

  static {
    numberOf = (one) => one.#number;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The driver's handle. @throws ClosedError after `close` */
  get handle(): bigint {
    if (this.#closed) throw new ClosedError(this.#what, "was closed");
    return this.#handle;
  }

  /**
   * The driver's handle, for use with something of `device`.
   * @throws InvalidArgumentError for what chorale did not make, and for what is of another device; ClosedError
   */
  static handleOn(device: CudaDevice, one: Handle, argument: "stream" | "event" | "graph"): bigint {
    const handle = Handle.handleOf(one, argument);
    if (one.device !== device) {
      throw new InvalidArgumentError(
        argument,
        described(`a ${argument} of CUDA device ${one.device.ordinal}`),
        one.device.ordinal === device.ordinal
          ? "one of this rank: that one is of a world or rank that has its own"
          : `one of CUDA device ${device.ordinal}`,
      );
    }
    return handle;
  }

  /** The driver's handle of what may be of any device. @throws InvalidArgumentError for what chorale did not make; ClosedError */
  static handleOf(one: Handle, argument: "stream" | "event" | "graph"): bigint {
    if (typeof one !== "object" || one === null || !(#handle in one) || one.#what !== argument) {
      throw new InvalidArgumentError(argument, one, `a CUDA ${argument} that chorale made`);
    }
    return one.handle;
  }

  protected abstract release(handle: bigint): void;

  /** Frees the handle. Idempotent; says nothing about a context that is lost. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.device.untrack(this, this.#what satisfies HeldKind, this.#handle);
    if (this.device.poison === undefined && !this.device.closed) this.release(this.#handle);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

const NO_SOURCES: readonly Following[] = Object.freeze([]);

/** Whether all calls ended well that something was put behind: a failure of later ones is none of what follows. */
function isOver({ source, upTo }: Following): boolean {
  return source.firstOpen > upTo;
}

function failureAmong(sources: Iterable<Following>): Error | undefined {
  for (const one of sources) {
    if (isOver(one)) continue;
    // Which calls ended well may be told with the failure.
    const failure = one.source.knownFailure?.() ?? one.source.cause;
    if (failure !== undefined && !isOver(one)) return failure;
  }
  return undefined;
}

/** A queue of work of a device. Does not synchronise with the legacy default stream. */
export class CudaStream extends Handle {
  /** How often work of ours was issued here: who orders another stream behind this one remembers what it saw. */
  numTouches = 0;

  /** Whether work of ours was ever issued here. Setting it says that some was now, and other streams that follow wait for it. */
  get touched(): boolean {
    return this.numTouches > 0;
  }
  set touched(yes: boolean) {
    if (yes) this.numTouches++;
  }

  /** What it waits for, and what may fail, since it was last found done. */
  readonly #sources = new Map<StreamSource, Following>();

  /** Makes a stream, which `close` or the device's end frees. @throws InvalidArgumentError, ClosedError, NativeError */
  static create(device: CudaDevice): CudaStream {
    checkDevice(device);
    const handle = device.make("stream", (out) => device.call("cuStreamCreate", "stream", out, NON_BLOCKING));
    const stream = new CudaStream(MADE_HERE, device, handle, "stream");
    device.streams.add(stream);
    return stream;
  }

  /** Frees the stream; work that it was given still ends. Idempotent. */
  override close(): void {
    this.device.streams.delete(this);
    super.close();
  }

  /** Says whether all work issued so far is done. */
  isDone(operation = "stream query"): boolean {
    return this.device.poll("cuStreamQuery", operation, this.handle);
  }

  /**
   * Blocks this thread until all work issued so far is done.
   * @throws in a world: TimeoutError at the world's deadline, and the failure of the world, or of a group whose calls this
   *   stream was ordered behind
   */
  synchronize(operation = "stream synchronize"): void {
    const { waiting } = this.device;
    if (waiting === undefined) this.device.call("cuStreamSynchronize", operation, this.handle);
    else waiting.until(() => this.isDone(operation), operation, { failure: () => this.sourceFailure });
    this.throwSourceFailure();
  }

  /** Makes work issued later wait for `event`, of this or another device. @throws InvalidArgumentError, ClosedError */
  waitFor(event: CudaEvent): void {
    this.device.call("cuStreamWaitEvent", "stream wait", this.handle, Handle.handleOf(event, "event"), 0);
    for (const { source, upTo } of event.sources) this.follow(source, upTo);
  }

  /**
   * Says that the stream was ordered behind the first `upTo` calls of `source`, all so far by default: when one of them
   * fails, what is here is not what was meant.
   */
  follow(source: StreamSource, upTo = source.numTaken): void {
    const following = { source, upTo };
    if ((this.#sources.get(source)?.upTo ?? -1) >= upTo || isOver(following)) return;
    for (const one of this.#sources.values()) if (isOver(one)) this.#sources.delete(one.source);
    this.#sources.set(source, following);
  }

  /** What it waits for and what may still fail, or has. */
  get sources(): readonly Following[] {
    return this.#sources.size === 0 ? NO_SOURCES : [...this.#sources.values()].filter((one) => !isOver(one));
  }

  /** Why what this stream was ordered behind failed, if it did. */
  get sourceFailure(): Error | undefined {
    return failureAmong(this.#sources.values());
  }

  /** Throws why what this stream was ordered behind failed, if it did, once: later work here may be something else. */
  throwSourceFailure(): void {
    if (this.#sources.size === 0) return;
    const failure = this.sourceFailure;
    this.forgetFailed();
    if (failure !== undefined) throw failure;
  }

  /** Somebody was told of what failed among that which this stream was ordered behind. */
  forgetFailed(): void {
    for (const one of this.#sources.values()) {
      if (isOver(one) || one.source.cause !== undefined) this.#sources.delete(one.source);
    }
  }

  /**
   * Records what `fn` issues on this stream as a graph instead of running it. For graphs with collectives see
   * `NcclCommunicator.capture`.
   * @throws what `fn` throws; InvalidArgumentError when it is no function, or an asynchronous one: nothing is captured
   *   then; NativeError
   */
  capture(fn: () => void): CudaGraph {
    this.device.call("cuStreamBeginCapture_v2", "capture", this.handle, CAPTURE_MODE_THREAD_LOCAL);
    const graph = new BigUint64Array(1);
    this.device.numCaptures++;
    try {
      callSynchronous(fn, []);
    } catch (error) {
      const { api } = this.device.driver;
      if (api.cuStreamEndCapture(this.handle, graph) === 0) api.cuGraphDestroy(graph[0] ?? 0n);
      throw error;
    } finally {
      this.device.numCaptures--;
    }
    this.device.call("cuStreamEndCapture", "capture", this.handle, graph);
    try {
      const exec = this.device.make("graph", (out) =>
        this.device.call("cuGraphInstantiateWithFlags", "graph instantiation", out, graph[0] ?? 0n, 0n),
      );
      return new CudaGraph(MADE_HERE, this.device, exec);
    } finally {
      this.device.call("cuGraphDestroy", "graph", graph[0] ?? 0n);
    }
  }

  protected release(handle: bigint): void {
    this.device.call("cuStreamDestroy_v2", "stream", handle);
  }
}

/** A stream's handle, for work of `device`. @throws InvalidArgumentError, ClosedError */
export function streamHandle(device: CudaDevice, stream: CudaStream): bigint {
  return Handle.handleOn(device, stream, "stream");
}

/** The same as a number. @throws InvalidArgumentError, ClosedError */
export function streamNumber(device: CudaDevice, stream: CudaStream): number {
  Handle.handleOn(device, stream, "stream");
  return numberOf(stream);
}

/** Events that are kept for the next who needs one: making one costs a call into the driver and a place in the ledger. */
const MAX_IDLE_EVENTS = 256;
const idleEvents = new WeakMap<CudaDevice, CudaEvent[]>();

/**
 * A point in a stream.
 * @example
 * import { CudaEvent, CudaStream, openDevice, requireCudaDriver } from "chorale/device";
 *
 * const device = openDevice(requireCudaDriver(), 0);
 * const [first, second] = [CudaStream.create(device), CudaStream.create(device)];
 * const event = CudaEvent.create(device);
 * event.record(first);
 * second.waitFor(event); // on the device: this thread goes on
 * second.synchronize();
 * console.log(event.isDone()); // true
 * device.close();
 */
export class CudaEvent extends Handle {
  /**
   * Makes an event, which `close` or the device's end frees. `timing`: for `elapsedUsSince`.
   * @throws InvalidArgumentError, ClosedError, NativeError
   */
  static create(device: CudaDevice, options: { readonly timing?: boolean } = {}): CudaEvent {
    checkDevice(device);
    const flags = options?.timing === true ? 0 : DISABLE_TIMING;
    const handle = device.make("event", (out) => device.call("cuEventCreate", "event", out, flags));
    return new CudaEvent(MADE_HERE, device, handle, "event");
  }

  #sources: readonly Following[] = NO_SOURCES;

  /** Takes an event without timing that somebody gave back, or makes one: for what records one a call. */
  static borrow(device: CudaDevice): CudaEvent {
    return idleEvents.get(device)?.pop() ?? CudaEvent.create(device);
  }

  /** Keeps an event that is done for the next who borrows one; nobody may look at it any more. */
  giveBack(): void {
    if (this.closed) return;
    this.#sources = NO_SOURCES;
    let idle = idleEvents.get(this.device);
    if (idle === undefined) {
      idle = [];
      idleEvents.set(this.device, idle);
    }
    if (idle.length < MAX_IDLE_EVENTS) idle.push(this);
    else this.close();
  }

  /** Marks what `stream` has been given so far. @throws InvalidArgumentError for a stream of another device */
  record(stream: CudaStream): void {
    this.device.call("cuEventRecord", "event record", this.handle, Handle.handleOn(this.device, stream, "stream"));
    this.#sources = stream.sources;
  }

  /** What the stream waited for when this was recorded. */
  get sources(): readonly Following[] {
    return this.#sources;
  }

  /** Why what the stream was ordered behind, when this was recorded, failed, if it did. */
  get sourceFailure(): Error | undefined {
    return failureAmong(this.#sources);
  }

  /** Says whether the point is reached. */
  isDone(operation = "event query"): boolean {
    return this.device.poll("cuEventQuery", operation, this.handle);
  }

  /**
   * Blocks this thread until the point is reached.
   * @throws in a world: TimeoutError, and the failure of the world, or of a group that the stream was ordered behind
   */
  synchronize(operation = "event synchronize"): void {
    const { waiting } = this.device;
    if (waiting === undefined) this.device.call("cuEventSynchronize", operation, this.handle);
    else waiting.until(() => this.isDone(operation), operation, { failure: () => this.sourceFailure });
    const failure = this.sourceFailure;
    if (failure !== undefined) throw failure;
  }

  /** Time from `start` to this event in microseconds; both were created with `timing` and are done. */
  elapsedUsSince(start: CudaEvent): number {
    const ms = new Float32Array(1);
    const from = Handle.handleOn(this.device, start, "event");
    this.device.call("cuEventElapsedTime", "event time", ms, from, this.handle);
    return (ms[0] ?? 0) * 1000;
  }

  protected release(handle: bigint): void {
    this.device.call("cuEventDestroy_v2", "event", handle);
  }
}

/** A captured graph, ready to run again and again. */
export class CudaGraph extends Handle {
  /** The graph that it was made from, where its nodes are named later. */
  readonly #source: bigint | undefined;
  #reservedFor: string | undefined;
  #onClose: (() => void) | undefined;

  /** For the factories of this room: anybody else is refused. */
  constructor(key: MadeHere, device: CudaDevice, handle: bigint, source?: bigint) {
    super(key, device, handle, "graph");
    this.#source = source;
  }

  /** Frees the graph; what runs still ends. Idempotent. */
  override close(): void {
    const { closed } = this;
    super.close();
    if (closed) return;
    if (this.#source !== undefined) {
      this.device.ledger?.drop("graphSource", this.#source);
      // It is memory of the host: a context that is lost does not free it.
      this.device.driver.api.cuGraphDestroy(this.#source);
    }
    this.#onClose?.();
  }

  /**
   * Runs the graph.
   * @throws ClosedError; InvalidArgumentError for a stream of another device, and for a graph that a communicator
   * captured: its `replay` compares what the ranks run, and refuses tensors that were freed
   */
  launch(stream: CudaStream): void {
    if (this.#reservedFor !== undefined) {
      const accepted = `what a stream captured: ${this.#reservedFor} runs this one`;
      throw new InvalidArgumentError("graph", described("a graph that a communicator captured"), accepted);
    }
    this.#run(stream);
  }

  /**
   * Makes `launch` refuse the graph and name what runs it instead.
   * @param onClose is called when the graph has been closed
   * @returns the function that runs it on a stream
   */
  reserve(who: string, onClose?: () => void): (stream: CudaStream) => void {
    this.#reservedFor = who;
    this.#onClose = onClose;
    return (stream) => this.#run(stream);
  }

  #run(stream: CudaStream): void {
    const { device } = this;
    const on = streamNumber(device, stream);
    if (this.closed) throw new ClosedError("graph", "was closed");
    device.activate();
    // What `device.call` does, without gathering the arguments and spreading them again: small calls are graphs of one launch.
    const status = device.driver.api.cuGraphLaunch(numberOf(this), on);
    if (status !== CUDA_STATUS.success) device.fail("cuGraphLaunch", status, "graph launch");
    stream.touched = true;
  }

  protected release(handle: bigint): void {
    this.device.call("cuGraphExecDestroy", "graph", handle);
  }
}
