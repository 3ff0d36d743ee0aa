/**
 * From what people call a model to a preset: organisations, tuning suffixes, dates and quantizations are read off the
 * name (`Qwen/Qwen3-4B-Instruct-2507-FP8`). What a suffix says of the weights' format is kept.
 */

import { wordTable } from "../../core/index.ts";

/** What a name says: the keys to try, most exact first, and the format that its suffix names. */
export interface ReadName {
  readonly keys: readonly string[];
  readonly format: string | undefined;
  /** Why the format was taken, where the suffix does not say which. */
  readonly assumption: string | undefined;
  /** A tag of Ollama's library (`llama3.1:70b`), which holds quantized files, not the makers' checkpoints. */
  readonly isOllamaTag: boolean;
}

const OLLAMA_TAG = /^(?:(?:ollama|library)\/)?[a-z0-9][a-z0-9._-]*:[a-z0-9._-]+$/i;

/** Suffixes of quantized copies; the first that matches counts, and is cut off. */
const QUANTIZED: readonly (readonly [RegExp, string, string?])[] = [
  [/[-_.](?:quantized[-_.])?w8a8[-_]fp8(?:-dynamic)?$/, "fp8"],
  [/[-_.](?:quantized[-_.])?w4a16(?:[-_]g\d+)?$/, "w4a16"],
  [/[-_.](?:quantized[-_.])?w8a16$/, "w8a16"],
  [/[-_.](?:quantized[-_.])?w8a8(?:[-_]int8)?$/, "int8"],
  [/[-_](?:nvfp4(?:a16)?|fp4)(?:[-_]?qat)?$/, "nvfp4"],
  [/[-_]mxfp4$/, "mxfp4"],
  [/[-_]fp8(?:[-_](?:dynamic|kv|static|block|tensorwise|channelwise))*$/, "fp8"],
  [/[-_]gptq[-_](?:int)?8(?:[-_]?bit)?$/, "gptq-8-g128"],
  [/[-_]gptq(?:[-_](?:int)?4(?:[-_]?bit)?)?(?:[-_]g?128g?)?$/, "gptq-4-g128"],
  [/[-_]awq(?:[-_](?:int)?4(?:[-_]?bit)?)?(?:[-_](?:int4|g128))?$/, "awq-4-g128"],
  [/[-_](?:unsloth[-_])?bnb[-_]4bit$/, "nf4"],
  [/[-_]bnb[-_]8bit$/, "int8"],
  [/[-_]mlx[-_]?(?:4bit|4)?$/, "mlx-4-g64"],
  [/[-_](?:mlx[-_])?([3568])bit(?:[-_]mlx)?$/, "mlx-$1-g64"],
  [/[-_](?:mlx[-_])?4bit(?:[-_]mlx)?$/, "mlx-4-g64"],
  // `Qwen3-8B-Q4_K_M.gguf`, and `Qwen3-8B-GGUF:Q4_K_M` as llama.cpp and Ollama name a file of a repository.
  [/[-_.](?:gguf[-_])?(?:qat[-_])?(?:ud[-_])?(iq[1-4]_[a-z]{1,3}|q[2-8]_(?:[01]|k(?:_[sml])?))(?:[-_.]gguf)?$/, "$1"],
  // Unsloth's dynamic mixes, which give some tensors more bits than the mix of the same name.
  [/[-_.](?:gguf[-_])?ud[-_](q[345])_k_xl(?:[-_.]gguf)?$/, "$1_k_m", "a dynamic mix (UD): $1_k_m assumed"],
  [/[-_.](?:gguf[-_])?ud[-_](q[26])_k_xl(?:[-_.]gguf)?$/, "$1_k", "a dynamic mix (UD): $1_k assumed"],
  [/[-_.](?:gguf[-_])?ud[-_](q8)_k_xl(?:[-_.]gguf)?$/, "$1_0", "a dynamic mix (UD): $1_0 assumed"],
  [/[-_]gguf[-_](b?f16|f32)$/, "$1"],
  [/[-_]fp16$/, "f16"],
  [/[-_.]gguf$/, "q4_k_m", "a GGUF repository holds many files: q4_k_m assumed"],
  [/[-_]qat$/, "q4_0", "a model trained for quantization: q4_0 assumed"],
  [/[-_](?:int8|8bit)$/, "int8"],
  [/[-_]int4$/, "int4"],
  [/[-_]bf16$/, "bf16"],
];

/** What says how and when a model was tuned, not what shape it has: words, versions, months and dates. */
const SUFFIXES =
  /-(?:instruct|it|chat|hf|base|think|thinking|reasoning(?:-plus)?|preview|sft|dpo|rl|zero|terminus|exp|speciale|pt|alpha|beta|v\d+(?:\.\d+)?|dynamic|turbo|qat|1m|4k|8k|16k|32k|128k|tuned|hub|uncased|cased|0\d-20\d\d|1[0-2]-20\d\d|2[3-6](?:0[1-9]|1[0-2])|(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01]))(?=-|$)/g;

