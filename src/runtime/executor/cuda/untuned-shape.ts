/**
 * The shape of a kernel that no table of choices speaks of. Where a strand moves more than one round of loads, more threads have
 * more on the way; where it moves much, several blocks do, for a multiprocessor alone fills a tenth of the links
 * (bench/results/cuda-must-show-2026-11-29.md). How much a thread loads at once is `generateCuda`'s matter.
 */
import { bodyOf, type ExecutionPlan, type Op, type SimpleOp } from "../../../authoring/plan/index.ts";
import type { CudaDeviceInfo } from "../../device/index.ts";
import { sendsPackets } from "../cpu/lower.ts";
import type { CudaOptions } from "./generate.ts";
import { hasClusters, placesFor } from "./loaded-plan.ts";

/**
 * Devices, as their driver names them, that reach all others of a host over NVLink, and on which lines of packets were measured.
 * Elsewhere a line may arrive in pieces.
 */
const LINKED = /^NVIDIA H(100 80GB HBM3|200)$/;

/** What a thread takes in one round, and how many pay off: of plain data four units of 16 bytes, of packets one. */
const OF_DATA = { roundBytes: 64, mostThreads: 512 } as const;
const OF_PACKETS = { roundBytes: 16, mostThreads: 1024 } as const;
/** Of so many ranks a thread that adds what all have sent has no registers left with as many. */
const MANY_RANKS = 5;
const OF_MANY_PACKETS = { roundBytes: 16, mostThreads: 512 } as const;
/** Threads of a block of an untuned kernel, at least. */
export const FEWEST_BLOCK_THREADS = 256;
/** Threads of all blocks of a rank, a quarter of what an H100 holds: more might leave no room for kernels of other groups. */
const MOST_OF_RANK = 67_584;

/**
 * Of a strand: what each of its blocks moves at least, how many it has at most, and their threads. Blocks take longer to meet than
 * threads: with half as much to move, plans of plain data were slower.
 */
const CLUSTERS = { fewestBytes: 65_536, mostBlocks: 8, mostThreads: 512 } as const;
/** Blocks of a rank that fill its links. */
const ENOUGH_BLOCKS = 64;

/** What the widest operation of a strand moves. */
interface Widest {
  readonly chunks: number;
  /** Where a pipeline cuts chunks into units; infinite where none does. */
  readonly mostBytes: number;
  readonly numStrands: number;
  readonly kind: { readonly roundBytes: number; readonly mostThreads: number };
}
const widest = new WeakMap<ExecutionPlan, Widest>();

/**
 * Threads of a block, blocks of a strand, and how packets lie in memory: the same on all ranks whose devices are alike.
 * @param chunkBytes of the launch
 */
export function untunedShape(
  plan: ExecutionPlan,
  chunkBytes: number,
  device: Pick<CudaDeviceInfo, "computeCapability" | "name" | "numMultiprocessors">,
): Pick<CudaOptions, "blocksPerStrand" | "threads" | "prefersLines"> {
  let found = widest.get(plan);
  if (found === undefined) {
    found = widestOf(plan);
    widest.set(plan, found);
  }
  const { chunks, mostBytes, numStrands, kind } = found;
  const bytes = Math.min(chunks * chunkBytes, mostBytes);
  let blocksPerStrand = 1;
  if (hasClusters(device)) {
    // Each block has a multiprocessor, and all its registers, to itself.
    const pays = (blocks: number) =>
      blocks * CLUSTERS.fewestBytes <= bytes &&
      blocks * numStrands <= ENOUGH_BLOCKS &&
      placesFor(blocks * numStrands, blocks, device) <= device.numMultiprocessors;
    while (blocksPerStrand < CLUSTERS.mostBlocks && pays(2 * blocksPerStrand)) blocksPerStrand *= 2;
  }
  const numBlocks = blocksPerStrand * numStrands;
  const mostThreads = blocksPerStrand > 1 ? Math.min(kind.mostThreads, CLUSTERS.mostThreads) : kind.mostThreads;
  let threads: number = FEWEST_BLOCK_THREADS;
  while (
    threads < mostThreads &&
    threads * kind.roundBytes < bytes / blocksPerStrand &&
    2 * threads * numBlocks <= MOST_OF_RANK
  )
    threads *= 2;
  return { blocksPerStrand, threads, prefersLines: LINKED.test(device.name) };
}

function widestOf(plan: ExecutionPlan): Widest {
  const numStrands = Math.max(1, ...plan.ranks.map(({ strands }) => strands.length));
  const ofPackets = plan.ranks.length < MANY_RANKS ? OF_PACKETS : OF_MANY_PACKETS;
  const kind = sendsPackets(plan) ? ofPackets : OF_DATA;
  const ops = plan.ranks.flatMap(({ strands }) => strands.flatMap((strand) => strand.ops));
  const chunks = Math.max(1, ...ops.flatMap(bodyOf).map(chunksOf));
  const units = ops.flatMap((op: Op) => (op.kind === "pipeline" ? op.unitBytes : []));
  const isCut = ops.every((op) => op.kind === "pipeline" || chunksOf(op) === 0);
  return { chunks, mostBytes: isCut ? Math.max(...units, 0) : Number.POSITIVE_INFINITY, numStrands, kind };
}

/** Chunks of one place that an operation of a strand moves; 0 of one that moves none. */
function chunksOf(op: SimpleOp): number {
  switch (op.kind) {
    case "copy":
    case "switch-reduce":
    case "switch-broadcast":
    case "switch-reduce-broadcast":
      return op.src.size / (op.tbg?.size ?? 1);
    case "get":
    case "put":
      return Math.max(0, ...op.src.map(({ size }) => size)) / (op.tbg?.size ?? 1);
    case "reduce":
      return op.dst.size / (op.tbg?.size ?? 1);
    default:
      return 0;
  }
}
