/** A plan as a command line of vLLM. Flags: docs.vllm.ai, v0.10, `vllm serve`. */
import type { ShardingPlan } from "../plan.ts";
import {
  checkServing,
  type Exporter,
  installNotes,
  isEven,
  option,
  refusal,
  refuseAxes,
  sizes,
  stageLayers,
} from "./exporter.ts";
import {
  checkpointOf,
  DRAFT_MODEL,
  draftNotes,
  formatOptions,
  fullestMemory,
  hfRopeScaling,
  jsonWord,
  neededShare,
  ownDraft,
  prefixNotes,
  ROPE_NOTE,
  ropeScaling,
  servingDtype,
} from "./serving.ts";

const TARGET = "vllm";
/** What it takes of a GPU's memory where no flag says otherwise. */
const DEFAULT_SHARE = 0.9;

/** Its names of formats. */
function quantization(format: string): string {
  if (/^gptq/.test(format)) return "gptq";
  if (/^awq/.test(format)) return "awq";
  if (format === "nf4") return "bitsandbytes";
  if (/^int[48]$/.test(format)) return "compressed-tensors";
  if (format === "nvfp4") return "modelopt_fp4";
  return format.replace("-block128", "");
}

/** Weights, activations and KV cache. */
function formats(plan: ShardingPlan, namesFormat: boolean): string[] {
  const cache = plan.workload.kvFormat === "fp8" ? ["--kv-cache-dtype", "fp8"] : [];
  return [...formatOptions(plan, TARGET, namesFormat ? quantization : undefined), ...cache];
}

const isOnCpus = (plan: ShardingPlan): boolean => plan.hardware?.some(({ family }) => family === "cpu") ?? false;

/** The share of memory: as asked, or where the plan needs more than the default. */
function memoryShare(plan: ShardingPlan): number | undefined {
  const { gpuMemoryUtilization } = plan.workload;
  // On CPUs the share is of nothing: VLLM_CPU_KVCACHE_SPACE says what the cache may take.
  if (isOnCpus(plan)) return undefined;
  const needed = neededShare(plan);
  return gpuMemoryUtilization ?? (needed > DEFAULT_SHARE ? needed : undefined);
}

/** The KV cache of the fullest rank in whole GiB, at least one. */
function cacheGib(plan: ShardingPlan): number {
  return Math.max(1, Math.ceil(fullestMemory(plan).kvBytes / 2 ** 30));
}

function speculative(plan: ShardingPlan): string[] {
  const { speculation } = plan.workload;
  if (speculation === undefined) return [];
  const own = ownDraft(plan);
  const draft = own === undefined ? { method: "eagle3", model: DRAFT_MODEL } : { method: own };
  return ["--speculative-config", jsonWord({ ...draft, num_speculative_tokens: speculation.tokens })];
}

export const vllm: Exporter = (plan, place) => {
  checkServing(plan, TARGET);
  refuseAxes(plan, TARGET, ["cp"], "it shards no prefill over ranks");
  const { workload } = plan;
  if (workload.expertOverlap !== undefined) {
    throw refusal("--expert-overlap", TARGET, "it has no two-batch overlap: plan without it, or export to sglang");
  }
  const { tp, pp, dp, ep } = plan.mesh.axes;
  const { numHosts } = place;
  const counts = stageLayers(plan);
  const rope = ropeScaling(plan, TARGET);
  const { model, namesFormat, notes } = checkpointOf(plan, place, {
    onLoad: /^(fp8|nf4)$/,
    tool: "llm-compressor; vLLM itself converts to fp8 and nf4 only",
  });
  const words = [
    "vllm serve",
    model,
    // Its expert-parallel group is all of tp x dp; attention is replicated over dp, as our ep axis is.
    ...sizes([
      ["--tensor-parallel-size", tp],
      ["--pipeline-parallel-size", pp],
      ["--data-parallel-size", dp * ep],
    ]),
    ...(ep > 1 ? ["--enable-expert-parallel"] : []),
    ...["--max-model-len", String(workload.contextTokens), "--max-num-seqs", String(workload.batchPerReplica)],
    ...formats(plan, namesFormat),
    ...option("--gpu-memory-utilization", memoryShare(plan)),
    ...(workload.prefillChunkTokens === undefined
      ? []
      : ["--enable-chunked-prefill", "--max-num-batched-tokens", String(workload.prefillChunkTokens)]),
    ...(workload.prefixHits === undefined ? [] : ["--enable-prefix-caching"]),
    ...speculative(plan),
    ...option("--hf-overrides", rope === undefined ? undefined : jsonWord(hfRopeScaling(rope))),
    // Its own processes stay on one host; several hosts are a Ray cluster.
    ...(numHosts > 1 ? ["--distributed-executor-backend", "ray"] : []),
    ...(numHosts > 1 && dp * ep > 1 ? ["--data-parallel-backend", "ray"] : []),
  ];
  return {
    command: words.join(" "),
    env: {
      ...(isEven(counts) ? {} : { VLLM_PP_LAYER_PARTITION: counts.join(",") }),
      ...(isOnCpus(plan) ? { VLLM_CPU_KVCACHE_SPACE: String(cacheGib(plan)) } : {}),
    },
    files: {},
    notes: [
      ...notes,
      ...servingDtype(plan).notes,
      ...installNotes(TARGET, plan),
      ...(ep > 1 && dp > 1 ? [`its experts are spread over all ${dp * ep * tp} ranks, ours over ${ep}`] : []),
      ...(numHosts > 1 ? [`run it on one host of a Ray cluster of the ${numHosts} hosts (ray start)`] : []),
      ...draftNotes(plan, ownDraft(plan) === undefined ? "an EAGLE-3 draft of the model" : undefined),
      ...prefixNotes(plan, ""),
      ...(rope === undefined ? [] : [ROPE_NOTE]),
    ],
  };
};