/** Other names of the same shapes. Keys are names without organisation, tuning and date. */
const ALIASES: Readonly<Record<string, string>> = wordTable({
  "codegemma-2b": "gemma-2b",
  "codegemma-7b": "gemma-7b",
  "medgemma-4b": "gemma-3-4b",
  "medgemma-27b": "gemma-3-27b",
  "shieldgemma-2b": "gemma-2-2b",
  "shieldgemma-9b": "gemma-2-9b",
  "llama-guard-3-8b": "llama-3.1-8b",
  "llama-guard-3-1b": "llama-3.2-1b",
  "llama-3.1-nemotron-70b": "llama-3.1-70b",
  "llama-3.1-nemotron-nano-8b": "llama-3.1-8b",
  "nvidia-nemotron-nano-9b-v2": "nemotron-nano-9b-v2",
  "nvidia-nemotron-nano-12b-v2": "nemotron-nano-12b-v2",
  "llama-4-scout-17b-16e": "llama-4-scout",
  "llama-4-maverick-17b-128e": "llama-4-maverick",
  // Of Ollama's library, where a colon stands before the size.
  "deepseek-r1-1.5b": "deepseek-r1-distill-qwen-1.5b",
  "deepseek-r1-7b": "deepseek-r1-distill-qwen-7b",
  "deepseek-r1-8b": "qwen3-8b",
  "deepseek-r1-14b": "deepseek-r1-distill-qwen-14b",
  "deepseek-r1-32b": "deepseek-r1-distill-qwen-32b",
  "deepseek-r1-70b": "deepseek-r1-distill-llama-70b",
  "deepseek-r1-671b": "deepseek-r1",
  "llama-3.1": "llama-3.1-8b",
  "llama-3.2": "llama-3.2-3b",
  "llama-3.3": "llama-3.3-70b",
  "qwen3-30b": "qwen3-30b-a3b",
  "qwen3-235b": "qwen3-235b-a22b",
  "qwen3-coder-30b": "qwen3-30b-a3b",
  "phi-4-14b": "phi-4",
  "command-r-35b": "command-r",
  // Made on the base of a model of another name.
  "qwen3-coder-next": "qwen3-next-80b-a3b",
  "kimi-k2.5": "kimi-k2-thinking",
  "kimi-k2.6": "kimi-k2-thinking",
  "kimi-k2.7-code": "kimi-k2-thinking",
  "qwen3.5-35b": "qwen3.5-35b-a3b",
  "qwen3.5-122b": "qwen3.5-122b-a10b",
  "qwen3.5-397b": "qwen3.5-397b-a17b",
  "qwen3.6-35b": "qwen3.6-35b-a3b",
  "gemma-4-26b": "gemma-4-26b-a4b",
  "nvidia-nemotron-3-nano-30b-a3b": "nemotron-3-nano-30b-a3b",
  "nemotron-3-nano": "nemotron-3-nano-30b-a3b",
  "nemotron-3-nano-30b": "nemotron-3-nano-30b-a3b",
  "nvidia-nemotron-3-super-120b-a12b": "nemotron-3-super-120b-a12b",
  "nemotron-3-super": "nemotron-3-super-120b-a12b",
  "nvidia-nemotron-3-ultra-550b-a55b": "nemotron-3-ultra-550b-a55b",
  "nemotron-3-ultra": "nemotron-3-ultra-550b-a55b",
  "mistral-large-3-675b": "mistral-large-3",
  "mistral-large-2512": "mistral-large-3",
  "ministral-3-3b-2512": "ministral-3-3b",
  "ministral-3-8b-2512": "ministral-3-8b",
  "ministral-3-14b-2512": "ministral-3-14b",
  "llava-v1.5-7b": "llava-1.5-7b",
  "llava-v1.5-13b": "llava-1.5-13b",
  "llava-v1.6-vicuna-7b": "llava-1.6-vicuna-7b",
  "llava-v1.6-vicuna-13b": "llava-1.6-vicuna-13b",
  "llava-v1.6-mistral-7b": "llava-1.6-mistral-7b",
  "llava-7b": "llava-1.6-mistral-7b",
  "llava-13b": "llava-1.6-vicuna-13b",
  "jamba-v0.1": "jamba-mini",
  "jamba-1.5-mini": "jamba-mini",
  "ai21-jamba-1.5-mini": "jamba-mini",
  "ai21-jamba-mini-1.5": "jamba-mini",
  "ai21-jamba-mini-1.6": "jamba-mini",
  "ai21-jamba-mini-1.7": "jamba-mini",
  "jamba-1.5-large": "jamba-large",
  "ai21-jamba-1.5-large": "jamba-large",
  "ai21-jamba-large-1.5": "jamba-large",
  "ai21-jamba-large-1.6": "jamba-large",
  "ai21-jamba-large-1.7": "jamba-large",
  "lfm2.5-1.2b": "lfm2-1.2b",
  "olmo-3.1-32b": "olmo-3-32b",
  "olmo-3.1-7b": "olmo-3-7b",
  "minimax-m2.1": "minimax-m2",
  "minimax-m2.5": "minimax-m2",
  "minimax-m2.7": "minimax-m2",
  "devstral-small-2-24b": "mistral-small-24b",
  "sarvam-m": "mistral-small-24b",
  "skywork-or1-32b": "qwen2.5-32b",
  "olympiccoder-32b": "qwen2.5-32b",
  "s1.1-32b": "qwen2.5-32b",
  deepswe: "qwen3-32b",
  "dolphin-2.9-llama3-8b": "llama-3-8b",
  "hermes-4-14b": "qwen3-14b",
  "hermes-4-70b": "llama-3.1-70b",
  "hermes-4-405b": "llama-3.1-405b",
  "vicuna-7b": "llama-2-7b",
  "vicuna-13b": "llama-2-13b",
  "zephyr-7b": "mistral-7b-v0.1",
  "openchat-3.5": "mistral-7b-v0.1",
  "openhermes-2.5-mistral-7b": "mistral-7b-v0.1",
  "e5-mistral-7b": "mistral-7b-v0.1",
  "mathstral-7b": "mistral-7b-v0.3",
  "mistral-large": "mistral-large-2",
  "mistral-large-2407": "mistral-large-2",
  "mistral-large-instruct-2407": "mistral-large-2",
  "mistral-large-2411": "mistral-large-2",
  "mistral-small-2409": "mistral-small-22b",
  "mistral-small-2501": "mistral-small-24b",
  "mistral-small-2503": "mistral-small-3.1-24b",
  "mistral-small-2506": "mistral-small-3.2-24b",
  "mistral-small": "mistral-small-24b",
  "mistral-nemo-12b": "mistral-nemo",
  "devstral-small-2505": "devstral-small",
  "qwen2.5-coder-0.5b": "qwen2.5-0.5b",
  "qwen2.5-coder-1.5b": "qwen2.5-1.5b",
  "qwen2.5-coder-3b": "qwen2.5-3b",
  "qwen2.5-coder-7b": "qwen2.5-7b",
  "qwen2.5-coder-14b": "qwen2.5-14b",
  "qwen2.5-coder-32b": "qwen2.5-32b",
  "qwen2.5-math-1.5b": "qwen2.5-1.5b",
  "qwen2.5-math-7b": "qwen2.5-7b",
  "qwen2.5-math-72b": "qwen2.5-72b",
  "qvq-72b": "qwen2-vl-72b",
  "qwen3-embedding-0.6b": "qwen3-0.6b",
  "qwen3-embedding-4b": "qwen3-4b",
  "qwen3-reranker-0.6b": "qwen3-0.6b",
  "qwen3-reranker-4b": "qwen3-4b",
  "qwen3-reranker-8b": "qwen3-embedding-8b",
  "deepseek-v2.5": "deepseek-v2",
  "deepseek-coder-v2": "deepseek-v2",
  "deepseek-coder-v2-lite": "deepseek-v2-lite",
  "deepseek-v3.1-terminus": "deepseek-v3.1",
  "phi-3-mini-4k": "phi-3-mini",
  "phi-3.5-mini": "phi-3-mini-128k",
  "glm-z1-9b": "glm-4-9b",
  "glm-z1-32b": "glm-4-32b",
  "glm-4.5v": "glm-4.5-air",
  "granite-3.0-2b": "granite-3.3-2b",
  "granite-3.1-2b": "granite-3.3-2b",
  "granite-3.2-2b": "granite-3.3-2b",
  "granite-3.0-8b": "granite-3.3-8b",
  "granite-3.1-8b": "granite-3.3-8b",
  "granite-3.2-8b": "granite-3.3-8b",
  "bge-large-en": "bert-large",
  "bge-base-en": "bert-base",
  "bge-reranker-v2-m3": "bge-m3",
  "bert-base-uncased": "bert-base",
  "bert-large-uncased": "bert-large",
  "e5-large": "bert-large",
  "e5-base": "bert-base",
  "e5-small": "bge-small-en",
  "multilingual-e5-large": "xlm-roberta-large",
  "multilingual-e5-base": "xlm-roberta-base",
  "mxbai-embed-large": "bert-large",
  "snowflake-arctic-embed-l": "bert-large",
  "snowflake-arctic-embed-m": "bert-base",
  "gte-large": "bert-large",
  "gte-base": "bert-base",
  starcoderbase: "starcoder",
  bloomz: "bloom",
  "bloom-176b": "bloom",
  "bloomz-560m": "bloom-560m",
  "bloomz-3b": "bloom-3b",
  "bloomz-7b1": "bloom-7b1",
  "yi-1.5-6b": "yi-6b",
  "yi-1.5-9b": "yi-9b",
  "yi-1.5-34b": "yi-34b",
  "internlm2-7b": "internlm2.5-7b",
  "internlm2-20b": "internlm2.5-20b",
  "internlm2_5-7b": "internlm2.5-7b",
  "internlm3-8b": "llama-3.1-8b",
  "aya-23-8b": "aya-expanse-8b",
  "aya-23-35b": "command-r",
  "dbrx-instruct": "dbrx",
  "gpt-oss": "gpt-oss-20b",
  "gpt-oss-safeguard-20b": "gpt-oss-20b",
  "gpt-oss-safeguard-120b": "gpt-oss-120b",
  gptj: "gpt-j-6b",
});

