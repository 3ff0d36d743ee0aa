/** Written by bench/planner-accuracy.mjs; do not edit. Ratios of estimate to published by engine and what is estimated: 10th and 90th percentile, and their number. */
export const ESTIMATE_ERRORS: Readonly<Record<string, readonly [low: number, high: number, count: number]>> = {
  "llama.cpp decode": [0.916, 1.08, 27],
  "llama.cpp prefill": [0.991, 1.02, 8],
  "llama.cpp serving": [0.666, 1.37, 5],
  "pytorch decode": [0.883, 1.17, 11],
  "tensorrt-llm prefill": [0.92, 1.16, 7],
  "tensorrt-llm serving": [0.85, 1.18, 103],
  training: [0.918, 1.06, 22],
  "vllm decode": [0.941, 1.04, 12],
  "vllm prefill": [0.948, 1.07, 3],
  "vllm serving": [0.916, 1.11, 23],
};
