/** What exports for serving share: the checkpoint, drafts, RoPE scaling, and shares of memory, each in words or figures. */
import { basename } from "node:path";
import { wordTable } from "../../core/index.ts";
import type { ShardingPlan } from "../plan.ts";
import type { ExportTarget } from "./engines.ts";
import { type ExportPlace, option, refusal, shellWord } from "./exporter.ts";
import { lacksBf16 } from "./format-support.ts";

const DTYPE_NAMES: Readonly<Record<string, string>> = wordTable({
  f32: "float32",
  f16: "float16",
  bf16: "bfloat16",
});

/** @throws UnsupportedError for a 16 or 32-bit KV cache in another dtype than the weights': engines keep it in theirs */
export function checkCacheDtype({ workload }: ShardingPlan, target: ExportTarget): void {
  const { weightFormat, kvFormat } = workload;
  if (isPlainDtype(kvFormat) && isPlainDtype(weightFormat) && kvFormat !== weightFormat) {
    throw refusal(
      `a KV cache in ${kvFormat} beside weights in ${weightFormat}`,
      target,
      `it keeps the cache in the dtype of the weights or in fp8: plan with --kv ${weightFormat} or --kv fp8`,
    );
  }
}

export const SERVED_IN_HALF = "these GPUs have no bf16: it serves in float16, in the same bytes";

/** The dtype of what is not quantized, by the engines' names, and a note where the GPUs do not have the plan's. */
export function servingDtype(plan: ShardingPlan): { readonly dtype: string; readonly notes: readonly string[] } {
  const { weightFormat, activationFormat } = plan.workload;
  const name = isPlainDtype(weightFormat) ? weightFormat : activationFormat;
  if (name === "bf16" && (plan.hardware ?? []).some(lacksBf16)) {
    return { dtype: "float16", notes: [SERVED_IN_HALF] };
  }
  return { dtype: DTYPE_NAMES[name] ?? "auto", notes: [] };
}

/** Options of the dtype, and of quantization where the checkpoint does not say it. @param nameOf the engine's name of a format */
export function formatOptions(
  plan: ShardingPlan,
  target: ExportTarget,
  nameOf: ((format: string) => string) | undefined,
): string[] {
  const { weightFormat, kvFormat } = plan.workload;
  checkCacheDtype(plan, target);
  const { dtype, notes } = servingDtype(plan);
  const isOwn = isPlainDtype(weightFormat) || isPlainDtype(kvFormat) || notes.length > 0;
  return [
    ...option("--dtype", isOwn ? dtype : undefined),
    ...(isPlainDtype(weightFormat) || nameOf === undefined ? [] : ["--quantization", nameOf(weightFormat)]),
  ];
}

export const isPlainDtype = (format: string): boolean => Object.hasOwn(DTYPE_NAMES, format);

/** A word of the command that its user replaces. */
export const DRAFT_MODEL = "DRAFT_MODEL";

/**
 * The checkpoint that the engine is given: the model itself where its files are in the plan's format or the engine converts
 * them as it loads, else a folder that the user makes first, which a note says. `namesFormat`: the command must name the
 * format; a quantized checkpoint says its own, and an engine that is told another name takes slower kernels or refuses.
 */
export function checkpointOf(
  plan: ShardingPlan,
  place: ExportPlace,
  { onLoad, tool }: { readonly onLoad: RegExp; readonly tool: string },
): { readonly model: string; readonly namesFormat: boolean; readonly notes: readonly string[] } {
  const { weightFormat } = plan.workload;
  const isKnown = place.isQuantized !== undefined;
  if (place.isQuantized !== false || isPlainDtype(weightFormat) || onLoad.test(weightFormat)) {
    return { model: shellWord(place.model), namesFormat: !isKnown || place.isQuantized === false, notes: [] };
  }
  const folder = `./${basename(place.model)}-${weightFormat}`;
  return {
    model: shellWord(folder),
    namesFormat: false,
    notes: [`${place.model} is not in ${weightFormat}: quantize it into ${folder} first (${tool})`],
  };
}

