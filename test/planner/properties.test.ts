/**
 * What holds of every plan. 30 random (model, inventory, request); 10,000 by `npm run planner:full`. CHORALE_PLANNER_CASES and
 * CHORALE_SEED change that.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type PlanRequest, parsePlan, planModel, type ShardingPlan } from "../../src/planner/index.ts";
import { asks, type Config, configs, machines, requestOf } from "./cases.ts";

const numRuns = Number(process.env.CHORALE_PLANNER_CASES ?? 30);
const seed = Number(process.env.CHORALE_SEED ?? Date.now() & 0x7fffffff);

function numbersOf(plan: ShardingPlan): number[] {
  const { estimates } = plan;
  if (estimates.kind === "training") return [estimates.stepMs, estimates.tokensPerSecond, estimates.mfu];
  const curve = estimates.throughputCurve.flatMap((point) => [point.decodeStepMs, point.tokensPerSecond]);
  const decode = plan.workload.outputTokens > 0 ? [estimates.decodeStepMs, estimates.decodeTokensPerSecond] : [];
  return [estimates.prefillMs, estimates.ttftMs, estimates.requestMs, ...decode, ...curve];
}

/** The rules of division, from the config itself. */
function divisionProblems(config: Config, plan: ShardingPlan): string[] {
  const { tp, ep, pp } = plan.mesh.axes;
  const num = (name: string) => Number(config[name] ?? 0);
  const problems: string[] = [];
  const gpt2 = config["model_type"] === "gpt2";
  const heads = gpt2 ? num("n_head") : num("num_attention_heads");
  const latent = config["model_type"] === "deepseek_v2";
  const kv = gpt2 || latent ? heads : num("num_key_value_heads");
  if (heads % tp !== 0) problems.push(`heads ${heads} % tp ${tp}`);
  if (!latent && kv % tp !== 0 && tp % kv !== 0) problems.push(`kv ${kv} and tp ${tp}`);
  const columns = gpt2
    ? [4 * num("n_embd")]
    : latent
      ? // Its first layers are dense; there may be no others.
        plan.model.numLayers > num("first_k_dense_replace")
        ? [num("moe_intermediate_size"), num("intermediate_size")]
        : [num("intermediate_size")]
      : [num("intermediate_size")];
  // A model whose every layer is a mixture has no dense MLP.
  for (const size of columns) if (size % tp !== 0) problems.push(`columns ${size} % tp ${tp}`);
  const experts = num("num_local_experts") || num("n_routed_experts");
  if (ep > 1 && (experts === 0 || experts % ep !== 0)) problems.push(`experts ${experts} % ep ${ep}`);
  if (pp > plan.model.numLayers) problems.push(`pp ${pp} > ${plan.model.numLayers} layers`);
  return problems;
}

function check(config: Config, request: PlanRequest): ShardingPlan | undefined {
  const outcome = planModel(request);
  const [plan] = outcome.plans;
  if (plan === undefined) {
    expect(outcome.rejected.length).toBeGreaterThan(0);
    return undefined;
  }
  // The schema and every rule between fields: layers contiguous and complete, ranks in order, memory within.
  expect(parsePlan(JSON.parse(JSON.stringify(plan)))).toEqual(plan);
  expect(divisionProblems(config, plan)).toEqual([]);
  const devices = new Map(request.inventory.devices.map((device) => [device.id, device]));
  for (const rank of plan.ranks) {
    expect(rank.memory.totalBytes).toBeLessThanOrEqual(devices.get(rank.deviceId)?.memoryBytes ?? 0);
  }
  expect(new Set(plan.ranks.map((rank) => rank.deviceId)).size).toBe(plan.ranks.length);
  for (const value of numbersOf(plan)) {
    expect(Number.isFinite(value)).toBe(true);
    expect(value).toBeGreaterThan(0);
  }
  expect(Object.isFrozen(plan) && Object.isFrozen(plan.ranks[0]?.memory.items)).toBe(true);
  return plan;
}

/** Equal but for rounding. */
const atMost = (value: number, bound: number) => expect(value).toBeLessThanOrEqual(bound * (1 + 1e-6));

describe("every plan", () => {
  it(`is valid, fits, divides, and is no slower on faster devices (seed ${seed}, ${numRuns} cases)`, () => {
    let planned = 0;
    let turn = 0;
    fc.assert(
      fc.property(configs, machines(8), asks, (config, machine, ask) => {
        const plan = check(config, requestOf(config, machine, ask));
        if (plan === undefined) return;
        planned++;
        turn++;
        // Faster memory, faster arithmetic or faster links, in turn.
        const scale = { bandwidth: turn % 3 === 0 ? 1.7 : 1, flops: turn % 3 === 1 ? 1.7 : 1 };
        const links = turn % 3 === 2 ? { ...machine, linkGBps: machine.linkGBps * 1.7 } : machine;
        const [faster] = planModel(requestOf(config, links, ask, scale)).plans;
        expect(faster).toBeDefined();
        if (faster !== undefined) atMost(faster.score, plan.score);
      }),
      { numRuns, seed },
    );
    // The generators must not make mostly hopeless cases.
    expect(planned).toBeGreaterThan(numRuns / 4);
  }, 1_800_000);
});
