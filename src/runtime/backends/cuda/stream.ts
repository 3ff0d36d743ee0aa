/** Streams, events and graphs of a device: thin owners of the driver's handles. */
import { ClosedError, InvalidArgumentError } from "../../../core/index.ts";
import type { CudaDevice } from "./device.ts";
import type { HeldKind } from "./ledger.ts";

const NON_BLOCKING = 1;
const DISABLE_TIMING = 2;
/** Capture of this thread only: other threads' calls neither join nor break it (cuda.h). */
const CAPTURE_MODE_THREAD_LOCAL = 1;

abstract class Handle implements Disposable {
  readonly device: CudaDevice;
  readonly #handle: bigint;
  readonly #what: "stream" | "event" | "graph";
  #closed = false;

  constructor(device: CudaDevice, handle: bigint, what: "stream" | "event" | "graph") {
    this.device = device;
    this.#handle = handle;
    this.#what = what;
    device.track(this);
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
    if (typeof one !== "object" || one === null || !(#handle in one) || one.#what !== argument) {
      throw new InvalidArgumentError(argument, one, `a CUDA ${argument} that chorale made`);
    }
    const { handle } = one;
    if (one.device !== device) {
      throw new InvalidArgumentError(
        argument,
        `a ${argument} of CUDA device ${one.device.ordinal}`,
        one.device.ordinal === device.ordinal
          ? "one of this rank: that one is of a world or rank that has its own"
          : `one of CUDA device ${device.ordinal}`,
      );
    }
    return handle;
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

  static create(device: CudaDevice): CudaStream {
    const handle = device.make("stream", (out) => device.call("cuStreamCreate", "stream", out, NON_BLOCKING));
    return new CudaStream(device, handle, "stream");
  }

  /** Says whether all work issued so far is done. */
  isDone(operation = "stream query"): boolean {
    return this.device.poll("cuStreamQuery", operation, this.handle);
  }

  /** Blocks this thread until all work issued so far is done. */
  synchronize(operation = "stream synchronize"): void {
    this.device.call("cuStreamSynchronize", operation, this.handle);
  }

  /** Makes work issued later wait for `event`, on the device. */
  waitFor(event: CudaEvent): void {
    this.device.call("cuStreamWaitEvent", "stream wait", this.handle, event.handle, 0);
  }

  /** Records what `fn` issues on this stream as a graph instead of running it. */
  capture(fn: () => void): CudaGraph {
    this.device.call("cuStreamBeginCapture_v2", "capture", this.handle, CAPTURE_MODE_THREAD_LOCAL);
    const graph = new BigUint64Array(1);
    try {
      fn();
    } catch (error) {
      const { api } = this.device.driver;
      if (api.cuStreamEndCapture(this.handle, graph) === 0) api.cuGraphDestroy(graph[0] ?? 0n);
      throw error;
    }
    this.device.call("cuStreamEndCapture", "capture", this.handle, graph);
    try {
      const exec = this.device.make("graph", (out) =>
        this.device.call("cuGraphInstantiateWithFlags", "graph instantiation", out, graph[0] ?? 0n, 0n),
      );
      return new CudaGraph(this.device, exec, "graph");
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

/** A point in a stream. */
export class CudaEvent extends Handle {
  static create(device: CudaDevice, options: { readonly timing?: boolean } = {}): CudaEvent {
    const flags = options.timing === true ? 0 : DISABLE_TIMING;
    const handle = device.make("event", (out) => device.call("cuEventCreate", "event", out, flags));
    return new CudaEvent(device, handle, "event");
  }

  /** Marks what `stream` has been given so far. @throws InvalidArgumentError for a stream of another device */
  record(stream: CudaStream): void {
    this.device.call("cuEventRecord", "event record", this.handle, Handle.handleOn(this.device, stream, "stream"));
  }

  isDone(operation = "event query"): boolean {
    return this.device.poll("cuEventQuery", operation, this.handle);
  }

  synchronize(): void {
    this.device.call("cuEventSynchronize", "event synchronize", this.handle);
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
  /** Runs the graph. @throws ClosedError; InvalidArgumentError for a stream of another device */
  launch(stream: CudaStream): void {
    this.device.call("cuGraphLaunch", "graph launch", this.handle, streamHandle(this.device, stream));
    stream.touched = true;
  }

  protected release(handle: bigint): void {
    this.device.call("cuGraphExecDestroy", "graph", handle);
  }
}
