/**
 * The graphs that were captured with one communicator: NCCL frees it only when none of them exists any more. A graph runs
 * on the addresses that its calls had, so it keeps their tensors, and is refused when one of them was freed.
 */
import { ClosedError, InvalidArgumentError } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import { hashNumbers } from "../../comm/index.ts";
import type { CudaGraph, CudaStream, DeviceStorage } from "../../device/index.ts";
import type { Prepared } from "./prepare.ts";

/** What a graph's calls are. */
interface Captured {
  /** Memory of the tensors that they read and write: the graph has their addresses. */
  readonly storages: readonly DeviceStorage[];
  /** Hash of the collectives among them, which are the same on all ranks. */
  readonly hash: number;
  readonly numCollectives: number;
}

/** Calls that go into a graph, while it is recorded. */
export class Recording {
  readonly #storages = new Set<DeviceStorage>();
  readonly #prints: number[] = [];
  #numCollectives = 0;

  add({ arrival, source, target }: Pick<Prepared, "arrival" | "source" | "target">): void {
    for (const storage of [source, target]) if (storage !== undefined) this.#storages.add(storage);
    if (arrival.lane.kind !== "collective") return;
    this.#numCollectives++;
    const { call, count, hash } = arrival.print;
    this.#prints.push(call, count, hash);
  }

  get captured(): Captured {
    return {
      storages: [...this.#storages],
      hash: hashNumbers(this.#prints),
      numCollectives: this.#numCollectives,
    };
  }
}

/** A graph's calls, and what runs them. */
interface Replayable extends Captured {
  readonly run: (stream: CudaStream) => void;
}

export class CapturedGraphs {
  readonly #graphs = new Map<CudaGraph, Replayable>();

  /** Remembers a graph, which from now on runs by `replay` of `group` alone. */
  add(graph: CudaGraph, captured: Captured, group: string): CudaGraph {
    this.#forgetClosed();
    this.#graphs.set(graph, { ...captured, run: graph.reserve(`replay of ${group}`) });
    return graph;
  }

  /**
   * What `graph` was captured from.
   * @throws InvalidArgumentError for a graph of another communicator; ClosedError for one that was closed, and for one
   * with a tensor that was freed or whose world has ended
   */
  replayable(graph: CudaGraph, group: string): Replayable {
    const captured = this.#graphs.get(graph);
    this.#forgetClosed();
    if (captured === undefined) {
      throw new InvalidArgumentError(
        "graph",
        described("a graph of another communicator, or a closed one"),
        `one that ${group} captured`,
      );
    }
    if (graph.closed) throw new ClosedError("graph", "was closed");
    for (const { closed, pool } of captured.storages) {
      const why = closed ?? (pool.closed ? "belongs to a world that ended" : undefined);
      if (why !== undefined) throw new ClosedError("device tensor of the graph", why);
    }
    return captured;
  }

  close(): void {
    for (const graph of this.#graphs.keys()) graph.close();
    this.#graphs.clear();
  }

  #forgetClosed(): void {
    for (const one of this.#graphs.keys()) if (one.closed) this.#graphs.delete(one);
  }
}
