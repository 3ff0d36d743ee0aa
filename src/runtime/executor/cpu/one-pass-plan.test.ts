/** Which plans are left with their data alone where the ranks meet after every launch, and what of them is left. */
import { describe, expect, it } from "vitest";
import { ALGORITHMS, twoShotFusedReadAllReduce } from "../../../authoring/algorithms/index.ts";
import { allReduce, compile, type Program, program } from "../../../authoring/language/index.ts";
import { type ExecutionPlan, noteProof, type PlanProof } from "../../../authoring/plan/index.ts";
import { deepFreeze } from "../../../core/index.ts";
import { lowerRank } from "./lower.ts";
import { onePassOps } from "./one-pass-plan.ts";

const PROOF: PlanProof = { ok: true, hash: "", endsAlone: () => true, relaunches: () => true };

/** Compiled unverified, and passed as proved where it is said so: only what is proved may be one pass. */
function planOf(made: Program, isProved = true): ExecutionPlan {
  const plan = compile(made, { verify: false });
  if (isProved) noteProof(plan, PROOF);
  return plan;
}
const codes = (plan: ExecutionPlan, rank: number) =>
  lowerRank(plan, rank, { met: true, together: true, onePass: onePassOps(plan) }).strands.map((records) =>
    records.map(({ record }) => ("outs" in record ? `${record.code} to ${record.outs.length}` : record.code)),
  );

describe("plans of one pass", () => {
  it("are left with their data", () => {
    const plan = planOf(twoShotFusedReadAllReduce({ numRanks: 3 }));
    for (const rank of [0, 1, 2]) expect(codes(plan, rank)).toEqual([["move to 3", "end"]]);
  });

  it("are one of each collective that the library serves in a pass", () => {
    const wanted = ALGORITHMS.filter(({ name }) => /one-pass|fused-read|direct-|ring-all-reduce/.test(name));
    const found = wanted.filter((entry) => onePassOps(planOf(entry.make({ numRanks: 4 }))) !== undefined);
    expect(found.map(({ name }) => name)).toEqual([
      "two-shot-fused-read-all-reduce",
      "one-pass-all-reduce",
      "one-pass-all-gather",
      "one-pass-reduce-scatter",
      "one-pass-broadcast",
      "one-pass-reduce",
      "one-pass-all-to-all",
      "direct-gather",
      "one-pass-scatter",
      "direct-send-recv",
    ]);
  });

  it("are none that were not proved, where a rank waits for another's data, or leaves a signal behind", () => {
    expect(onePassOps(planOf(twoShotFusedReadAllReduce({ numRanks: 3 }), false))).toBeUndefined();
    const pair = (isLate: boolean) =>
      program({ name: "two steps", collective: allReduce(2), autoSync: "strand" }, (p) => {
        const channels = [0, 1].map((id) => p.memoryChannel(p.rank(id), p.rank(1 - id)));
        for (const rank of p.ranks) rank.copy(rank.output.at(0), rank.input.at(0), 0);
        for (const channel of channels) channel.signal({ strand: 0 });
        for (const channel of channels) channel.wait(0);
        if (isLate) for (const rank of p.ranks) rank.copy(rank.output.at(0), rank.input.at(0), 0);
      });
    const right = planOf(pair(false));
    expect(onePassOps(right)).toHaveLength(2);
    expect(onePassOps(planOf(pair(true)))).toBeUndefined();
    const [first, second] = right.ranks;
    const strands = second!.strands.map((strand) => ({
      ...strand,
      ops: strand.ops.filter(({ kind }) => kind !== "wait"),
    }));
    const left = deepFreeze({ ...right, ranks: [first!, { ...second!, strands }] });
    noteProof(left, PROOF);
    expect(onePassOps(left)).toBeUndefined();
  });
});
