/**
 * Compares the planner's predictions with what bench/peers/llama_torch.py measured, and prints a Markdown table.
 *
 *   npm run build && node bench/planner-calibration.mjs bench/results/planner-calibration.json > bench/results/planner-calibration.md
 */
import { readFileSync } from "node:fs";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { parseSystem } from "../dist/machine/topology/index.js";
import { modelFromConfig, planModel } from "../dist/planner/index.js";

const file = flagsOf(
  import.meta.url,
  { allowPositionals: true },
  ({ positionals }) => positionals[0] ?? "bench/results/planner-calibration.json",
);
const { rows, torch, device, date } = JSON.parse(readFileSync(file, "utf8"));
const inventory = parseSystem("hgx-h200-8");

/** The shapes that the constants were fitted to. */
const isFitted = ({ model, tp }) => (tp === 1 ? model === "1b" || model === "8b" : model === "8b");

function predict(row) {
  const config = {
    model_type: "llama",
    hidden_size: row.hidden,
    num_hidden_layers: row.layers,
    num_attention_heads: row.heads,
    num_key_value_heads: row.kvHeads,
    head_dim: row.headDim,
    intermediate_size: row.mlp,
    vocab_size: row.vocab,
    max_position_embeddings: 131072,
    dtype: "bfloat16",
  };
  const { plans } = planModel({
    model: modelFromConfig(config),
    inventory,
    engine: "pytorch",
    constrain: { dp: 1, pp: 1, ep: 1, cp: 1, tp: row.tp },
    batch: row.batch,
    contextTokens: row.context,
    outputTokens: row.phase === "decode" ? 1 : 0,
  });
  const { estimates } = plans[0];
  return row.phase === "decode" ? estimates.decodeStepMs : estimates.prefillMs;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const percent = (fraction) => `${(fraction * 100).toFixed(1)} %`;
const results = rows.map((row) => {
  const predictedMs = predict(row);
  return { ...row, predictedMs, error: predictedMs / row.ms - 1, fitted: isFitted(row) };
});

const lines = [
  "# The planner's predictions against PyTorch",
  "",
  `Measured ${date} on ${device} (1, and 4 with NCCL all-reduces over NVLink, multicast off), PyTorch ${torch}, by`,
  "`bench/peers/llama_torch.py`: random-weight Llama shapes, bf16, static KV cache, decode steps replayed as CUDA graphs,",
  "medians of 20 (decode) or 5 (prefill). Predicted by `planModel` on the preset `hgx-h200-8`.",
  "",
  "The cost model's constants (`src/planner/cost/constants.ts`) were fitted to the shapes marked *; the others are the",
  "check. Before the fit, with constants from data sheets, papers and NCCL's sources alone, the median error over all rows",
  "was 22.0 % (decode 17 % on one GPU, 37 % on four; prefill 17 % and 12 %): the peer's unfused layers cost 58 us beside",
  "their bytes and FLOPs, where 24 us had been assumed.",
  "",
  "| rows | median error | largest | number |",
  "|---|---|---|---|",
];
const groups = [
  ["all", () => true],
  ["not fitted to", (row) => !row.fitted],
  ["decode, 1 GPU", (row) => row.phase === "decode" && row.tp === 1],
  ["decode, 4 GPUs", (row) => row.phase === "decode" && row.tp === 4],
  ["prefill, 1 GPU", (row) => row.phase === "prefill" && row.tp === 1],
  ["prefill, 4 GPUs", (row) => row.phase === "prefill" && row.tp === 4],
];
for (const [name, belongs] of groups) {
  const errors = results.filter(belongs).map((row) => Math.abs(row.error));
  if (errors.length > 0)
    lines.push(`| ${name} | ${percent(median(errors))} | ${percent(Math.max(...errors))} | ${errors.length} |`);
}
lines.push(
  "",
  "| model | tp | phase | batch | context | measured ms | predicted ms | error |",
  "|---|---|---|---|---|---|---|---|",
);
for (const row of results) {
  lines.push(
    `| ${row.model}${row.fitted ? "*" : ""} | ${row.tp} | ${row.phase} | ${row.batch} | ${row.context} | ${row.ms.toFixed(2)} | ${row.predictedMs.toFixed(2)} | ${row.error >= 0 ? "+" : ""}${percent(row.error)} |`,
  );
}
process.stdout.write(`${lines.join("\n")}\n`);
