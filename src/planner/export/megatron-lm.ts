/** A plan as a command line of Megatron-LM. Flags: megatron/training/arguments.py of core_v0.12.0. */
import type { ShardingPlan } from "../plan.ts";
import {
  type Exporter,
  installNotes,
  isEven,
  needsMode,
  option,
  refusal,
  sizes,
  stageLayers,
  torchrunWords,
} from "./exporter.ts";
import { ropeScaling } from "./serving.ts";
import { HALF_NOTE, scheduleNotes, trainsInHalf } from "./training-duties.ts";

const TARGET = "megatron-lm";

/** A first or last stage of another size; other splits have no flags. */
function unevenFlags(counts: readonly number[], chunks: number): string[] {
  if (isEven(counts)) return [];
  // The embedding and the loss in place of a layer each.
  const [embedding, loss] = [counts[0] ?? 0, counts.at(-1) ?? 0].map((count) => (count % chunks === 0 ? 0 : 1));
  const filled = counts.map(
    (count, stage) => count + (stage === 0 ? (embedding ?? 0) : stage === counts.length - 1 ? (loss ?? 0) : 0),
  );
  if (isEven(filled)) {
    return [
      ...(embedding === 1 ? ["--account-for-embedding-in-pipeline-split"] : []),
      ...(loss === 1 ? ["--account-for-loss-in-pipeline-split"] : []),
    ];
  }
  const middle = counts.slice(1, -1);
  if (!isEven(middle.length > 0 ? middle : [0])) {
    throw refusal(`a split of ${counts.join(", ")} layers`, TARGET, "only its first and last stage may differ");
  }
  return [
    ...["--decoder-first-pipeline-num-layers", String(counts[0])],
    ...["--decoder-last-pipeline-num-layers", String(counts.at(-1))],
  ];
}

/** The pipeline's schedule. */
function schedule(plan: ShardingPlan): { flags: string[]; notes: string[] } {
  const { pipelineSchedule: asked, pipelineChunks: chunks } = plan.workload;
  if (plan.mesh.axes.pp === 1) return { flags: [], notes: scheduleNotes(plan) };
  if (asked === "zero-bubble") {
    throw refusal(
      "--pipeline-schedule zero-bubble",
      TARGET,
      "it has 1F1B and interleaved schedules: plan with --pipeline-schedule interleaved or 1f1b",
    );
  }
  return {
    flags: chunks === undefined ? [] : ["--num-virtual-stages-per-pipeline-rank", String(chunks)],
    notes: [],
  };
}

function optimizer({ workload }: ShardingPlan): string[] {
  const { optimizer: name = "adamw", offload, zeroStage = 0 } = workload;
  if (name !== "adamw" && name !== "sgd") {
    throw refusal(`--optimizer ${name}`, TARGET, "it has Adam and SGD: plan with --optimizer adamw or sgd");
  }
  const flags = ["--optimizer", name === "sgd" ? "sgd" : "adam"];
  if (offload === undefined) return flags;
  if (offload === "all") {
    throw refusal("--offload all", TARGET, "it offloads optimizer states alone: plan with --offload optimizer");
  }
  if (name !== "adamw") {
    throw refusal(
      `--offload optimizer with --optimizer ${name}`,
      TARGET,
      "it offloads Adam: plan with --optimizer adamw",
    );
  }
  if (zeroStage !== 1) {
    throw refusal(
      "--offload optimizer with --zero 0",
      TARGET,
      "it offloads its distributed optimizer: plan with --zero 1",
    );
  }
  return [...flags, "--optimizer-cpu-offload", "--use-precision-aware-optimizer"];
}

function recomputation({ workload }: ShardingPlan): string[] {
  if (workload.checkpointing === "full") {
    return ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"];
  }
  return workload.checkpointing === "none" ? [] : ["--recompute-granularity", "selective"];
}

export const megatron: Exporter = (plan, { numHosts }) => {
  needsMode(plan, TARGET, "training");
  const { model, workload } = plan;
  const { method, zeroStage = 0, batch, contextTokens, microBatch = 1 } = workload;
  if (method !== undefined && method !== "full") {
    throw refusal(
      `--train ${method}`,
      TARGET,
      "pretrain_gpt.py trains all weights on a text: plan with --train full, or export to deepspeed or torchrun",
    );
  }
  if (zeroStage > 1) {
    throw refusal(`ZeRO stage ${zeroStage}`, TARGET, "plan with --zero 1: its distributed optimizer is stage 1");
  }
  const { tp, pp, ep, cp, dp } = plan.mesh.axes;
  const rope = ropeScaling(plan, TARGET);
  const isHalf = trainsInHalf(plan);
  const { flags: scheduleFlags, notes } = schedule(plan);
  const words = [
    ...torchrunWords(plan, numHosts, "pretrain_gpt.py"),
    ...sizes([
      ["--tensor-model-parallel-size", tp],
      ["--pipeline-model-parallel-size", pp],
      ["--context-parallel-size", cp],
      ["--expert-model-parallel-size", ep],
    ]),
    ...unevenFlags(stageLayers(plan), workload.pipelineChunks ?? 1),
    ...scheduleFlags,
    ...["--num-layers", String(model.numLayers), "--hidden-size", String(model.hiddenSize)],
    ...["--num-attention-heads", String(model.numHeads)],
    ...(model.numKvHeads === model.numHeads
      ? []
      : ["--group-query-attention", "--num-query-groups", String(model.numKvHeads)]),
    ...["--seq-length", String(contextTokens), "--max-position-embeddings", String(contextTokens)],
    ...option("--rotary-seq-len-interpolation-factor", rope === undefined ? undefined : Math.ceil(rope.factor)),
    ...["--micro-batch-size", String(microBatch)],
    ...["--global-batch-size", String(Math.ceil(batch / (dp * ep * microBatch)) * dp * ep * microBatch)],
    isHalf ? "--fp16" : "--bf16",
    ...(workload.precision === "fp8" ? ["--fp8-format", "hybrid"] : []),
    // In bf16 it keeps gradients in f32 unless told otherwise.
    ...(workload.gradients === "f32" || isHalf ? [] : ["--grad-reduce-in-bf16"]),
    ...optimizer(plan),
    ...(zeroStage === 1 ? ["--use-distributed-optimizer"] : []),
    ...(tp > 1 ? ["--sequence-parallel"] : []),
    ...recomputation(plan),
  ];
  return {
    command: words.join(" "),
    env: { CUDA_DEVICE_MAX_CONNECTIONS: "1" },
    files: {},
    notes: [
      "data, tokenizer, and the shape of the MLP, experts, norms and positions are yours: the plan does not hold them",
      ...installNotes(TARGET, plan),
      ...(isHalf ? [HALF_NOTE] : []),
      ...(rope === undefined ? [] : ["positions are interpolated linearly: it has no YaRN"]),
      ...notes,
    ],
  };
};
