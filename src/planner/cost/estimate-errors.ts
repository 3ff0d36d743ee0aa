/**
 * Written by bench/planner-fit.mjs; do not edit. Ratios of estimate to published speed by engine and what is estimated, of
 * points that the constants were not fitted to: the ends of the range that holds 86 % of them, how many points, and of which
 * generations of hardware.
 */
export interface EstimateErrors {
  readonly low: number;
  readonly high: number;
  readonly points: number;
  readonly generations: readonly string[];
}

export const ESTIMATE_ERRORS: Readonly<Record<string, EstimateErrors>> = {
  "llama.cpp decode": {
    low: 0.864,
    high: 1.2,
    points: 27,
    generations: ["ada", "ampere", "ampere-rtx", "apple", "apple-m3", "hopper-pcie", "spark"],
  },
  "llama.cpp prefill": {
    low: 0.798,
    high: 1.22,
    points: 8,
    generations: ["ada", "ampere", "apple", "apple-m3", "hopper-pcie", "spark"],
  },
  "llama.cpp serving": {
    low: 0.776,
    high: 1.27,
    points: 5,
    generations: ["spark"],
  },
  "pytorch decode": {
    low: 0.866,
    high: 1.17,
    points: 11,
    generations: ["ampere", "cdna2"],
  },
  "tensorrt-llm prefill": {
    low: 0.8,
    high: 1.28,
    points: 7,
    generations: ["ada", "ampere", "hopper"],
  },
  "tensorrt-llm serving": {
    low: 0.765,
    high: 1.22,
    points: 103,
    generations: ["ada", "ampere", "blackwell", "blackwell-rtx", "hopper"],
  },
  training: {
    low: 0.819,
    high: 1.27,
    points: 32,
    generations: ["ampere", "blackwell", "hopper", "neuron", "tpu"],
  },
  "vllm decode": {
    low: 0.904,
    high: 1.11,
    points: 12,
    generations: ["ampere", "cdna3"],
  },
  "vllm prefill": {
    low: 0.8,
    high: 1.22,
    points: 3,
    generations: ["gaudi2"],
  },
  "vllm serving": {
    low: 0.848,
    high: 1.22,
    points: 23,
    generations: ["cdna3", "gaudi2", "gaudi3"],
  },
};

/** The same of 91 points on hardware that no other source speaks of, estimated without their source. */
export const UNMEASURED_ERRORS = { low: 0.785, high: 1.21 } as const;
