/**
 * How far a collective on CPU ranks is from what the memory can do. What it must move is counted as loads and stores of
 * bytes of the ranks' buffers, each once; what the memory can do is measured: every rank copies a buffer of the same
 * size at the same time.
 */
import { availableParallelism } from "node:os";
import type { OperationName } from "../../../collectives/index.ts";
import type { Communicator } from "../../../runtime/comm/index.ts";
import { median } from "./call-timing.ts";

/** Loops whose median counts, and how long one takes about, ms. */
const LOOPS = 5;
const LOOP_MS = 6;
const MAX_COPIES = 20_000;

/**
 * Bytes that an operation must load and store, over all ranks. `sizeBytes` is the larger of a rank's two buffers.
 *
 * | operation | loads | stores |
 * |---|---|---|
 * | all_reduce | n S | n S |
 * | all_to_all | n S | n S |
 * | broadcast, all_gather | S | n S |
 * | reduce, reduce_scatter | n S | S |
 * | gather, scatter | S | S |
 * | send and recv, each rank to the next | n S | n S |
 * @example
 * import { memoryTraffic } from "chorale/bench";
 *
 * memoryTraffic("all_reduce", 4, 1024) // 8192
 */
export function memoryTraffic(op: OperationName, numRanks: number, sizeBytes: number): number {
  const n = numRanks;
  switch (op) {
    case "all_reduce":
    case "all_to_all":
    case "all_to_all_v":
    case "send":
    case "recv":
      return 2 * n * sizeBytes;
    case "broadcast":
    case "all_gather":
    case "all_gather_v":
    case "reduce":
    case "reduce_scatter":
    case "reduce_scatter_v":
      return (n + 1) * sizeBytes;
    case "gather":
    case "scatter":
      return 2 * sizeBytes;
    case "barrier":
      return 0;
  }
}

/**
 * Measures what the ranks of a group copy together, each a buffer of `sizeBytes`: bytes loaded and stored per
 * microsecond over all ranks. `undefined` where it says nothing: on devices, and where ranks share cores.
 */
export async function copyBytesPerUs(comm: Communicator, sizeBytes: number): Promise<number | undefined> {
  if (comm.capabilities().deviceTensors || comm.size > availableParallelism() || sizeBytes === 0) return undefined;
  const [from, to] = [new Uint8Array(sizeBytes).fill(1), new Uint8Array(sizeBytes).fill(2)];
  const loop = (copies: number) => {
    comm.barrier().wait();
    const began = performance.now();
    for (let i = 0; i < copies; i++) to.set(from);
    return performance.now() - began;
  };
  loop(2);
  const each = Math.max(1e-5, ...(await comm.gatherObjects(Math.min(loop(3), loop(3)) / 3)));
  const copies = Math.min(MAX_COPIES, Math.max(2, Math.round(LOOP_MS / each)));
  const mine = Array.from({ length: LOOPS }, () => (loop(copies) * 1e3) / copies);
  const ranks = await comm.gatherObjects(mine);
  const us = median(mine.map((_, i) => ranks.reduce((sum, rank) => sum + (rank[i] ?? 0), 0) / ranks.length));
  return (2 * comm.size * sizeBytes) / us;
}