/** `llama3.1:8b-instruct-q4_K_M`, as Ollama writes it, and underscores for dots, as NVIDIA does. */
function plainName(text: string): string {
  return text
    .trim()
    .toLowerCase()
    .replace(/^.*\//, "")
    .replace(/\s+/g, "-")
    .replace(/^qwen-(\d)/, "qwen$1")
    .replace(/^(?:meta-|c4ai-)/, "")
    .replace(/^llama-?(\d)/, "llama-$1")
    .replace(/:latest$/, "")
    .replace(/:/g, "-")
    .replace(/(?<![-_.]q)(\d)_(\d)(?=b(?:-|$)|[-_]nemotron|-\d+b|$)/, "$1.$2")
    .replace(/^(olmo-[23])-\d{4}-/, "$1-")
    .replace(/^mixtral-(\d+x\d+b)-v\d\.\d/, "mixtral-$1")
    .replace(/^(qwen\d(?:\.\d)?):?-?/, "$1-")
    .replace(/^(phi|gemma)-?(\d)/, "$1-$2");
}

/** The name, then without each suffix, then without each pair, and so on: what is said stays as long as it is known. */
function withoutSuffixes(name: string): string[] {
  const cuts = [...name.matchAll(SUFFIXES)]
    .slice(0, 6)
    .map(({ index, 0: text }) => [index, index + text.length] as const);
  return Array.from({ length: 1 << cuts.length }, (_, mask) => mask)
    .sort((a, b) => bits(a) - bits(b) || a - b)
    .map((mask) =>
      cuts.reduceRight(
        (text, [from, to], at) => ((mask >> at) & 1 ? text.slice(0, from) + text.slice(to) : text),
        name,
      ),
    );
}

const bits = (mask: number) => mask.toString(2).replaceAll("0", "").length;

/** Reads a name. */
export function readName(text: string): ReadName {
  // AMD's and NVIDIA's previews of a quantized copy say so last.
  let name = plainName(text).replace(/((?:nvfp4|fp4|mxfp4|fp8|int4|int8|awq|gptq)(?:[-_]kv)?)[-_]preview$/, "$1");
  let format: string | undefined;
  let assumption: string | undefined;
  for (const [pattern, target, why] of QUANTIZED) {
    const match = pattern.exec(name);
    if (match === null || match.index === 0) continue;
    format = target.replace("$1", match[1] ?? "");
    assumption = why?.replaceAll("$1", match[1] ?? "");
    name = name.slice(0, match.index);
    break;
  }
  const named = withoutSuffixes(name);
  const keys = named.flatMap((key) => (Object.hasOwn(ALIASES, key) ? [key, ALIASES[key] ?? key] : [key]));
  return { keys: [...new Set(keys)], format, assumption, isOllamaTag: OLLAMA_TAG.test(text.trim()) };
}

/**
 * The preset that a tuned model's name contains (`Hermes-3-Llama-3.1-8B`), where the name says one size only; the longest
 * where several are contained.
 */
export function containedPreset(text: string, presets: readonly string[]): string | undefined {
  const name = plainName(text);
  const sizes = name.match(/\d+(?:x\d+)?(?:\.\d+)?b(?![a-z0-9])/g) ?? [];
  if (sizes.length !== 1) return undefined;
  return presets
    .filter((preset) => preset.includes(sizes[0] ?? "?") && /\d+b/.test(preset))
    .filter((preset) => new RegExp(`(^|-)${preset.replace(/\./g, "\\.")}(-|$)`).test(name))
    .sort((a, b) => b.length - a.length)[0];
}
