/** A plan as a command line of SGLang. Flags: its docs, 0.5, advanced_features/server_arguments. */
import type { ShardingPlan } from "../plan.ts";
import {
  checkServing,
  type Exporter,
  installNotes,
  option,
  refusal,
  refuseAxes,
  sizes,
  unevenNote,
} from "./exporter.ts";
import {
  checkpointOf,
  DRAFT_MODEL,
  draftNotes,
  formatOptions,
  fullestMemory,
  hfRopeScaling,
  jsonWord,
  ownDraft,
  prefixNotes,
  ROPE_NOTE,
  ropeScaling,
  servingDtype,
  shareText,
} from "./serving.ts";

const TARGET = "sglang";

/** Its names of formats. */
function quantization(format: string): string {
  if (/^gptq/.test(format)) return "gptq";
  if (/^awq/.test(format)) return "awq";
  if (format === "nf4") return "bitsandbytes";
  if (format === "int8") return "w8a8_int8";
  if (format === "nvfp4") return "modelopt_fp4";
  return format.replace("-block128", "");
}

/** e4m3 needs FP8 units in its kernels; e5m2 does not. */
function fp8Cache(plan: ShardingPlan): string {
  const isOld = (plan.hardware ?? []).some(({ family, arch }) => family === "nvidia-gpu" && Number(arch) < 8.9);
  return isOld ? "fp8_e5m2" : "fp8_e4m3";
}

function formats(plan: ShardingPlan, namesFormat: boolean): string[] {
  const { weightFormat, kvFormat } = plan.workload;
  return [
    ...formatOptions(plan, TARGET, namesFormat ? quantization : undefined),
    ...(weightFormat === "nf4" && namesFormat ? ["--load-format", "bitsandbytes"] : []),
    ...(kvFormat === "fp8" ? ["--kv-cache-dtype", fp8Cache(plan)] : []),
  ];
}

/** Its share is that of weights and KV cache alone: what else the plan holds is taken off. */
function staticShare(plan: ShardingPlan): string | undefined {
  if (plan.workload.gpuMemoryUtilization === undefined) return undefined;
  const { allowedBytes, wholeBytes, totalBytes, kvBytes, weightBytes } = fullestMemory(plan);
  return shareText((allowedBytes - (totalBytes - kvBytes - weightBytes)) / wholeBytes);
}

function speculative(plan: ShardingPlan): string[] {
  const { speculation } = plan.workload;
  if (speculation === undefined) return [];
  const draft = ownDraft(plan) === undefined ? ["EAGLE3", "--speculative-draft-model-path", DRAFT_MODEL] : ["EAGLE"];
  const { tokens } = speculation;
  return [
    ...["--speculative-algorithm", ...draft, "--speculative-num-steps", String(tokens)],
    ...["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", String(tokens + 1)],
  ];
}

export const sglang: Exporter = (plan, place) => {
  checkServing(plan, TARGET);
  refuseAxes(plan, TARGET, ["cp"], "it has no context parallelism under this name");
  const { workload } = plan;
  const { tp, pp, dp, ep } = plan.mesh.axes;
  const { numHosts } = place;
  if (workload.expertOverlap !== undefined && ep === 1) {
    throw refusal("--expert-overlap with ep=1", TARGET, "no exchange to overlap: plan with --constrain ep=N");
  }
  // Expert-parallel ranks are part of its tensor-parallel group; where each has all heads, attention is data-parallel.
  const isAttentionApart = ep > 1 && tp === 1 && dp === 1;
  const rope = ropeScaling(plan, TARGET);
  const { model, namesFormat, notes } = checkpointOf(plan, place, {
    onLoad: /^(fp8|nf4)$/,
    tool: "llm-compressor or ModelOpt; SGLang itself converts to fp8 and nf4 only",
  });
  const words = [
    "python -m sglang.launch_server --model-path",
    model,
    ...sizes([
      ["--tp-size", tp * ep],
      ["--pp-size", pp],
      ["--dp-size", isAttentionApart ? ep : dp],
      ["--ep-size", ep],
    ]),
    ...(isAttentionApart ? ["--enable-dp-attention"] : []),
    ...["--context-length", String(workload.contextTokens)],
    // Each replica has its own; with data-parallel attention they share one.
    ...["--max-running-requests", String(Math.ceil(workload.batch / dp))],
    ...formats(plan, namesFormat),
    ...option("--mem-fraction-static", staticShare(plan)),
    ...option("--chunked-prefill-size", workload.prefillChunkTokens),
    ...(workload.expertOverlap === undefined ? [] : ["--moe-a2a-backend", "deepep", "--enable-two-batch-overlap"]),
    ...speculative(plan),
    ...option("--json-model-override-args", rope === undefined ? undefined : jsonWord(hfRopeScaling(rope))),
    ...(numHosts > 1
      ? ["--nnodes", String(numHosts), "--node-rank", "$NODE_RANK", "--dist-init-addr", "$HEAD_ADDRESS:20000"]
      : []),
  ];
  return {
    command: words.join(" "),
    env: {},
    files: {},
    notes: [
      ...notes,
      ...servingDtype(plan).notes,
      ...installNotes(TARGET, plan),
      ...(ep > 1 && !isAttentionApart
        ? ["its attention is sharded over the expert-parallel ranks too, ours is replicated"]
        : []),
      ...(workload.expertOverlap === undefined
        ? []
        : [`the plan assumes that ${Math.round(workload.expertOverlap * 100)} % of the experts' exchange are hidden`]),
      ...draftNotes(plan, ownDraft(plan) === undefined ? "an EAGLE-3 draft of the model" : undefined),
      ...prefixNotes(plan, "; its radix cache is on by default"),
      ...(rope === undefined ? [] : [ROPE_NOTE]),
      ...unevenNote(plan),
    ],
  };
};
