/** A model of which only the parameter count is known: a dense Llama shape of that size, and it says so. */
import { InvalidArgumentError, wordTable } from "../../core/index.ts";
import { modelFromConfig } from "./from-config.ts";
import { countParameters, type ModelSpec } from "./spec.ts";

/** [parameters, hidden, layers, heads, KV heads, head_dim, vocabulary]: published Llama-family shapes, and GPT-2's below 1 B. */
const SHAPES: readonly (readonly [number, number, number, number, number, number, number])[] = [
  [10e6, 256, 6, 4, 4, 64, 8192],
  [50e6, 512, 8, 8, 8, 64, 32_000],
  [125e6, 768, 12, 12, 12, 64, 32_000],
  [355e6, 1024, 24, 16, 16, 64, 32_000],
  [1.24e9, 2048, 16, 32, 8, 64, 128_256],
  [3.21e9, 3072, 28, 24, 8, 128, 128_256],
  [8.03e9, 4096, 32, 32, 8, 128, 128_256],
  [14.8e9, 5120, 40, 40, 8, 128, 128_256],
  [32.8e9, 5120, 64, 40, 8, 128, 128_256],
  [70.6e9, 8192, 80, 64, 8, 128, 128_256],
  [123e9, 12_288, 88, 96, 8, 128, 128_256],
  [405.9e9, 16_384, 126, 128, 8, 128, 128_256],
  [1e12, 20_480, 160, 160, 8, 128, 128_256],
];

const SUFFIX: Readonly<Record<string, number>> = wordTable({ K: 1e3, M: 1e6, B: 1e9, T: 1e12 });

/** Reads `70B`, `1.5b`, `350M`, `7000M` or a plain count of at least a million; undefined for anything else. */
export function parseParameterCount(text: string): number | undefined {
  const match = /^(\d{1,15}(?:\.\d{1,6})?)\s*([KMBT]?)$/i.exec(text.trim());
  if (match === null) return undefined;
  const count = Number(match[1]) * (SUFFIX[(match[2] ?? "").toUpperCase()] ?? 1);
  return Number.isFinite(count) ? Math.round(count) : undefined;
}

/**
 * Assumes a dense Llama-shaped model of about `count` parameters: the nearest published shape, its MLP widened or
 * narrowed to meet the count.
 * @throws InvalidArgumentError outside of 1 million to 10 trillion
 * @example
 * modelFromCount(70e9).assumptions[0] // what was assumed
 */
export function modelFromCount(count: number, text: string = String(count)): ModelSpec {
  if (!Number.isFinite(count) || count < 1e6 || count > 1e13) {
    throw new InvalidArgumentError("model", text, "a parameter count from 1M to 10T");
  }
  const distance = (parameters: number) => Math.abs(Math.log(parameters / count));
  const [, hidden, layers, heads, kvHeads, headDim, vocab] = SHAPES.reduce((a, b) =>
    distance(b[0]) < distance(a[0]) ? b : a,
  );
  const make = (numLayers: number, intermediate: number) =>
    modelFromConfig(
      {
        model_type: "llama",
        hidden_size: hidden,
        num_hidden_layers: numLayers,
        num_attention_heads: heads,
        num_key_value_heads: kvHeads,
        head_dim: headDim,
        intermediate_size: intermediate,
        vocab_size: count < 30e6 ? Math.min(vocab, 2048) : vocab,
        max_position_embeddings: 131_072,
        dtype: "bfloat16",
      },
      `count ${text}`,
      text,
    );
  const grain = hidden >= 2048 ? 256 : 64;
  // Layers follow the count where the shape's own number would make the MLP absurd (below a half, above six widths).
  let numLayers: number = layers;
  const widthFor = (n: number) => {
    const rest = countParameters(make(n, grain)).total - 3 * hidden * grain * n;
    return (count - rest) / (3 * hidden * n);
  };
  while (numLayers > 1 && widthFor(numLayers) < hidden / 2) numLayers--;
  while (numLayers < 1024 && widthFor(numLayers) > 6 * hidden) numLayers++;
  const intermediate = Math.max(grain, Math.round(widthFor(numLayers) / grain) * grain);
  const spec = make(numLayers, intermediate);
  const assumption =
    `only a count was given: a dense Llama shape of ${numLayers} layers, hidden size ${hidden}, ${heads} heads, ` +
    `${kvHeads} KV heads, MLP ${intermediate}, vocabulary ${spec.vocabSize}, bf16, was assumed`;
  return { ...spec, assumptions: [assumption] };
}
