/** The world as one rank sees it: who it is, whom it can talk to, and the memory that collectives move without a copy. */
import {
  AbortedError,
  type ArrayOf,
  ClosedError,
  checkValues,
  type DType,
  InvalidArgumentError,
  newArray,
  Tensor,
  UnsupportedError,
} from "../../core/index.ts";
import { described } from "../../core/internal.ts";
// By the door that loads no zod: every rank loads this file when it starts.
import {
  type AxisSizes,
  createMesh,
  type DeviceMesh,
  type MeshOptions,
  type ProcessGroup,
} from "../../mesh/internal.ts";
import {
  type Backend,
  type Capabilities,
  type Communicator,
  checkNotHeld,
  type Runnable,
  type RunOptions,
  type Work,
} from "../comm/index.ts";
import type { RankDevice } from "../device/index.ts";
import { storeOver, type WorldStore } from "../rendezvous/internal.ts";
import { checkMs } from "./restart-policy.ts";

/** One rank's world. Made by `joinWorld()`. */
export interface World extends AsyncDisposable {
  readonly rank: number;
  /** Number of ranks. */
  readonly size: number;
  /** Number of the world's life, raised at each rebuild. */
  readonly generation: number;
  /** Name of the backend. */
  readonly backend: string;
  /** What the launcher's user gave after `--`. */
  readonly args: readonly string[];
  /** What the program that called `launch()` gave as `data`: a copy. */
  readonly data: unknown;
  /** The communicator of all ranks. */
  readonly comm: Communicator;
  /** `comm.run`: runs a program of the language, or its plan, on all ranks. */
  run(plan: Runnable, options?: RunOptions): Work<Tensor | undefined>;
  /**
   * Is aborted when this generation is over: a rank failed (the reason is its `RankFailedError`), or this rank rebuilds.
   * For a rank that waits for something else than its peers, such as requests from outside.
   */
  readonly signal: AbortSignal;

  /**
   * Makes the mesh of this world.
   * @throws InvalidArgumentError with the equation when the sizes do not multiply to the number of ranks
   */
  mesh<const A extends AxisSizes>(axes: A, options?: MeshOptions): DeviceMesh<keyof A & string>;

  /**
   * Opens (once; later calls give the same one) the communicator of this rank's group along an axis, a product of
   * axes, or of a custom group (`mesh.getGroup(name)`). All members of the group call it, in the same order.
   * @throws InvalidArgumentError when this rank is in no such group, or the mesh is of another size than the world
   */
  communicator<Axis extends string>(
    mesh: DeviceMesh<Axis>,
    axes: NoInfer<Axis> | readonly NoInfer<Axis>[] | ProcessGroup,
  ): Promise<Communicator>;

  /**
   * Allocates a tensor of zeros that collectives move without a copy. Its memory serves another tensor once it was
   * freed, or once the tensor, its slices and its `data` were all garbage-collected. A `subarray` of `data` keeps none
   * of it alive: hold the tensor, or `slice()` it, for as long as a subarray is in use.
   * @throws OutOfMemoryError; InvalidArgumentError for an invalid dtype or shape
   */
  tensor<D extends DType>(dtype: D, shape: readonly number[]): Tensor<D>;
  /**
   * Gives a tensor's memory back before the world ends: all of it, also when given a slice. Later use is refused.
   * @throws InvalidArgumentError for a tensor of another world, or one that pending work still uses
   */
  free(tensor: Tensor): void;
  /**
   * Copies host values into a tensor of as many elements, wherever it lies; waits for device tensors.
   * @throws InvalidArgumentError when the array is not of the dtype's class, or the lengths differ
   */
  upload<D extends DType>(target: Tensor<D>, values: ArrayOf<D>): void;
  /** Copies a tensor's elements to fresh private memory, wherever it lies; waits for device tensors. */
  download<D extends DType>(source: Tensor<D>): ArrayOf<D>;
  capabilities(): Capabilities;
  /**
   * Leaves this generation at once, whatever is pending, and gives the world of the next one: the survivors after a
   * failure, and, as the launcher was told, ranks that were started again (they run the module from its start, with
   * `generation` above 1) or nobody in place of the dead, the ranks then being numbered anew in their old order. Every
   * survivor calls it, after a failure or without one. Tensors and groups of this world are refused from then on; `joinWorld()` gives the new world. Later calls give the same world.
   * @param options.timeoutMs how long this rank waits for the others, which are ended when they have not come by then;
   *   at most, and by default, the launcher's `rebuildTimeoutMs`
   * @throws UnsupportedError when the launcher was told to end the world at a failure (`onFailure`); nothing changed then
   * @throws AbortedError when the launcher refuses, with the first failure as its cause: no rebuild is left, a rank has
   *   returned already, too few are left, or this process has lost the rank's device
   * @throws ClosedError after `close()`; TimeoutError when the launcher does not answer
   */
  rebuild(options?: { readonly timeoutMs?: number }): Promise<World>;
  /** True once `close()` or `rebuild()` was called. */
  readonly closed: boolean;
  /** Waits for pending work, frees memory, and throws the failures that nobody looked at. Later use is refused. */
  close(): Promise<void>;
}

