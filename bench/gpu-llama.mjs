/**
 * sharded-llama on GPUs: first the tokens, then the speed. Run on a host with GPUs after `npm run build`:
 *   node bench/gpu-llama.mjs [--golden] [--bench] [--tp 1,2,4] [--repeats 5] [--steps 64] [--context 128,1024] [--tiny] [--backend nccl] [--out FILE.json]
 * --golden: the example's models on 1, 2 and 4 GPUs, by tensor and by pipeline parallelism, give the tokens that
 *   transformers gives (golden.json beside each).
 * --bench: a model of Llama 3.1 8B's shape with random bf16 weights: tokens a second at batch 1, and the share of time
 *   in collectives, which is what the same graph without them saves.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseLlamaConfig } from "chorale/formats";
import { launch } from "chorale/world";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";

const config = {
  options: {
    golden: { type: "boolean" },
    bench: { type: "boolean" },
    tp: { type: "string" },
    repeats: { type: "string" },
    steps: { type: "string" },
    context: { type: "string" },
    tiny: { type: "boolean" },
    backend: { type: "string" },
    out: { type: "string" },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values }) => ({
  ...values,
  sizes: integers(values.tp ?? "1,2,4", "--tp"),
  repeats: integer(values.repeats ?? "5", "--repeats"),
  steps: integer(values.steps ?? "64", "--steps"),
  contexts: integers(values.context ?? "128,1024", "--context"),
}));
const both = flags.golden !== true && flags.bench !== true;
const { sizes } = flags;
const most = Math.max(...sizes);
const example = new URL("../examples/sharded-llama/", import.meta.url);
const report = { date: new Date().toISOString(), golden: [], decode: [] };

/** Runs on `ranks` GPUs. Every launch has a deadline: nothing here can hang the machine. */
const onGpus = (ranks, module, data) =>
  launch({ ranks, module, data, backend: flags.backend ?? "nccl", timeoutMs: 40_000 });

const furthest = (actual, expected) =>
  Math.max(...expected.map((value, i) => Math.abs(value - (actual[i] ?? Infinity))));

async function golden() {
  const demo = JSON.parse(readFileSync(new URL("model/golden.json", example), "utf8"));
  const cases = [
    {
      name: "demo",
      model: fileURLToPath(new URL("model", example)),
      prompts: demo.map(({ prompt }) => ({ tokens: prompt })),
      greedy: demo.map((one) => one.greedy),
      logits: demo.map((one) => one.last_logits),
      layouts: [
        [1, 1],
        [2, 1],
        [4, 1],
        [1, 2],
        [1, 4],
        [2, 2],
      ],
      tolerance: 1e-3,
    },
  ];
  const saved = new URL("testing/transformers/", example);
  for (const name of readdirSync(saved).filter((entry) => !entry.includes("."))) {
    const one = JSON.parse(readFileSync(new URL(`${name}/golden.json`, saved), "utf8"));
    cases.push({
      name,
      model: fileURLToPath(new URL(name, saved)),
      prompts: [{ text: one.text }],
      greedy: [one.tokens],
      logits: [one.lastLogits],
      layouts: [
        [1, 1],
        [2, 2],
      ],
      tolerance: 1e-3,
    });
  }
  for (const { name, model, prompts, greedy, logits, layouts, tolerance } of cases) {
    for (const [tp, pp] of layouts) {
      if (tp * pp > most) continue;
      const row = { name, tp, pp, same: false, furthestLogit: undefined, tokensPerSecond: undefined };
      report.golden.push(row);
      try {
        const data = { model, tp, pp, prompts, maxNewTokens: greedy[0].length };
        const [results] = await onGpus(tp * pp, new URL("generate.ts", example), data);
        row.furthestLogit = Math.max(...results.map(({ lastLogits }, i) => furthest(lastLogits, logits[i])));
        const sameTokens = results.every(({ tokens }, i) => JSON.stringify(tokens) === JSON.stringify(greedy[i]));
        row.same = sameTokens && row.furthestLogit < tolerance;
        row.tokensPerSecond = results[0].tokensPerSecond;
      } catch (error) {
        row.error = String(error?.stack ?? error).slice(0, 1500);
      }
      const { same, furthestLogit, tokensPerSecond, error } = row;
      const speed = `${tokensPerSecond?.toFixed(0)} tokens/s`;
      console.log(
        `${same ? "ok  " : "FAIL"} ${name} tp ${tp} pp ${pp}: logits within ${furthestLogit}, ${speed}`,
        error ?? "",
      );
    }
  }
}

/** Llama 3.1 8B's shape, without its scaling of rope. */
const SHAPE = {
  architectures: ["LlamaForCausalLM"],
  hidden_size: 4096,
  intermediate_size: 14336,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  vocab_size: 128256,
  max_position_embeddings: 8192,
  rms_norm_eps: 1e-5,
  rope_theta: 500000,
  dtype: "bfloat16",
};
/** Of the same kind, for trying the program itself. */
const TINY = {
  ...SHAPE,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  vocab_size: 96,
};

async function bench(context) {
  const data = {
    config: parseLlamaConfig(flags.tiny ? TINY : SHAPE, "this benchmark's model"),
    dtype: "bf16",
    promptTokens: flags.tiny ? 4 : 128,
    context,
    steps: flags.steps,
    repeats: flags.repeats,
  };
  console.log(
    "context | tp | tokens/s | graph ms | awaited ms | norms apart ms | no graph ms | no collectives ms | share | GB/s/GPU | prefill tokens/s",
  );
  for (const tp of sizes) {
    try {
      const [row] = await onGpus(tp, new URL("gpu-llama/rank.ts", import.meta.url), data);
      report.decode.push(row);
      const ms = [row.graphMs, row.graphAwaitedMs, row.apartMs, row.eagerMs, row.silentMs]
        .map((value) => value.toFixed(3))
        .join(" | ");
      const share = `${(100 * row.collectiveShare).toFixed(1)} %`;
      const rates = `${row.weightGBPerSecond.toFixed(0)} | ${row.prefillTokensPerSecond.toFixed(0)}`;
      console.log(`${row.context} | ${tp} | ${row.tokensPerSecond.toFixed(1)} | ${ms} | ${share} | ${rates}`);
    } catch (error) {
      report.decode.push({ tp, error: String(error?.stack ?? error).slice(0, 1500) });
      console.log(`tp ${tp} failed: ${error?.stack ?? error}`);
    }
  }
}

if (both || flags.golden) await golden();
if (both || flags.bench) {
  for (const context of flags.contexts) await bench(context);
}
if (flags.out !== undefined) writeFileSync(flags.out, JSON.stringify(report, null, 1));
console.log(JSON.stringify(report));
process.exit(
  [...report.golden, ...report.decode].some(({ error, same }) => error !== undefined || same === false) ? 1 : 0,
);
