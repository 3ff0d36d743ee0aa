/** The graphs that were captured with one communicator: NCCL frees it only when none of them exists any more. */
import type { CudaGraph } from "../cuda/stream.ts";

export class CapturedGraphs {
  readonly #graphs = new Set<CudaGraph>();

  add(graph: CudaGraph): CudaGraph {
    for (const one of this.#graphs) if (one.closed) this.#graphs.delete(one);
    this.#graphs.add(graph);
    return graph;
  }

  has(graph: CudaGraph): boolean {
    return this.#graphs.has(graph);
  }

  close(): void {
    for (const graph of this.#graphs) graph.close();
    this.#graphs.clear();
  }
}
