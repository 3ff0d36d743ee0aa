import { wordTable } from "../../core/index.ts";

/**
 * Ids of presets on the Hugging Face Hub, for the command lines of engines that download by id. Where a family has a base
 * and a tuned model of one shape, the tuned one: it is what is served. Presets that are not listed have no id known here.
 */
const IDS: Readonly<Record<string, string>> = wordTable({
  gpt2: "openai-community/gpt2",
  "llama-2-7b": "meta-llama/Llama-2-7b-chat-hf",
  "llama-2-13b": "meta-llama/Llama-2-13b-chat-hf",
  "llama-2-70b": "meta-llama/Llama-2-70b-chat-hf",
  "llama-3-8b": "meta-llama/Meta-Llama-3-8B-Instruct",
  "llama-3-70b": "meta-llama/Meta-Llama-3-70B-Instruct",
  "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
  "llama-3.1-70b": "meta-llama/Llama-3.1-70B-Instruct",
  "llama-3.1-405b": "meta-llama/Llama-3.1-405B-Instruct",
  "llama-3.2-1b": "meta-llama/Llama-3.2-1B-Instruct",
  "llama-3.2-3b": "meta-llama/Llama-3.2-3B-Instruct",
  "llama-3.3-70b": "meta-llama/Llama-3.3-70B-Instruct",
  "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
  "llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
  "qwen2.5-0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
  "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
  "qwen2.5-3b": "Qwen/Qwen2.5-3B-Instruct",
  "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
  "qwen2.5-14b": "Qwen/Qwen2.5-14B-Instruct",
  "qwen2.5-32b": "Qwen/Qwen2.5-32B-Instruct",
  "qwen2.5-72b": "Qwen/Qwen2.5-72B-Instruct",
  "qwen3-0.6b": "Qwen/Qwen3-0.6B",
  "qwen3-1.7b": "Qwen/Qwen3-1.7B",
  "qwen3-4b": "Qwen/Qwen3-4B",
  "qwen3-8b": "Qwen/Qwen3-8B",
  "qwen3-14b": "Qwen/Qwen3-14B",
  "qwen3-32b": "Qwen/Qwen3-32B",
  "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
  "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
  "qwen3-coder-480b-a35b": "Qwen/Qwen3-Coder-480B-A35B-Instruct",
  "qwen3-next-80b-a3b": "Qwen/Qwen3-Next-80B-A3B-Instruct",
  "mistral-7b-v0.1": "mistralai/Mistral-7B-Instruct-v0.1",
  "mistral-7b-v0.3": "mistralai/Mistral-7B-Instruct-v0.3",
  "mistral-nemo": "mistralai/Mistral-Nemo-Instruct-2407",
  "mistral-small-24b": "mistralai/Mistral-Small-24B-Instruct-2501",
  "mistral-large-2": "mistralai/Mistral-Large-Instruct-2411",
  "mixtral-8x7b": "mistralai/Mixtral-8x7B-Instruct-v0.1",
  "mixtral-8x22b": "mistralai/Mixtral-8x22B-Instruct-v0.1",
  "gemma-2-2b": "google/gemma-2-2b-it",
  "gemma-2-9b": "google/gemma-2-9b-it",
  "gemma-2-27b": "google/gemma-2-27b-it",
  "gemma-3-1b": "google/gemma-3-1b-it",
  "gemma-3-4b": "google/gemma-3-4b-it",
  "gemma-3-12b": "google/gemma-3-12b-it",
  "gemma-3-27b": "google/gemma-3-27b-it",
  "phi-4": "microsoft/phi-4",
  "phi-3-mini": "microsoft/Phi-3-mini-4k-instruct",
  "deepseek-v2": "deepseek-ai/DeepSeek-V2-Chat",
  "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite-Chat",
  "deepseek-v3": "deepseek-ai/DeepSeek-V3",
  "deepseek-v3.1": "deepseek-ai/DeepSeek-V3.1",
  "deepseek-r1": "deepseek-ai/DeepSeek-R1",
  "kimi-k2": "moonshotai/Kimi-K2-Instruct",
  "kimi-k2-thinking": "moonshotai/Kimi-K2-Thinking",
  "gpt-oss-20b": "openai/gpt-oss-20b",
  "gpt-oss-120b": "openai/gpt-oss-120b",
  "glm-4.5": "zai-org/GLM-4.5",
  "glm-4.5-air": "zai-org/GLM-4.5-Air",
  "minimax-m2": "MiniMaxAI/MiniMax-M2",
  "mistral-7b": "mistralai/Mistral-7B-Instruct-v0.3",
  "mistral-7b-v0.2": "mistralai/Mistral-7B-Instruct-v0.2",
  "mistral-small-3.1-24b": "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
  "mistral-small-3.2-24b": "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
  "magistral-small": "mistralai/Magistral-Small-2506",
  "ministral-8b": "mistralai/Ministral-8B-Instruct-2410",
  "codestral-22b": "mistralai/Codestral-22B-v0.1",
  "llama-3.2-11b-vision": "meta-llama/Llama-3.2-11B-Vision-Instruct",
  "llama-3.2-90b-vision": "meta-llama/Llama-3.2-90B-Vision-Instruct",
  "llama-3.3-nemotron-super-49b": "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5",
  "tinyllama-1.1b": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
  "codellama-34b": "meta-llama/CodeLlama-34b-Instruct-hf",
  "qwen2-7b": "Qwen/Qwen2-7B-Instruct",
  "qwen2-72b": "Qwen/Qwen2-72B-Instruct",
  "qwen2-57b-a14b": "Qwen/Qwen2-57B-A14B-Instruct",
  "qwq-32b": "Qwen/QwQ-32B",
  ...Object.fromEntries(
    ["3B", "7B", "32B", "72B"].map((size) => [`qwen2.5-vl-${size.toLowerCase()}`, `Qwen/Qwen2.5-VL-${size}-Instruct`]),
  ),
  "qwen3-embedding-8b": "Qwen/Qwen3-Embedding-8B",
  "qwen3-4b-2507": "Qwen/Qwen3-4B-Instruct-2507",
  "qwen3-30b-a3b-2507": "Qwen/Qwen3-30B-A3B-Instruct-2507",
  "qwen3-235b-a22b-2507": "Qwen/Qwen3-235B-A22B-Instruct-2507",
  "qwen3-coder-30b-a3b": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
  "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
  "qwen3-vl-30b-a3b": "Qwen/Qwen3-VL-30B-A3B-Instruct",
  "qwen3-vl-235b-a22b": "Qwen/Qwen3-VL-235B-A22B-Instruct",
  ...Object.fromEntries(
    ["Qwen-1.5B", "Qwen-7B", "Qwen-14B", "Qwen-32B", "Llama-8B", "Llama-70B"].map((base) => [
      `deepseek-r1-distill-${base.toLowerCase()}`,
      `deepseek-ai/DeepSeek-R1-Distill-${base}`,
    ]),
  ),
  "deepseek-r1-0528-qwen3-8b": "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
  "deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2-Exp",
  "gemma-3-270m": "google/gemma-3-270m-it",
  "gemma-3n-e2b": "google/gemma-3n-E2B-it",
  "gemma-3n-e4b": "google/gemma-3n-E4B-it",
  "gemma-7b": "google/gemma-7b-it",
  "phi-4-mini": "microsoft/Phi-4-mini-instruct",
  "phi-3-mini-128k": "microsoft/Phi-3-mini-128k-instruct",
  "phi-3.5-mini": "microsoft/Phi-3.5-mini-instruct",
  "phi-3.5-moe": "microsoft/Phi-3.5-MoE-instruct",
  "phi-2": "microsoft/phi-2",
  "command-r": "CohereLabs/c4ai-command-r-v01",
  "command-r-08-2024": "CohereLabs/c4ai-command-r-08-2024",
  "command-r-plus": "CohereLabs/c4ai-command-r-plus",
  "command-a": "CohereLabs/c4ai-command-a-03-2025",
  "aya-expanse-8b": "CohereLabs/aya-expanse-8b",
  "aya-expanse-32b": "CohereLabs/aya-expanse-32b",
  "glm-4-32b": "zai-org/GLM-4-32B-0414",
  "glm-4.6": "zai-org/GLM-4.6",
  "granite-3.3-2b": "ibm-granite/granite-3.3-2b-instruct",
  "granite-3.3-8b": "ibm-granite/granite-3.3-8b-instruct",
  "granite-4.0-h-small": "ibm-granite/granite-4.0-h-small",
  "granite-4.0-h-tiny": "ibm-granite/granite-4.0-h-tiny",
  "falcon-7b": "tiiuae/falcon-7b-instruct",
  "falcon-40b": "tiiuae/falcon-40b-instruct",
  "olmo-2-7b": "allenai/OLMo-2-1124-7B-Instruct",
  "olmo-2-13b": "allenai/OLMo-2-1124-13B-Instruct",
  "olmo-2-32b": "allenai/OLMo-2-0325-32B-Instruct",
  "olmo-3-7b": "allenai/Olmo-3-7B-Instruct",
  "olmoe-1b-7b": "allenai/OLMoE-1B-7B-0924-Instruct",
  "smollm2-1.7b": "HuggingFaceTB/SmolLM2-1.7B-Instruct",
  "smollm3-3b": "HuggingFaceTB/SmolLM3-3B",
  "starcoder2-3b": "bigcode/starcoder2-3b",
  "starcoder2-7b": "bigcode/starcoder2-7b",
  "starcoder2-15b": "bigcode/starcoder2-15b",
  "gpt-j-6b": "EleutherAI/gpt-j-6b",
  "gpt-neox-20b": "EleutherAI/gpt-neox-20b",
  "seed-oss-36b": "ByteDance-Seed/Seed-OSS-36B-Instruct",
  "exaone-4.0-32b": "LGAI-EXAONE/EXAONE-4.0-32B",
  "bge-m3": "BAAI/bge-m3",
  "bge-small-en": "BAAI/bge-small-en-v1.5",
  "bert-base": "google-bert/bert-base-uncased",
  "xlm-roberta-large": "FacebookAI/xlm-roberta-large",
  ...Object.fromEntries(
    ["125m", "1.3b", "2.7b", "6.7b", "13b", "30b", "66b"].map((size) => [`opt-${size}`, `facebook/opt-${size}`]),
  ),
});

