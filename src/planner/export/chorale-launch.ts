/** A plan as the launch line of chorale's own example, and the plan that it reads. */
import { checkServing, type Exporter, refusal, refuseAxes, shellWord } from "./exporter.ts";
import { isHubId } from "./hub-ids.ts";

const TARGET = "chorale";

/** What its forward pass has no option for. */
const UNKNOWN = [
  ["gpuMemoryUtilization", "--gpu-memory-utilization"],
  ["prefixHits", "--prefix-hits"],
  ["prefillChunkTokens", "--prefill-chunk"],
  ["expertOverlap", "--expert-overlap"],
  ["speculation", "--speculate"],
  ["modelContextTokens", "a context beyond the model's"],
] as const;

export const choraleLaunch: Exporter = (plan, { model }) => {
  checkServing(plan, TARGET);
  refuseAxes(plan, TARGET, ["ep", "cp"], "the example shards by tp, pp and dp");
  for (const [field, words] of UNKNOWN) {
    if (plan.workload[field] !== undefined) {
      throw refusal(words, TARGET, "the example reads the sizes and layers of a plan: plan without it");
    }
  }
  const command = `chorale launch -n ${plan.mesh.worldSize} examples/sharded-llama/main.ts -- --model ${shellWord(model)} --plan plan.json --prompt "Once upon a time"`;
  const { weightFormat, kvFormat, batch, contextTokens } = plan.workload;
  const isWide = weightFormat === "f32" && kvFormat === "f32";
  return {
    command,
    env: {},
    files: { "plan.json": `${JSON.stringify(plan, null, 2)}\n` },
    notes: [
      ...(isHubId(model) ? [`--model is a folder: download ${model} into one`] : []),
      `the plan has room for ${batch} sequence(s) of ${contextTokens} tokens: give --prompt once for each`,
      ...(isWide
        ? []
        : [
            `the plan counts weights in ${weightFormat} and a KV cache in ${kvFormat}: the example keeps the cache in f32, and on CPUs its weights too`,
          ]),
    ],
  };
};
