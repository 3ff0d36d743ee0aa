/**
 * Sizes of chunk at which loops touch memory in another pattern. In the k-th iteration an operation handles unit k of its range,
 * counted from where the range begins; so two operations whose ranges lie differently over one place come to it in different
 * iterations, and in which ones depends on how many units a chunk has. Let u be a unit, c the bytes of a chunk, and f where in a
 * chunk an element lies. Operations leave f as it is (parts of strand groups shift it by multiples of 1/D), so each f
 * is a case of its own: chunk j is handled in iteration floor((j + f) c / u). Which order these numbers are in, for all
 * chunks and units of a plan, changes only where a whole number of units less a whole number of others is a whole number of
 * 1/D chunks: at c = D |i u - i' u'| / p. Between two such sizes every f sees a pattern that it sees at one size between them. From D
 * units to the chunk on, no two places of one offset share an iteration, and nothing changes any more. The same holds for ranges
 * that are longer than what their loop runs over: how far its last unit reaches changes at these sizes, too.
 *
 * Where every place is touched at one offset only, and no range is longer than its loop, there are no patterns to tell apart.
 * Parts that do not divide their ranges begin at one offset only where they are parts of equal numbers of equally long ranges: others
 * may differ by an element, and that element may be the first of a unit of the one and the last of a unit of the other.
 */
import { type ExecutionPlan, type PipelineOp, placeOf, type SimpleOp } from "../plan/index.ts";
import { lcm, rangeSizes } from "./cell-geometry.ts";
import { movesPackets } from "./strand-state.ts";

/** What is to be told apart in the loops of a plan. */
interface Windows {
  readonly units: ReadonlySet<number>;
  /** Most chunks that a loop, or a range in it, has. */
  readonly chunks: number;
  /** Offsets differ by multiples of one part in so many of a chunk. */
  readonly parts: number;
}

type AnyRange = { readonly buffer: "input" | "output" | "scratch"; readonly index: number; readonly size: number };

/** Ranges of plain data that an operation of a rank touches. */
function rangesOf(plan: ExecutionPlan, rank: number, op: SimpleOp): (AnyRange & { readonly rank: number })[] {
  const own = (range: AnyRange) => ({ ...range, rank });
  const members = ({ channel, index, size }: { channel: number; index: number; size: number }) => {
    const { ranks, buffer } = plan.ranks[rank]!.channels.switch[channel]!;
    return ranks.map((member) => ({ buffer, index, size, rank: member }));
  };
  switch (op.kind) {
    case "copy":
      return [own(op.src), own(op.dst)];
    case "get":
      return [...op.src, ...op.dst.map(own)];
    case "put":
      return [...op.src.map(own), ...op.dst];
    case "reduce":
      return [...op.src.map(own), ...op.remoteSrc, own(op.dst), ...op.remoteDst];
    case "switch-reduce":
      return [...members(op.src), own(op.dst)];
    case "switch-broadcast":
      return [own(op.src), ...members(op.dst)];
    case "switch-reduce-broadcast":
      return [...members(op.src), ...members(op.dst)];
    default:
      return [];
  }
}

/** What loops of a plan have to be told apart by; undefined where there are no patterns. */
function windowsOf(plan: ExecutionPlan): Windows | undefined {
  const offsets = new Map<string, string>();
  const units = new Set<number>();
  let chunks = 1;
  let parts = 1;
  let found = false;
  const look = (rank: number, loop: PipelineOp, op: SimpleOp) => {
    if (movesPackets(op)) return;
    const group = "tbg" in op ? op.tbg : undefined;
    for (const size of rangeSizes(op)) {
      // A part of a range is what the loop cuts into units.
      if (size > loop.numChunks * (group?.size ?? 1)) found = true;
      chunks = Math.max(chunks, size);
    }
    chunks = Math.max(chunks, loop.numChunks);
    if (group !== undefined) parts = lcm(parts, group.size);
    units.add(loop.unitBytes);
    for (const range of rangesOf(plan, rank, op)) {
      const shift = group === undefined ? 0 : (range.size * group.index) / group.size;
      // Where parts do not divide, one may begin an element behind another that begins at the same place on paper.
      const isInexact = group !== undefined && group.index > 0 && range.size % group.size !== 0;
      const begin = isInexact ? ` part ${group.index} of ${group.size} of ${range.size}` : "";
      for (let j = 0; j < range.size; j++) {
        const place = placeOf(plan, range.rank, range.buffer, range.index + j);
        const key = `${range.rank} ${place.buffer} ${place.index}`;
        const offset = `${j - shift} ${loop.unitBytes}${begin}`;
        const other = offsets.get(key);
        if (other === undefined) offsets.set(key, offset);
        else if (other !== offset) found = true;
      }
    }
  };
  for (const { rank, strands } of plan.ranks)
    for (const { ops } of strands)
      for (const op of ops)
        if (op.kind === "pipeline" && op.numChunks > 0) for (const inner of op.body) look(rank, op, inner);
  return found ? { units, chunks, parts } : undefined;
}

/**
 * Sizes of chunk, in bytes, that show every pattern in which loops touch memory: those at which it changes, and one
 * between each two.
 * @returns none where there is one pattern only; undefined where there are more than `most`
 */
export function windowSizes(plan: ExecutionPlan, most: number): readonly number[] | undefined {
  const windows = windowsOf(plan);
  if (windows === undefined) return [];
  const { chunks, parts } = windows;
  const units = [...windows.units];
  const largest = Math.max(...units);
  const least = Math.min(...units) / (chunks * parts);
  const highest = 2 * parts * largest;
  const sizes = new Map<string, number>();
  const counts = units.map((unit) => Math.ceil((chunks * highest) / unit));
  for (const [a, u] of units.entries()) {
    for (const [b, v] of [...units.entries()].slice(a)) {
      for (let i = 0; i <= counts[a]!; i++) {
        for (let k = 0; k <= (a === b ? 0 : counts[b]!); k++) {
          const distance = Math.abs(i * u - k * v) * parts;
          if (distance === 0) continue;
          for (let p = 1; p <= chunks * parts; p++) {
            const bytes = distance / p;
            if (bytes < least || bytes > highest) continue;
            sizes.set(bytes.toPrecision(12), bytes);
            if (sizes.size > most) return undefined;
          }
        }
      }
    }
  }
  const sorted = [...sizes.values()].sort((x, y) => x - y);
  const all = sorted.flatMap((at, i) => (i + 1 < sorted.length ? [at, (at + sorted[i + 1]!) / 2] : [at]));
  return all.length > most ? undefined : all;
}
