/**
 * What a training script of the user's own must do for a plan to hold: launchers such as torchrun have no options for it,
 * so that their exports say it in words. One sentence for each field of the plan.
 */
import { wordTable } from "../../core/index.ts";
import type { ShardingPlan } from "../plan.ts";
import { lacksBf16 } from "./format-support.ts";

/** What makes each optimizer in Python. */
const OPTIMIZERS: Readonly<Record<string, string>> = wordTable({
  adamw: "torch.optim.AdamW with f32 moments and master weights",
  "adamw-8bit": "bitsandbytes.optim.AdamW8bit on the bf16 weights",
  "paged-adamw-8bit": "bitsandbytes.optim.PagedAdamW8bit on the bf16 weights",
  adafactor: "torch.optim.Adafactor with f32 master weights",
  sgd: "torch.optim.SGD with momentum and f32 master weights",
  muon: "torch.optim.Muon with f32 master weights, and AdamW for what is no matrix",
});

const METHODS: Readonly<Record<string, string>> = wordTable({
  prefix: "train prefixes of attention (PEFT's PrefixTuningConfig) with the base frozen",
  dpo: "train by DPO, with a frozen reference model on the same layout",
  rlhf: "train by PPO: policy and critic train, reference and reward model run forward on the same layout",
  grpo: "train by GRPO: the policy trains, a reference model runs forward on the same layout",
  distillation: "distil from a frozen teacher of the same size on the same layout",
});

const TARGETS: Readonly<Record<string, string>> = wordTable({
  all: 'target_modules="all-linear"',
  attention: 'target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]',
  qv: 'target_modules=["q_proj", "v_proj"]',
});

/** The method, where it is more than training all weights. */
export function methodDuty({ workload }: ShardingPlan): string | undefined {
  const { method, adapter, weightFormat } = workload;
  if (adapter?.kind === "lora") {
    const base = method === "qlora" ? ` on a base loaded in ${weightFormat}` : "";
    return `add adapters with PEFT's LoraConfig(r=${adapter.rank}, ${TARGETS[adapter.targets] ?? adapter.targets})${base}`;
  }
  if (adapter?.kind === "prefix") return `${METHODS["prefix"]}, ${adapter.tokens} tokens`;
  return METHODS[method ?? ""];
}

export function optimizerDuty({ workload }: ShardingPlan): string {
  return `update with ${OPTIMIZERS[workload.optimizer ?? "adamw"] ?? workload.optimizer}`;
}

/** What is computed again in the backward pass. */
export function checkpointingDuty({ workload }: ShardingPlan): string | undefined {
  switch (workload.checkpointing) {
    case "full":
      return "recompute every layer (gradient_checkpointing_enable())";
    case "selective":
      return "recompute attention alone, or attend by FlashAttention, which does";
    case "none":
      return "recompute nothing";
    default:
      return undefined;
  }
}

export function ropeDuty({ workload }: ShardingPlan): string | undefined {
  const { modelContextTokens, contextTokens } = workload;
  return modelContextTokens === undefined
    ? undefined
    : `scale the model's positions from ${modelContextTokens} to ${contextTokens} tokens (rope_scaling)`;
}

export function precisionDuty({ workload }: ShardingPlan): string | undefined {
  return workload.precision === "fp8" ? "run linear layers in FP8 (torchao float8 or Transformer Engine)" : undefined;
}

/** Sentences for the duties that there are. */
export function dutyNotes(script: string, duties: readonly (string | undefined)[]): string[] {
  return duties.flatMap((duty) => (duty === undefined ? [] : [`${script} must ${duty}`]));
}

/** Said of a schedule that was asked for where there is no pipeline. */
export function scheduleNotes(plan: ShardingPlan): string[] {
  const { pipelineSchedule } = plan.workload;
  return pipelineSchedule !== undefined && plan.mesh.axes.pp === 1
    ? [`the plan has one stage: a pipeline schedule (${pipelineSchedule}) changes nothing`]
    : [];
}

/** bf16, or fp16 on GPUs that lack it. */
export function trainsInHalf(plan: ShardingPlan): boolean {
  return (plan.hardware ?? []).some(lacksBf16);
}

export const HALF_NOTE = "these GPUs have no bf16: it trains in fp16 with loss scaling, in the same bytes";
