/**
 * The graphs that were captured with one communicator: NCCL frees it only when none of them exists any more. A graph runs
 * on the addresses that its calls had, so it keeps their tensors, and is refused when one of them was freed.
 */
import { ClosedError, InvalidArgumentError } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import { hashNumbers } from "../../comm/index.ts";
import type { Allocation, CudaGraph, CudaStream, DeviceStorage } from "../../device/index.ts";
import type { CallKind } from "../../progress/index.ts";
import type { Prepared } from "./prepare.ts";

/** What a graph's calls are. */
interface Captured {
  /** Memory of the tensors that they read and write: the graph has their addresses. */
  readonly storages: readonly DeviceStorage[];
  /** Hash of the collectives among them, which are the same on all ranks. */
  readonly hash: number;
  readonly numCollectives: number;
  /** Of its calls: plans of these kinds must stay loaded. */
  readonly kinds: ReadonlySet<CallKind>;
  /** Whether kernels or copies of other members' graphs come to these tensors, whatever becomes of the call here. */
  readonly reachesPeers: boolean;
}

/** Calls that go into a graph, while it is recorded. */
export class Recording {
  readonly #storages = new Set<DeviceStorage>();
  readonly #prints: number[] = [];
  readonly #kinds = new Set<CallKind>();
  #numCollectives = 0;
  #reachesPeers = false;

  /** @param reachesPeers whether other members' kernels or copies come to the call's buffers */
  add(
    { arrival, source, target, kind, others = [] }: Pick<Prepared, "arrival" | "source" | "target" | "kind" | "others">,
    reachesPeers: boolean,
  ): void {
    this.#kinds.add(kind);
    this.#reachesPeers ||= reachesPeers;
    for (const storage of [source, target, ...others]) if (storage !== undefined) this.#storages.add(storage);
    if (arrival.lane.kind !== "collective") return;
    this.#numCollectives++;
    const { call, count, hash } = arrival.print;
    this.#prints.push(call, count, hash);
  }

  /** Keeps the memory that kernels of an extension use. */
  keep(storages: readonly DeviceStorage[]): void {
    for (const storage of storages) this.#storages.add(storage);
  }

  get captured(): Captured {
    return {
      storages: [...this.#storages],
      hash: hashNumbers(this.#prints),
      numCollectives: this.#numCollectives,
      kinds: this.#kinds,
      reachesPeers: this.#reachesPeers,
    };
  }
}

/** A graph's calls, and what runs them. */
interface Replayable extends Captured {
  readonly run: (stream: CudaStream) => void;
  /** What stands in for buffers of its calls. */
  readonly standIns: readonly Allocation[];
}

export class CapturedGraphs {
  readonly #graphs = new Map<CudaGraph, Replayable>();
  readonly #released = new WeakSet<CudaGraph>();
  readonly #free: (one: Allocation) => void;
  readonly #isSound: () => boolean;

  /**
   * @param free takes back what stood in for buffers of a graph's calls
   * @param isSound whether the group has neither failed nor been closed: then members' last replays may still run
   */
  constructor(free: (one: Allocation) => void, isSound: () => boolean) {
    this.#free = free;
    this.#isSound = isSound;
  }

  /** Remembers a graph, which from now on runs by `replay` of `group` alone. */
  add(graph: CudaGraph, captured: Captured, group: string, standIns: readonly Allocation[]): CudaGraph {
    if (captured.reachesPeers) countExposures(captured, 1);
    const run = graph.reserve(`replay of ${group}`, () => this.#isSound() && this.release());
    this.#graphs.set(graph, { ...captured, run, standIns });
    return graph;
  }

  /** Whether a graph that is open has calls of a kind. */
  uses(kind: CallKind): boolean {
    return [...this.#graphs].some(([graph, { kinds }]) => !graph.closed && kinds.has(kind));
  }

  /**
   * What `graph` was captured from.
   * @throws InvalidArgumentError for a graph of another communicator; ClosedError for one that was closed, and for one
   * with a tensor that was freed or whose world has ended
   */
  replayable(graph: CudaGraph, group: string): Replayable {
    const captured = this.#graphs.get(graph);
    if (captured === undefined ? this.#released.has(graph) : graph.closed) throw new ClosedError("graph", "was closed");
    if (captured === undefined)
      throw new InvalidArgumentError(
        "graph",
        described("a graph of another communicator"),
        `one that ${group} captured`,
      );
    for (const { closed, pool } of captured.storages) {
      const why = closed ?? (pool.closed ? "belongs to a world that ended" : undefined);
      if (why !== undefined) throw new ClosedError("device tensor of the graph", why);
    }
    return captured;
  }

  /** Ends the graphs. What they held stays until members' graphs are known to have ended too. */
  close(): void {
    for (const graph of this.#graphs.keys()) graph.close();
  }

  /** Gives back what closed graphs held: no member runs one of them. */
  release(): void {
    for (const [graph, held] of this.#graphs) {
      if (!graph.closed) continue;
      this.#graphs.delete(graph);
      this.#released.add(graph);
      if (held.reachesPeers) countExposures(held, -1);
      for (const one of held.standIns) this.#free(one);
    }
  }
}

/** Memory that is freed while a graph has its address is not handed out again: kernels and copies of members may come to it. */
function countExposures({ storages }: Captured, by: 1 | -1): void {
  for (const { allocation } of storages) allocation.exposures += by;
}