/** Repositories of quantized weights by their makers, or by who is known for them, for presets and formats; GGUF apart. */
const QUANTIZED: Readonly<Record<string, Readonly<Record<string, string>>>> = wordTable({
  "llama-3.1-8b": {
    "awq-4-g128": "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4",
    "gptq-4-g128": "hugging-quants/Meta-Llama-3.1-8B-Instruct-GPTQ-INT4",
    fp8: "nvidia/Llama-3.1-8B-Instruct-FP8",
  },
  "llama-3.1-70b": {
    "awq-4-g128": "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4",
    "gptq-4-g128": "hugging-quants/Meta-Llama-3.1-70B-Instruct-GPTQ-INT4",
    fp8: "nvidia/Llama-3.1-70B-Instruct-FP8",
  },
  "llama-3.1-405b": {
    "awq-4-g128": "hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4",
    "gptq-4-g128": "hugging-quants/Meta-Llama-3.1-405B-Instruct-GPTQ-INT4",
    fp8: "nvidia/Llama-3.1-405B-Instruct-FP8",
    nvfp4: "nvidia/Llama-3.1-405B-Instruct-FP4",
  },
  "llama-3.3-70b": { fp8: "nvidia/Llama-3.3-70B-Instruct-FP8", nvfp4: "nvidia/Llama-3.3-70B-Instruct-FP4" },
  "deepseek-r1": { nvfp4: "nvidia/DeepSeek-R1-FP4" },
  ...Object.fromEntries(
    ["0.5B", "1.5B", "3B", "7B", "14B", "32B", "72B"].map((size) => [
      `qwen2.5-${size.toLowerCase()}`,
      {
        "awq-4-g128": `Qwen/Qwen2.5-${size}-Instruct-AWQ`,
        "gptq-4-g128": `Qwen/Qwen2.5-${size}-Instruct-GPTQ-Int4`,
        "gptq-8-g128": `Qwen/Qwen2.5-${size}-Instruct-GPTQ-Int8`,
        "gguf:q4_k_m": `Qwen/Qwen2.5-${size}-Instruct-GGUF`,
        "gguf:q8_0": `Qwen/Qwen2.5-${size}-Instruct-GGUF`,
      },
    ]),
  ),
  ...Object.fromEntries(
    ["4B", "8B", "14B", "32B"].map((size) => [
      `qwen3-${size.toLowerCase()}`,
      {
        "awq-4-g128": `Qwen/Qwen3-${size}-AWQ`,
        "fp8-block128": `Qwen/Qwen3-${size}-FP8`,
        "gguf:q4_k_m": `Qwen/Qwen3-${size}-GGUF`,
        "gguf:q8_0": `Qwen/Qwen3-${size}-GGUF`,
      },
    ]),
  ),
  "gpt-oss-20b": { "gguf:mxfp4": "ggml-org/gpt-oss-20b-GGUF" },
  "gpt-oss-120b": { "gguf:mxfp4": "ggml-org/gpt-oss-120b-GGUF" },
});

/** Says whether a name is one of the Hub: `owner/name`. */
export const isHubId = (text: string): boolean => /^[\w.-]+\/[\w.-]+$/.test(text);

/** A repository of a preset's weights in a format; undefined where none is known here. */
export function quantizedHubId(preset: string, format: string): string | undefined {
  const known = QUANTIZED[preset];
  return known !== undefined && Object.hasOwn(known, format) ? known[format] : undefined;
}

/** The Hub id of what a user called a model: the id itself where it is one, else the preset's; undefined where none is known. */
export function hubId(text: string, preset: string): string | undefined {
  return isHubId(text) ? text : IDS[preset];
}

/** Presets whose id is known. */
export const HUB_PRESETS: readonly string[] = Object.keys(IDS);
