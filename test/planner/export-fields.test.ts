/** Nothing that a request asks for is lost on the way to an engine: each field changes the export, or is refused in words. */
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../src/core/index.ts";
import { parseSystem } from "../../src/machine/topology/index.ts";
import {
  EXPORT_TARGETS,
  exportPlan,
  modelPreset,
  type PlanRequest,
  planModel,
  type ShardingPlan,
} from "../../src/planner/index.ts";

const inventory = parseSystem("hgx-h100-8");
if (inventory === undefined) throw new Error("no preset");

/** Changes of one field, by what the plan is for. Each stands on the base of its mode, with `beside` on both sides. */
interface Sample {
  readonly mode: "inference" | "training";
  readonly change: Partial<PlanRequest>;
  readonly beside?: Partial<PlanRequest>;
}
const serving = (change: Partial<PlanRequest>, beside?: Partial<PlanRequest>): Sample => ({
  mode: "inference",
  change,
  ...(beside === undefined ? {} : { beside }),
});
const training = (change: Partial<PlanRequest>, beside?: Partial<PlanRequest>): Sample => ({
  ...serving(change, beside),
  mode: "training",
});

/**
 * Every field of a request: how it is changed here, or why no engine has to hear of it. A new field does not compile until
 * it stands here.
 */
const FIELDS: Readonly<Record<keyof PlanRequest, readonly Sample[] | string>> = {
  model: [serving({ model: modelPreset("qwen3-8b") }), training({ model: modelPreset("qwen3-8b") })],
  inventory: "its devices are the plan's ranks; what an engine does not run on is refused (device-support.test.ts)",
  contextTokens: [serving({ contextTokens: 4096 }), training({ contextTokens: 4096 })],
  outputTokens: "the load that is asked of a server, not how it is set up",
  batch: [serving({ batch: 16 }), training({ batch: 32 })],
  quant: ["f16", "fp8", "awq-4-g128", "gptq-4-g128", "int8", "nf4", "mxfp4", "nvfp4", "q4_k_m"].map((quant) =>
    serving({ quant }),
  ),
  kv: [
    ...(["fp8", "f32", "int8", "q8_0", "q4_0"] as const).map((kv) => serving({ kv })),
    // Hopper has no units for it: only kernels of the user's own.
    serving({ kv: "nvfp4" }, { engine: "pytorch" }),
  ],
  train: ["lora", "lora-8", "qlora", "prefix", "dpo", "rlhf", "grpo", "distillation"].map((train) =>
    training({ train }, { zeroStage: 3, checkpointing: "full" }),
  ),
  zeroStage: ([0, 2, 3] as const).map((zeroStage) => training({ zeroStage })),
  checkpointing: (["none", "full"] as const).map((checkpointing) => training({ checkpointing })),
  microBatch: [training({ microBatch: 2 })],
  optimizer: (["adamw-8bit", "paged-adamw-8bit", "adafactor", "sgd", "muon"] as const).map((optimizer) =>
    training({ optimizer }),
  ),
  gradients: [training({ gradients: "f32" })],
  trainPrecision: [training({ trainPrecision: "fp8" })],
  pipelineSchedule: (["1f1b", "zero-bubble"] as const).flatMap((pipelineSchedule) => [
    training({ pipelineSchedule }),
    training({ pipelineSchedule }, { constrain: { tp: 2, pp: 2, dp: 2 } }),
  ]),
  offload: (["optimizer", "all"] as const).map((offload) => training({ offload })),
  loraTargets: (["attention", "qv"] as const).map((loraTargets) => training({ loraTargets }, { train: "lora" })),
  engine: "whose times they are; its devices and formats are checked",
  constants: "of the model of time",
  forceContext: "positions are scaled (tested below)",
  prefixHits: [serving({ prefixHits: 0.5 })],
  prefillChunkTokens: [serving({ prefillChunkTokens: 2048 })],
  expertOverlap: [serving({ expertOverlap: 0.5 }, { model: modelPreset("mixtral-8x7b") })],
  speculation: [serving({ speculation: { tokens: 3, acceptance: 0.7 } })],
  gpuMemoryUtilization: [serving({ gpuMemoryUtilization: 0.8 })],
  constrain: [
    serving({ constrain: { tp: 2, pp: 1, dp: 4 } }),
    serving({ constrain: { tp: 1, pp: 1, dp: 1, cp: 2 } }),
    training({ constrain: { tp: 4, pp: 1, dp: 2 } }),
    training({ constrain: { tp: 2, pp: 1, dp: 2, cp: 2 } }),
  ],
  objective: "which plan is best",
  ranks: "the axes say",
  rolloutTokens: "time that a step waits for what another engine generates",
  top: "how many plans are shown",
  useTotalMemory: "what is taken for free",
  allowCpu: "which devices are tried",
  explainNothing: "what is said when nothing fits",
  onProgress: "of the search",
};