/** What the launcher told this rank besides its backend. */
interface WorldContext {
  readonly args: readonly string[];
  readonly data: unknown;
  /** Absent where the ranks reach each other by the engine alone. */
  readonly store?: WorldStore;
  /** Sets who hears, once, that the generation is over. */
  readonly onFailure?: (listener: (error: Error) => void) => void;
  /** Runs when `close()` is done, also when it threw. */
  readonly onClosed?: () => void;
  readonly rebuild: {
    /** Why a rebuild cannot be, known before anybody is asked. */
    readonly refusal: string | undefined;
    /** Asks for the next generation; the backend of this one is abandoned already, with `cause`. */
    request(cause: Error, timeoutMs: number | undefined): Promise<World>;
  };
}

/** Makes the world of an attached backend. */
export function createWorld(backend: Backend, context: WorldContext): World {
  return new BackendWorld(backend, context);
}

/** Whether this rank has left the world for the next generation, and `rebuild()` gives that. */
export function isRebuilding(world: World): boolean {
  return (world as { rebuilding?: boolean }).rebuilding === true;
}

const devices = new WeakMap<World, object>();
const stores = new WeakMap<World, WorldStore>();

/**
 * Gives the store of this rank's world: values, counters and barriers of its programs, which outlive ranks and generations.
 * @throws ClosedError for a world that this rank has left; UnsupportedError in one that MPI's own launcher has started
 * @example
 * import { joinWorld } from "chorale";
 * import { storeOf } from "chorale/world";
 *
 * const world = await joinWorld();
 * const store = storeOf(world);
 * await store.set("checkpoint", "step-1200.safetensors");
 * console.log(await store.get("checkpoint", { timeoutMs: 5_000 })); // step-1200.safetensors
 * console.log(await store.add("tickets")); // 1: every rank that adds gets another number
 * await store.barrier("all here");
 */
export function storeOf(world: World): WorldStore {
  const store = stores.get(world);
  if (store !== undefined) return store;
  if (isRebuilding(world)) throw storeOver(world.generation);
  throw new UnsupportedError("a store in this world", `its ranks know each other through ${world.backend} alone`);
}

/**
 * Gives this rank's device (context, memory pool, pinned memory, main stream), for programs that run kernels of their
 * own (chorale/device). Work on its `main` stream comes before the collectives that are called after it; see
 * `NcclCommunicator.orderBefore` for the other direction. It lives as long as the world.
 * @returns `undefined` on backends without devices
 * @example
 * import type { World } from "chorale";
 * import { deviceOf } from "chorale/world";
 *
 * export default function run(world: World): string {
 *   return deviceOf(world)?.device.info.name ?? "no GPU";
 * }
 */
export function deviceOf(world: World): RankDevice | undefined {
  return devices.get(world) as RankDevice | undefined;
}

/**
 * Makes the stacks of an error and its causes texts. Until somebody reads its stack an error keeps the functions of its frames, and
 * so what they see: the memory of a backend that nobody needs any more.
 */
function formatStacks(error: unknown): void {
  const seen = new Set<unknown>();
  for (let one = error; one instanceof Error && !seen.has(one); one = one.cause) {
    seen.add(one);
    void one.stack;
  }
}

class BackendWorld implements World {
  readonly rank: number;
  readonly size: number;
  readonly generation: number;
  readonly backend: string;
  readonly args: readonly string[];
  readonly data: unknown;
  /** Absent once the rank left for the next generation: worlds lead to their successors, and must not keep memory. */
  #backend: Backend | undefined;
  #rebuild: WorldContext["rebuild"] | undefined;
  readonly #onClosed: (() => void) | undefined;
  readonly #groups = new Map<string, Promise<Communicator>>();
  readonly #over = new AbortController();
  #closing: Promise<void> | undefined;
  #rebuilding: Promise<World> | undefined;