/** Families that bring a head for several tokens, and what engines call it. */
const MULTI_TOKEN: Readonly<Record<string, string>> = wordTable({
  deepseek_v3: "deepseek_mtp",
  glm4_moe: "glm4_moe_mtp",
  qwen3_next: "qwen3_next_mtp",
});

/** vLLM's name of the model's own multi-token head; undefined where it has none, and a draft is needed. */
export function ownDraft(plan: ShardingPlan): string | undefined {
  return MULTI_TOKEN[plan.model.architecture];
}

/** What a plan assumes of its drafts, and of which kind one must be found; undefined: the model's own. */
export function draftNotes(plan: ShardingPlan, kind: string | undefined): string[] {
  const { speculation } = plan.workload;
  if (speculation === undefined) return [];
  return [
    `the plan assumes that each drafted token is accepted with probability ${speculation.acceptance}`,
    ...(kind === undefined ? [] : [`put ${kind} for ${DRAFT_MODEL}; its memory is not in the plan`]),
  ];
}

/** What a plan assumes of its prefix cache. */
export function prefixNotes(plan: ShardingPlan, how: string): string[] {
  const { prefixHits } = plan.workload;
  if (prefixHits === undefined) return [];
  return [`the plan assumes that ${Math.round(prefixHits * 100)} % of each prompt are in the prefix cache${how}`];
}

/** Model types whose positions are learned, or biases of attention: there is no rotation to scale. */
const WITHOUT_ROPE = /^(gpt2|gpt_bigcode|opt|bloom|mpt|bert|roberta|xlm-roberta|gptj_learned)$/;

export interface RopeScaling {
  readonly factor: number;
  readonly originalTokens: number;
}

/**
 * How far positions are stretched for a context beyond the model's; undefined within it.
 * @throws UnsupportedError for models without rotary positions
 */
export function ropeScaling(plan: ShardingPlan, target: ExportTarget): RopeScaling | undefined {
  const { modelContextTokens, contextTokens } = plan.workload;
  if (modelContextTokens === undefined) return undefined;
  const { architecture } = plan.model;
  if (WITHOUT_ROPE.test(architecture)) {
    throw refusal(
      `a context of ${contextTokens} tokens`,
      target,
      `${architecture} has no rotary positions to scale: plan with --context ${modelContextTokens} or less`,
    );
  }
  const factor = Math.ceil((contextTokens / modelContextTokens) * 100) / 100;
  return { factor, originalTokens: modelContextTokens };
}

/** The `rope_scaling` of a Hugging Face config. */
export function hfRopeScaling({ factor, originalTokens }: RopeScaling): object {
  return { rope_scaling: { rope_type: "yarn", factor, original_max_position_embeddings: originalTokens } };
}

export const ROPE_NOTE =
  "where config.json has a rope_scaling of its own (Llama 3.1, DeepSeek, gpt-oss), multiply its factor in place of this one";

/** The largest share of its device's memory that a rank's items take, in whole percent, rounded up. */
export function neededShare(plan: ShardingPlan): number {
  const { gpuMemoryUtilization: share = 1 } = plan.workload;
  const most = Math.max(...plan.ranks.map(({ memory }) => memory.totalBytes / (memory.availableBytes / share)));
  return Math.min(1, Math.ceil(most * 100) / 100);
}

/** Of the fullest rank: what it may take, what the whole device has, and the KV cache's and the weights' bytes. */
export function fullestMemory(plan: ShardingPlan) {
  const { gpuMemoryUtilization: share = 1 } = plan.workload;
  const rank = plan.ranks[plan.memory.fullestRank];
  const items = rank?.memory.items ?? {};
  const allowedBytes = rank?.memory.availableBytes ?? 0;
  return {
    allowedBytes,
    wholeBytes: allowedBytes / share,
    totalBytes: rank?.memory.totalBytes ?? 0,
    kvBytes: items.kvCache ?? 0,
    weightBytes: items.weights ?? 0,
  };
}

/** Two decimals, rounded down, at least 0.01. */
export function shareText(share: number): string {
  return String(Math.max(0.01, Math.floor(share * 100 + 1e-9) / 100));
}

/** JSON as one word of a shell. */
export const jsonWord = (value: object): string => shellWord(JSON.stringify(value));
