/** A plan as a command line of TensorRT-LLM's server, and a file of what it has no flags for. Docs: 1.0, trtllm-serve. */
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
  checkCacheDtype,
  checkpointOf,
  DRAFT_MODEL,
  draftNotes,
  fullestMemory,
  isPlainDtype,
  prefixNotes,
  ropeScaling,
  servingDtype,
  shareText,
} from "./serving.ts";

const TARGET = "tensorrt-llm";
const OPTIONS_FILE = "llm-api.yml";

type Yaml = Readonly<Record<string, string | number | boolean | Readonly<Record<string, string | number | boolean>>>>;

function yaml(values: Yaml): string {
  return Object.entries(values)
    .flatMap(([name, value]) =>
      typeof value === "object"
        ? [`${name}:`, ...Object.entries(value).map(([key, inner]) => `  ${key}: ${inner}`)]
        : [`${name}: ${value}`],
    )
    .map((line) => `${line}\n`)
    .join("");
}

/** The dtype of products and cache, where the checkpoint's own is another. */
function dtypeOf(plan: ShardingPlan): string | undefined {
  const { weightFormat, activationFormat, checkpointFormat = weightFormat } = plan.workload;
  const wanted = isPlainDtype(weightFormat) ? weightFormat : activationFormat;
  return isPlainDtype(checkpointFormat) && checkpointFormat !== wanted ? servingDtype(plan).dtype : undefined;
}

/** Its share is of what is free once the model is loaded. */
function cacheShare(plan: ShardingPlan): string | undefined {
  if (plan.workload.gpuMemoryUtilization === undefined) return undefined;
  const { allowedBytes, wholeBytes, totalBytes, kvBytes } = fullestMemory(plan);
  const rest = totalBytes - kvBytes;
  return shareText((allowedBytes - rest) / Math.max(1, wholeBytes - rest));
}

const hasOwnDraft = ({ model }: ShardingPlan): boolean => model.architecture === "deepseek_v3";

function speculative(plan: ShardingPlan): Yaml {
  const { speculation } = plan.workload;
  if (speculation === undefined) return {};
  if (hasOwnDraft(plan)) {
    return { speculative_config: { decoding_type: "MTP", num_nextn_predict_layers: speculation.tokens } };
  }
  return {
    speculative_config: {
      decoding_type: "Eagle",
      max_draft_len: speculation.tokens,
      speculative_model_dir: DRAFT_MODEL,
    },
  };
}

export const tensorrt: Exporter = (plan, place) => {
  checkServing(plan, TARGET);
  refuseAxes(plan, TARGET, ["cp"], "trtllm-serve has no flag for it");
  checkCacheDtype(plan, TARGET);
  const { workload } = plan;
  if (workload.expertOverlap !== undefined) {
    throw refusal("--expert-overlap", TARGET, "trtllm-serve has no two-batch overlap: plan without it");
  }
  if (ropeScaling(plan, TARGET) !== undefined) {
    throw refusal(
      `a context of ${workload.contextTokens} tokens`,
      TARGET,
      `trtllm-serve has no flag for RoPE scaling: set rope_scaling in the checkpoint's config.json and plan that folder, or plan with --context ${workload.modelContextTokens} or less`,
    );
  }
  const { tp, pp, ep, dp } = plan.mesh.axes;
  const isAttentionApart = ep > 1 && tp === 1;
  const { model, notes } = checkpointOf(plan, place, { onLoad: /^$/, tool: "ModelOpt, examples/llm_ptq" });
  const cache = {
    ...(workload.kvFormat === "fp8" ? { dtype: "fp8" } : {}),
    ...(workload.prefixHits === undefined ? {} : { enable_block_reuse: true }),
  };
  const dtype = dtypeOf(plan);
  const settings: Yaml = {
    ...(dtype === undefined ? {} : { dtype }),
    ...(isAttentionApart ? { enable_attention_dp: true } : {}),
    ...(Object.keys(cache).length === 0 ? {} : { kv_cache_config: cache }),
    ...(workload.prefillChunkTokens === undefined ? {} : { enable_chunked_prefill: true }),
    ...speculative(plan),
  };
  const hasSettings = Object.keys(settings).length > 0;
  const words = [
    "trtllm-serve",
    model,
    ...sizes([
      ["--tp_size", tp * ep],
      ["--pp_size", pp],
      ["--ep_size", ep],
    ]),
    ...["--max_batch_size", String(isAttentionApart ? workload.batchPerReplica : Math.ceil(workload.batch / dp))],
    ...["--max_seq_len", String(workload.contextTokens)],
    ...option("--max_num_tokens", workload.prefillChunkTokens),
    ...option("--kv_cache_free_gpu_memory_fraction", cacheShare(plan)),
    ...option("--extra_llm_api_options", hasSettings ? OPTIONS_FILE : undefined),
  ];
  return {
    command: words.join(" "),
    env: {},
    files: hasSettings ? { [OPTIONS_FILE]: yaml(settings) } : {},
    notes: [
      ...notes,
      ...installNotes(TARGET, plan),
      ...(dp > 1 ? [`start it ${dp} times, one for each replica on devices of its own, behind a load balancer`] : []),
      ...(place.numHosts > 1
        ? [`start it under mpirun or srun over the ${place.numHosts} hosts, with trtllm-llmapi-launch`]
        : []),
      // It has no flag for the weights' format: the checkpoint's own files say.
      ...(isPlainDtype(workload.weightFormat) || place.isQuantized !== undefined
        ? []
        : [`the checkpoint itself must be in ${workload.weightFormat} (ModelOpt)`]),
      ...(ep > 1 && !isAttentionApart
        ? ["its attention is sharded over the expert-parallel ranks too, ours is replicated"]
        : []),
      ...draftNotes(plan, hasOwnDraft(plan) ? undefined : "an EAGLE-3 draft of the model"),
      ...prefixNotes(plan, ""),
      ...unevenNote(plan),
    ],
  };
};