const BASE: Readonly<Record<Sample["mode"], Partial<PlanRequest>>> = {
  inference: { constrain: { tp: 2, pp: 1, dp: 1 }, batch: 8, contextTokens: 8192 },
  training: {
    train: "full",
    constrain: { tp: 2, pp: 1, dp: 4 },
    batch: 64,
    contextTokens: 8192,
    zeroStage: 1,
    microBatch: 1,
    checkpointing: "selective",
  },
};

function planOf(request: Partial<PlanRequest>): ShardingPlan {
  const [plan] = planModel({ model: modelPreset("llama-3.1-8b"), inventory, ...request } as PlanRequest).plans;
  if (plan === undefined) throw new Error(`nothing fits ${JSON.stringify(request)}`);
  return plan;
}

/** All that an export says, but for the plan that chorale's own gets whole; undefined where it is refused. */
function textOf(plan: ShardingPlan, target: string): string | undefined {
  try {
    const { command, env, files, notes } = exportPlan(plan, target);
    return JSON.stringify([command, env, { ...files, "plan.json": undefined }, notes]);
  } catch (error) {
    if (error instanceof UnsupportedError) return undefined;
    throw error;
  }
}

describe("fields of a request", () => {
  it.each(Object.entries(FIELDS))("%s is said or refused by every export", (field, samples) => {
    if (typeof samples === "string") {
      expect(samples).not.toBe("");
      return;
    }
    for (const { mode, change, beside } of samples) {
      const base = planOf({ ...BASE[mode], ...beside });
      const changed = planOf({ ...BASE[mode], ...beside, ...change });
      for (const target of EXPORT_TARGETS) {
        const before = textOf(base, target);
        const after = textOf(changed, target);
        if (after === undefined) continue;
        expect(after, `${target} says nothing of ${field}: ${JSON.stringify(change)}`).not.toBe(before);
      }
    }
  });

  it("scales positions for a context beyond the model's, or refuses it", () => {
    const constrain = { tp: 2, pp: 1, cp: 1, ep: 1 };
    const beyond = { contextTokens: 65_536, forceContext: true, batch: 1, constrain };
    const served = planOf({ ...BASE.inference, ...beyond, model: modelPreset("qwen3-8b") });
    expect(served.workload.modelContextTokens).toBe(40_960);
    expect(exportPlan(served, "vllm").command).toContain(
      `--hf-overrides '{"rope_scaling":{"rope_type":"yarn","factor":1.6,"original_max_position_embeddings":40960}}'`,
    );
    expect(exportPlan(served, "sglang").command).toContain(`--json-model-override-args '{"rope_scaling":`);
    expect(exportPlan(served, "llama.cpp").command).toContain(
      "--rope-scaling yarn --rope-scale 1.6 --yarn-orig-ctx 40960",
    );
    expect(() => exportPlan(served, "tensorrt-llm")).toThrow(/no flag for RoPE scaling/);
    expect(() => exportPlan(served, "chorale")).toThrow(/a context beyond the model's/);
    const trained = planOf({
      ...BASE.training,
      ...beyond,
      batch: 8,
      model: modelPreset("qwen3-8b"),
      checkpointing: "full",
    });
    expect(exportPlan(trained, "megatron-lm").command).toContain("--rotary-seq-len-interpolation-factor 2");
    expect(exportPlan(trained, "deepspeed").notes.join()).toContain("from 40960 to 65536 tokens (rope_scaling)");
    const learned = planOf({ model: modelPreset("gpt2"), contextTokens: 2048, forceContext: true });
    expect(() => exportPlan(learned, "vllm")).toThrow(
      /gpt2 has no rotary positions to scale: plan with --context 1024/,
    );
    const inside = planOf({ ...BASE.inference, contextTokens: 8192, forceContext: true });
    expect(exportPlan(inside, "vllm").command).not.toContain("rope");
  });
});
