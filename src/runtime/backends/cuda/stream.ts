/** Streams, events and graphs of a device: thin owners of the driver's handles. */
import { ClosedError } from "../../../core/index.ts";
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
  /** Set by everything of ours that issues work here; cleared by who has ordered another stream behind it. */
  touched = false;

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

/** A point in a stream. */
export class CudaEvent extends Handle {
  static create(device: CudaDevice, options: { readonly timing?: boolean } = {}): CudaEvent {
    const flags = options.timing === true ? 0 : DISABLE_TIMING;
    const handle = device.make("event", (out) => device.call("cuEventCreate", "event", out, flags));
    return new CudaEvent(device, handle, "event");
  }

  record(stream: CudaStream): void {
    this.device.call("cuEventRecord", "event record", this.handle, stream.handle);
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
    this.device.call("cuEventElapsedTime", "event time", ms, start.handle, this.handle);
    return (ms[0] ?? 0) * 1000;
  }

  protected release(handle: bigint): void {
    this.device.call("cuEventDestroy_v2", "event", handle);
  }
}

/** A captured graph, ready to run again and again. */
export class CudaGraph extends Handle {
  launch(stream: CudaStream): void {
    stream.touched = true;
    this.device.call("cuGraphLaunch", "graph launch", this.handle, stream.handle);
  }

  protected release(handle: bigint): void {
    this.device.call("cuGraphExecDestroy", "graph", handle);
  }
}
