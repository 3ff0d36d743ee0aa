/** A plan as a command line of llama.cpp's server. Flags: tools/server/README.md of the named build. */
import { wordTable } from "../../core/index.ts";
import type { ShardingPlan } from "../plan.ts";
import {
  checkServing,
  type Exporter,
  type ExportPlace,
  installNotes,
  refusal,
  refuseAxes,
  shellWord,
  stageLayers,
} from "./exporter.ts";
import { isHubId } from "./hub-ids.ts";
import { DRAFT_MODEL, draftNotes, isPlainDtype, prefixNotes, ROPE_NOTE, ropeScaling } from "./serving.ts";

const TARGET = "llama.cpp";

/** Its own names of KV formats. */
const CACHE_TYPES: Readonly<Record<string, string>> = wordTable({
  f32: "f32",
  bf16: "bf16",
  int8: "q8_0",
  int4: "q4_0",
});

function cacheFlags(format: string): string[] {
  // Its default.
  if (format === "f16") return [];
  const type = CACHE_TYPES[format] ?? format;
  // A quantized V cache is refused without flash attention.
  return [...(isPlainDtype(format) ? [] : ["-fa"]), "--cache-type-k", type, "--cache-type-v", type];
}

/** A file, a repository of GGUF files, or a model that must be converted first. */
function modelWords(plan: ShardingPlan, { model }: ExportPlace): { words: string[]; notes: string[] } {
  const { weightFormat } = plan.workload;
  if (model.endsWith(".gguf")) return { words: ["-m", shellWord(model)], notes: [] };
  if (isHubId(model) && /gguf/i.test(model)) {
    return { words: ["-hf", shellWord(`${model}:${weightFormat.toUpperCase()}`)], notes: [] };
  }
  const file = `${model.replace(/^.*\//, "")}-${weightFormat}.gguf`;
  const keepsFormat = isPlainDtype(weightFormat) || weightFormat === "mxfp4";
  const how = keepsFormat ? "convert_hf_to_gguf.py" : "convert_hf_to_gguf.py, then llama-quantize";
  return { words: ["-m", shellWord(file)], notes: [`convert ${model} to ${file} first (${how})`] };
}

/** How its devices share the model. Unless told otherwise it spreads over all that it sees. */
function splitFlags(plan: ShardingPlan, onCpu: boolean): string[] {
  const { tp, pp } = plan.mesh.axes;
  if (tp * pp === 1) return onCpu ? [] : ["--split-mode", "none"];
  const shares = tp > 1 ? Array.from({ length: tp }, () => 1) : stageLayers(plan);
  return ["--split-mode", tp > 1 ? "row" : "layer", "--tensor-split", shares.join(",")];
}

export const llamaCpp: Exporter = (plan, place) => {
  checkServing(plan, TARGET);
  refuseAxes(plan, TARGET, ["ep", "cp"], "it splits by layers or rows only");
  const { workload } = plan;
  const { tp, pp, dp } = plan.mesh.axes;
  if (tp > 1 && pp > 1) {
    throw refusal(
      `tp=${tp} with pp=${pp}`,
      TARGET,
      "it splits by layers or by rows, not both: plan with --constrain tp=1",
    );
  }
  if (place.numHosts > 1 && tp * pp > 1) {
    throw refusal(`a plan over ${place.numHosts} hosts`, TARGET, "one server has the devices of one host: plan on one");
  }
  if (workload.expertOverlap !== undefined) {
    throw refusal("--expert-overlap", TARGET, "it has no expert parallelism: plan without it");
  }
  const onCpu = plan.ranks.every((rank) => rank.deviceId.includes("cpu"));
  const rope = ropeScaling(plan, TARGET);
  const { words: model, notes } = modelWords(plan, place);
  const { speculation, gpuMemoryUtilization, prefillChunkTokens } = workload;
  const words = [
    "llama-server",
    ...model,
    ...["-ngl", onCpu ? "0" : String(plan.model.numLayers + 1)],
    ...splitFlags(plan, onCpu),
    // Its context is shared by the slots.
    ...["-c", String(workload.contextTokens * workload.batchPerReplica), "-np", String(workload.batchPerReplica)],
    ...(prefillChunkTokens === undefined ? [] : ["-b", String(prefillChunkTokens), "-ub", String(prefillChunkTokens)]),
    ...cacheFlags(workload.kvFormat),
    ...(speculation === undefined ? [] : ["-md", `${DRAFT_MODEL}.gguf`, "--draft-max", String(speculation.tokens)]),
    ...(rope === undefined
      ? []
      : [
          "--rope-scaling",
          "yarn",
          "--rope-scale",
          String(rope.factor),
          "--yarn-orig-ctx",
          String(rope.originalTokens),
        ]),
  ];
  return {
    command: words.join(" "),
    env: {},
    files: {},
    notes: [
      ...notes,
      ...installNotes(TARGET, plan),
      ...(dp > 1
        ? [
            `start it ${dp} times, one for each replica on devices of its own${tp * pp === 1 ? " (--main-gpu)" : ""}, behind a load balancer`,
          ]
        : []),
      ...(gpuMemoryUtilization === undefined
        ? []
        : [
            `it has no limit of memory: it takes what the model and -c need, which the plan holds within ${gpuMemoryUtilization} of each device`,
          ]),
      ...draftNotes(plan, "a small model of the same vocabulary"),
      ...prefixNotes(plan, "; a slot keeps its last prompt by default"),
      ...(rope === undefined ? [] : [ROPE_NOTE]),
    ],
  };
};
