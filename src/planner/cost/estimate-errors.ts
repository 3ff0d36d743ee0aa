/**
 * Written by bench/planner-fit.mjs; do not edit. Ratios of estimate to published speed by engine and what is estimated, of
 * points that the constants were not fitted to: the ends of the range that holds 86 % of them, and how many points.
 */
export const ESTIMATE_ERRORS: Readonly<Record<string, readonly [low: number, high: number, count: number]>> = {
  "llama.cpp decode": [0.844, 1.2, 27],
  "llama.cpp prefill": [0.763, 1.27, 8],
  "llama.cpp serving": [0.792, 1.22, 5],
  "pytorch decode": [0.892, 1.15, 11],
  "tensorrt-llm prefill": [0.792, 1.28, 7],
  "tensorrt-llm serving": [0.763, 1.22, 103],
  training: [0.8, 1.53, 32],
  "vllm decode": [0.905, 1.11, 12],
  "vllm prefill": [0.792, 1.22, 3],
  "vllm serving": [0.848, 1.22, 23],
};
