/** What a printed range says it was measured on, and what an engine is given where nobody measured it. */
import { describe, expect, it } from "vitest";
import { parseSystem } from "../../machine/topology/index.ts";
import { modelPreset } from "../model/presets.ts";
import { planModel } from "../plan-model.ts";
import { renderPlan } from "../render.ts";
import { rangeOf } from "./ranges.ts";

function planOn(hardware: string) {
  const inventory = parseSystem(hardware);
  if (inventory === undefined) throw new Error(`no ${hardware}`);
  const [plan] = planModel({ model: modelPreset("llama-3.1-8b"), inventory, contextTokens: 4096 }).plans;
  if (plan?.estimates.kind !== "inference") throw new Error(`no plan on ${hardware}`);
  return { plan, tokens: plan.estimates.decodeTokensPerSecondPerUser };
}

describe("ranges", () => {
  it("name the hardware of their measurements, and are wider where the plan's is not among it", () => {
    const [measured, not] = [rangeOf(planOn("a100").plan), rangeOf(planOn("mi355x").plan)];
    expect(measured).toMatchObject({ isMeasured: true, measuredOn: ["A100", "MI300X"] });
    expect(not).toMatchObject({ isMeasured: false, count: measured.count });
    expect(not.low).toBeLessThan(measured.low * 0.9);
    expect(not.high).toBeGreaterThan(measured.high * 1.1);
    expect(renderPlan(planOn("a100").plan)).toMatch(/12 published measurements of vllm decode on A100, MI300X/);
    expect(renderPlan(planOn("b200").plan)).toMatch(/wider, as vllm decode was compared on no such hardware/);
  });

  it("a newer part of a vendor is not slower than the older one whose bandwidth it exceeds", () => {
    const tokens = ["mi300x", "mi325x", "mi355x"].map((hardware) => planOn(hardware).tokens);
    expect(tokens).toEqual([...tokens].sort((a, b) => a - b));
    const nvidia = ["a100", "h100", "h200", "b200"].map((hardware) => planOn(hardware).tokens);
    expect(nvidia).toEqual([...nvidia].sort((a, b) => a - b));
  });
});
