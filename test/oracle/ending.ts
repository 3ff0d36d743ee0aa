/** What a run of the oracle leaves in memory, against what the collective asks for (docs/semantics.md, section 8). */

import type { ExecutionPlan, PlanReduceOp } from "../../src/authoring/plan/execution-plan.ts";
import { planPostcondition } from "../../src/authoring/plan/plan-conditions.ts";
import { COMBINE } from "./elements.ts";
import type { OracleMemory } from "./memory.ts";
import type { Places } from "./places.ts";

/** What input and output hold after a launch. */
export function contentsAtEnd(plan: ExecutionPlan, places: Places, memory: OracleMemory, launch: number): string {
  const all: string[] = [];
  for (const rank of plan.ranks) {
    for (const buffer of ["input", "output"] as const) {
      for (let chunk = 0; chunk < rank[buffer].chunks; chunk++) {
        for (let cell = 0; cell < places.cells; cell++) {
          const { value, packet } = memory.last(places.place(launch, rank.rank, buffer, chunk, cell));
          all.push(`${value}${packet === 0 ? "" : "p"}`);
        }
      }
    }
  }
  return all.join();
}

/** What a launch left wrong in outputs and inputs, or nothing. @param initial what lay in memory at the beginning */
export function wrongAtEnd(
  plan: ExecutionPlan,
  places: Places,
  launch: number,
  initial: readonly number[],
  memory: OracleMemory,
): string | undefined {
  const post = planPostcondition(plan);
  const op = plan.collective.reduceOp ?? firstOperator(plan);
  const input = (rank: number, chunk: number, cell: number) =>
    initial[places.place(launch, rank, "input", chunk, cell)]!;
  for (const rank of plan.ranks) {
    for (let chunk = 0; chunk < rank.output.chunks; chunk++) {
      const expected = post?.[rank.rank]?.[chunk];
      if (expected === undefined || expected === null) continue;
      for (let cell = 0; cell < places.cells; cell++) {
        const from = expected.kind === "copy" ? [expected.from] : expected.from;
        const wanted = from.map((ref) => input(ref.rank, ref.chunk, cell)).reduce((a, b) => COMBINE[op](a, b));
        const actual = memory.last(places.place(launch, rank.rank, "output", chunk, cell));
        if (actual.packet !== 0 || actual.value !== wanted)
          return `output[${chunk}] of rank ${rank.rank} is wrong (cell ${cell})`;
      }
    }
    if (post === undefined || plan.collective.inPlace || plan.collective.mayOverwriteInput === true) continue;
    for (let chunk = 0; chunk < rank.input.chunks; chunk++) {
      for (let cell = 0; cell < places.cells; cell++) {
        const actual = memory.last(places.place(launch, rank.rank, "input", chunk, cell));
        if (actual.value !== input(rank.rank, chunk, cell)) return `input[${chunk}] of rank ${rank.rank} is changed`;
      }
    }
  }
  return undefined;
}

/** The operator of a collective that names none: the one that most reductions use. */
function firstOperator(plan: ExecutionPlan): PlanReduceOp {
  const votes = new Map<PlanReduceOp, number>();
  for (const rank of plan.ranks)
    for (const strand of rank.strands)
      for (const outer of strand.ops)
        for (const op of outer.kind === "pipeline" ? outer.body : [outer])
          if ("op" in op) votes.set(op.op, (votes.get(op.op) ?? 0) + 1);
  return [...votes].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "sum";
}