  constructor(backend: Backend, context: WorldContext) {
    this.rank = backend.rank;
    this.size = backend.worldSize;
    this.generation = backend.generation;
    this.backend = backend.name;
    this.args = Object.freeze([...context.args]);
    this.data = context.data;
    this.#backend = backend;
    this.#rebuild = context.rebuild;
    this.#onClosed = context.onClosed;
    context.onFailure?.((error) => this.#end(error));
    if (backend.device !== undefined) devices.set(this, backend.device);
    if (context.store !== undefined) stores.set(this, context.store);
  }

  get comm(): Communicator {
    return this.#open().world;
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** For `isRebuilding`. */
  get rebuilding(): boolean {
    return this.#rebuilding !== undefined;
  }

  get closed(): boolean {
    return this.#closing !== undefined;
  }

  mesh<const A extends AxisSizes>(axes: A, options: MeshOptions = {}): DeviceMesh<keyof A & string> {
    return createMesh(axes, { rank: this.rank, ...options, worldSize: this.size });
  }

  run(plan: Runnable, options?: RunOptions): Work<Tensor | undefined> {
    return this.comm.run(plan, options);
  }

  async communicator(mesh: DeviceMesh, which: string | readonly string[] | ProcessGroup): Promise<Communicator> {
    const backend = this.#open();
    if (typeof mesh?.group !== "function") {
      throw new InvalidArgumentError("mesh", mesh, 'a DeviceMesh, such as world.mesh({ dp: 1, tp: "auto" }) makes');
    }
    if (mesh.size !== this.size) {
      throw new InvalidArgumentError(
        "mesh",
        described(`of ${mesh.size} ranks`),
        `a mesh of this world's ${this.size} ranks`,
      );
    }
    const group = isGroup(which) ? mesh.getGroup(which.name) : mesh.group(which, this.rank);
    if (!group.ranks.includes(this.rank)) {
      throw new InvalidArgumentError("group", group.name, `a group that rank ${this.rank} is in`);
    }
    const isWorld = group.ranks.length === this.size && group.ranks.every((rank, index) => rank === index);
    if (isWorld) return backend.world;
    // Two meshes may name different groups alike: the shape and the ranks tell them apart on every member.
    const name = `${group.name}@${mesh.label}`;
    const key = `${name}:${group.ranks.join(",")}`;
    let opened = this.#groups.get(key);
    if (opened === undefined) {
      opened = backend.group(name, group.ranks);
      this.#groups.set(key, opened);
    }
    return opened;
  }

  tensor<D extends DType>(dtype: D, shape: readonly number[]): Tensor<D> {
    return this.#open().tensor(dtype, shape);
  }

  free(tensor: Tensor): void {
    const backend = this.#open();
    if (tensor instanceof Tensor) checkNotHeld(tensor);
    backend.free(tensor);
  }

  upload<D extends DType>(target: Tensor<D>, values: ArrayOf<D>): void {
    const backend = this.#open();
    checkValues(target, values);
    if (target.storage.kind === "device" && backend.upload !== undefined) {
      backend.upload(target, values);
      return;
    }
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    new Uint8Array(target.data.buffer, target.data.byteOffset, target.sizeBytes).set(bytes);
  }

  download<D extends DType>(source: Tensor<D>): ArrayOf<D> {
    const backend = this.#open();
    if (source.storage.kind === "device" && backend.download !== undefined) return backend.download(source);
    const copy = newArray(source.dtype, source.size);
    const { data } = source;
    new Uint8Array(copy.buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return copy;
  }

  capabilities(): Capabilities {
    return this.#open().capabilities();
  }

  rebuild(options: { readonly timeoutMs?: number } = {}): Promise<World> {
    try {
      this.#rebuilding ??= this.#leave(options.timeoutMs);
      return this.#rebuilding;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #leave(timeoutMs: number | undefined): Promise<World> {
    checkMs("timeoutMs", timeoutMs, 1);
    if (this.#closing !== undefined || this.#rebuild === undefined) {
      throw new ClosedError("world", "is closed, and cannot be rebuilt");
    }
    const { refusal, request } = this.#rebuild;
    if (refusal !== undefined) throw new UnsupportedError("world.rebuild() in this world", refusal);
    const cause = new AbortedError(`world.rebuild() left it for generation ${this.generation + 1}`);
    this.#closing = Promise.resolve();
    this.#backend?.abandon(cause);
    this.#backend = undefined;
    this.#rebuild = undefined;
    this.#groups.clear();
    devices.delete(this);
    stores.delete(this);
    const next = request(cause, timeoutMs);
    this.#end(cause);
    return next;
  }

  /** Says that the generation is over. What ended it stays with this world, whose successors its program may lead to. */
  #end(cause: Error): void {
    formatStacks(cause);
    this.#over.abort(cause);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    try {
      await this.#backend?.close();
    } finally {
      this.#onClosed?.();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #open(): Backend {
    if (this.#rebuilding !== undefined) {
      const next = this.generation + 1;
      throw new ClosedError(
        `world of generation ${this.generation}`,
        `was left for generation ${next}: use the world that rebuild() gave`,
      );
    }
    if (this.#closing !== undefined || this.#backend === undefined) throw new ClosedError("world", "is closed");
    return this.#backend;
  }
}

function isGroup(which: string | readonly string[] | ProcessGroup): which is ProcessGroup {
  return typeof which === "object" && "ranks" in which;
}
