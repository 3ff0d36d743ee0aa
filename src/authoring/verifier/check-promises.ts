/**
 * Promises beyond being right, each a check of its own: a rank's output is complete when that rank ends, and its input
 * and output may be reused then. A plan that keeps them needs no synchronisation between the ranks after it.
 */
import { stepsKnown, type VectorClock } from "../../core/internal.ts";
import type { Site } from "./access-log.ts";
import { type Geometry, placeOfCell } from "./cell-geometry.ts";
import type { Exploration } from "./explore-plan.ts";
import type { Findings } from "./findings.ts";

export interface Promises {
  /** A rank's output is complete when that rank ends. */
  readonly outputAtRankEnd?: boolean;
  /** Input and output of a rank may be reused when that rank ends. */
  readonly reuseAtRankEnd?: boolean;
}

export function checkPromises(geometry: Geometry, run: Exploration, promises: Promises, findings: Findings): void {
  const { plan } = geometry;
  if (promises.outputAtRankEnd !== true && promises.reuseAtRankEnd !== true) return;
  for (const rank of plan.ranks) {
    const first = geometry.strandBase[rank.rank]!;
    const last = geometry.strandBase[rank.rank + 1]!;
    const ends: VectorClock[] = [];
    for (let g = first; g < last; g++) ends.push(run.ends[g]?.at(-1));
    /** An access that has surely happened when all strands of the rank have ended. */
    const over = (access: { lane: number; segment: number }) =>
      (access.lane >= first && access.lane < last) ||
      ends.some((clock) => stepsKnown(clock, access.lane) > access.segment);
    const seen = new Set<number>();
    const report = (code: "late-output" | "early-reuse", site: Site, cell: number) => {
      if (seen.has(site.id)) return;
      seen.add(site.id);
      const at = geometry.strandRank[site.strand]!;
      const place = placeOfCell(geometry, cell);
      findings.at(plan, [at, site.strand - geometry.strandBase[at]!, site.op, site.body < 0 ? undefined : site.body], {
        code,
        severity: "error",
        chunk: place,
        message:
          code === "late-output"
            ? `may still write ${place.buffer}[${place.index}] of rank ${rank.rank} after that rank has ended`
            : `may still use ${place.buffer}[${place.index}] of rank ${rank.rank} after that rank has ended`,
        hint: `signal rank ${rank.rank} after this operation and let it wait before it ends`,
      });
    };
    for (const buffer of ["output", "input"] as const) {
      const begin = geometry.base(0, rank.rank, buffer);
      for (let cell = begin; cell < begin + rank[buffer].chunks * geometry.cellsPerChunk; cell++) {
        const last = run.memory.lastAccesses(cell);
        for (const write of last.writes) {
          if (over(write)) continue;
          if (buffer === "output" && promises.outputAtRankEnd === true) report("late-output", write.site, cell);
          else if (promises.reuseAtRankEnd === true) report("early-reuse", write.site, cell);
        }
        if (promises.reuseAtRankEnd !== true) continue;
        for (const read of last.reads) if (!over(read)) report("early-reuse", read.site, cell);
      }
    }
  }
}

/**
 * What a barrier promises: nobody leaves before everybody has come. A rank has come when one of its strands has begun, and it
 * leaves when all have ended: at the end of one of its strands it must have heard from some strand of every other rank.
 * What it hears by relaxed signals or by packets alone is not counted, though it would do: such barriers are refused.
 */
export function checkBarrier(geometry: Geometry, run: Exploration, findings: Findings): void {
  const { plan, strandBase, launches } = geometry;
  for (let launch = 0; launch < launches; launch++) {
    for (const rank of plan.ranks) {
      const ends: VectorClock[] = [];
      for (let g = strandBase[rank.rank]!; g < strandBase[rank.rank + 1]!; g++) ends.push(run.ends[g]?.[launch]);
      const missing = plan.ranks.filter((other) => {
        if (other.rank === rank.rank) return false;
        for (let g = strandBase[other.rank]!; g < strandBase[other.rank + 1]!; g++) {
          // Heard of it in this launch: more of it is over than what it brought from the launches before.
          const before = launch === 0 ? 0 : (run.begins[g]?.[launch - 1] ?? 0);
          if (ends.some((clock) => stepsKnown(clock, g) > before)) return false;
        }
        return true;
      });
      if (missing.length === 0) continue;
      const named = missing.slice(0, 4).map((other) => `rank ${other.rank}`);
      findings.atRank(rank.rank, {
        code: "early-leave",
        severity: "error",
        message: `rank ${rank.rank} may leave the barrier before ${named.join(", ")}${missing.length > 4 ? ` and ${missing.length - 4} more` : ""} ${missing.length === 1 ? "has" : "have"} come`,
        hint: "let it wait for a signal that follows from one of each of them",
      });
    }
  }
}
