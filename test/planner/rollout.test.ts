/** Rollouts of PPO and GRPO: counted when asked for, said to be left out otherwise. */
import { describe, expect, it } from "vitest";
import { parseSystem } from "../../src/machine/topology/index.ts";
import { modelPreset, type PlanRequest, planModel } from "../../src/planner/index.ts";

const inventory = parseSystem("hgx-h100-8");
function train(more: Partial<PlanRequest>) {
  if (inventory === undefined) throw new Error("no preset");
  const request = { model: modelPreset("llama-3.1-8b"), inventory, contextTokens: 4096, batch: 128 };
  const [plan] = planModel({ ...request, ...more }).plans;
  if (plan === undefined) throw new Error("no plan");
  return plan;
}
const timesOf = (more: Partial<PlanRequest>) => {
  const { estimates } = train(more);
  if (estimates.kind !== "training") throw new Error("serves");
  return estimates;
};

describe("rollouts", () => {
  it("are left out unless asked for, and the plan says so; what does not generate says nothing", () => {
    for (const method of ["rlhf", "ppo", "grpo"])
      expect(train({ train: method }).notes.join()).toMatch(/leaves the rollouts out/);
    expect(train({ train: "dpo" }).notes.join()).not.toContain("rollout");
  });

  it("take as long as serving them does, and the step that much longer", () => {
    const [without, rolled] = [timesOf({ train: "grpo" }), timesOf({ train: "grpo", rolloutTokens: 2048 })];
    const serving = train({ outputTokens: 2048, objective: "throughput", quant: "bf16" }).estimates;
    expect(rolled.rolloutMs).toBeCloseTo(serving.kind === "inference" ? serving.requestMs : 0, 6);
    expect(rolled.stepMs).toBeCloseTo(without.stepMs + (rolled.rolloutMs ?? 0), 6);
    expect((rolled.tokensPerSecond * rolled.stepMs) / (without.tokensPerSecond * without.stepMs)).toBeCloseTo(1, 9);
    const parts = Object.values(rolled.breakdownMs).reduce((sum, part) => sum + part, 0);
    expect(parts / rolled.stepMs).toBeCloseTo(1, 2);
    expect(rolled.rolloutMs).toBeGreaterThan(timesOf({ train: "grpo", rolloutTokens: 512 }).rolloutMs ?? 0);
  });

  it("PPO holds a critic and a reward model that GRPO has not", () => {
    const [ppo, grpo] = [train({ train: "ppo" }), train({ train: "grpo" })];
    expect(ppo.memory.totalBytes).toBeGreaterThan(grpo.memory.totalBytes);
    expect(ppo.workload.method).toBe("rlhf");
  });

  it("are refused where nothing generates, and beyond the context", () => {
    expect(() => train({ train: "full", rolloutTokens: 64 })).toThrow(/nothing else generates/);
    expect(() => train({ rolloutTokens: 64 })).toThrow(/nothing else generates/);
    expect(() => train({ train: "ppo", rolloutTokens: 4096 })).toThrow(/1 to 4095/);
  });
});
