/**
 * What bench/planner-fit.mjs fits: constants of the planner's model of time, each with the value that it is held to (a data
 * sheet, a paper, what was measured here, or what neighbouring parts reach) and, where it is not the usual one, how far
 * measurements may pull it away: the standard deviation of its logarithm. Names as src/planner/cost/profiles.ts explains.
 */

/** How far measurements may pull a constant, unless its row says so. */
export const USUAL_SPREAD = 0.25;

/** @type {Readonly<Record<string, number | readonly [prior: number, spread: number]>>} */
export const PRIORS = {
  // Every engine
  sharpness: [3, 0.5],
  pipelineLoss: [0.15, 0.5],
  // llama.cpp: quantized weights stream near the copy rate on gaming cards, less on HBM, whose bandwidth few warps fill.
  "llama.cpp/hopper-pcie/memoryBandwidth": 0.6,
  "llama.cpp/hopper-pcie/packedBandwidth": 0.85,
  "llama.cpp/ampere/memoryBandwidth": 0.6,
  "llama.cpp/ampere/packedBandwidth": 0.85,
  "llama.cpp/ada/memoryBandwidth": 0.87,
  "llama.cpp/ada/packedBandwidth": 0.88,
  "llama.cpp/ampere-rtx/memoryBandwidth": 0.87,
  "llama.cpp/ampere-rtx/packedBandwidth": 0.85,
  "llama.cpp/apple/memoryBandwidth": 0.87,
  "llama.cpp/apple/packedBandwidth": 0.92,
  "llama.cpp/spark/memoryBandwidth": 0.87,
  "llama.cpp/spark/packedBandwidth": 0.9,
  "llama.cpp/spark/kvBandwidth": 0.6,
  "llama.cpp/spark/matmulPacked": 0.35,
  "llama.cpp/spark/expertOverheadUs": 20,
  "llama.cpp/spark/grouped": 0.4,
  // Its benchmarks decode sequences that are alike, which choose the same experts.
  "llama.cpp/routing": [0.6, 0.5],
  "llama.cpp/groupedFillRows": [8, 0.5],
  // Some 17 kernels a layer, 4 to 5 us each: the NVIDIA points are of early 2024, before CUDA graphs were the rule.
  "llama.cpp/layerOverheadUs": [80, 0.5],
  "llama.cpp/apple/layerOverheadUs": [60, 0.5],
  // Masks, shifts, conversions and scales of a 4-bit weight by its Metal kernels; 4-bit files decode at half of f16's bytes/s.
  "llama.cpp/apple/unpackOperations": [8, 0.5],
  "llama.cpp/apple-m3/unpackOperations": [3, 0.5],
  // No dot products of bytes: weights are expanded as on Apple's first GPUs.
  "llama.cpp/maxwell/unpackOperations": [8, 0.5],
  // Measured in 2025, with CUDA graphs.
  "llama.cpp/spark/layerOverheadUs": [40, 0.5],
  "llama.cpp/hopper-pcie/matmul16": 0.25,
  "llama.cpp/ampere/matmul16": 0.4,
  // Of the rate with f16 sums, which GeForce cards do not halve.
  "llama.cpp/ada/matmul16": 0.4,
  "llama.cpp/ampere-rtx/matmul16": 0.4,
  "llama.cpp/hopper-pcie/matmulPacked": 0.2,
  "llama.cpp/ampere/matmulPacked": 0.35,
  "llama.cpp/ada/matmulPacked": 0.35,
  "llama.cpp/ampere-rtx/matmulPacked": 0.5,
  "llama.cpp/apple/matmul16": 0.68,
  "llama.cpp/apple/matmulPacked": 0.62,
  // vLLM
  "vllm/stepOverheadUs": [2000, 0.4],
  "vllm/ampere/packedBandwidth": 0.85,
  "vllm/ampere/layerOverheadUs": [30, 0.4],
  "vllm/ampere/memoryBandwidth": [0.82, 0.15],
  "vllm/ampere/kvBandwidth": 0.7,
  "vllm/cdna3/stepOverheadUs": [700, 0.5],
  "vllm/cdna3/layerOverheadUs": [35, 0.4],
  "vllm/cdna3/memoryBandwidth": 0.65,
  "vllm/cdna3/kvBandwidth": 0.55,
  "vllm/cdna3/matmul8": 0.4,
  "vllm/cdna3/sequenceOverheadUs": [20, 0.5],
  "vllm/cdna3/collectives": 1,
  // gpt-fast
  "pytorch/ampere/layerOverheadUs": [25, 0.4],
  "pytorch/ampere/memoryBandwidth": [0.78, 0.15],
  "pytorch/ampere/packedBandwidth": 0.85,
  "pytorch/ampere/collectives": [0.7, 0.4],
  "pytorch/cdna2/layerOverheadUs": [60, 0.4],
  "pytorch/cdna2/memoryBandwidth": 0.6,
  "pytorch/ampere/expertOverheadUs": [40, 0.5],
  // TensorRT-LLM
  "tensorrt-llm/layerOverheadUs": [25, 0.5],
  "tensorrt-llm/stepOverheadUs": [1000, 0.5],
  "tensorrt-llm/sequenceOverheadUs": [4, 0.5],
  "tensorrt-llm/collectives": [0.9, 0.3],
  "tensorrt-llm/fillRows": [128, 0.5],
  "tensorrt-llm/hopper/matmul8": 0.7,
  "tensorrt-llm/hopper/matmul16": 0.65,
  "tensorrt-llm/hopper/attention": 0.45,
  "tensorrt-llm/hopper/kvBandwidth": 0.8,
  "tensorrt-llm/ampere/matmul16": 0.75,
  "tensorrt-llm/ampere/kvBandwidth": 0.75,
  "tensorrt-llm/ampere/attention": 0.5,
  "tensorrt-llm/ada/matmul8": 0.75,
  "tensorrt-llm/ada/attention": 0.5,
  "tensorrt-llm/ada/kvBandwidth": 0.8,
  "tensorrt-llm/ada/collectives": 1.2,
  "tensorrt-llm/blackwell/matmul4": 0.55,
  "tensorrt-llm/blackwell/kvBandwidth": 0.75,
  "tensorrt-llm/blackwell/attention": 0.4,
  "tensorrt-llm/blackwell-rtx/matmul4": 0.6,
  "tensorrt-llm/blackwell-rtx/kvBandwidth": 0.8,
  "tensorrt-llm/blackwell-rtx/attention": 0.45,
  // Its mixtures
  "tensorrt-llm/grouped": [0.55, 0.4],
  "tensorrt-llm/groupedFillRows": [64, 0.7],
  "tensorrt-llm/imbalance": [1, 0.5],
  "tensorrt-llm/expertOverheadUs": [120, 0.6],
  "tensorrt-llm/exchanges": [1.3, 0.4],
  "tensorrt-llm/hopper/matmulPacked": [0.7, 0.25],
  // Gaudi
  "gaudi2/matmul8": 0.75,
  "gaudi3/matmul8": 0.6,
  "gaudi2/kvBandwidth": 0.8,
  "gaudi3/kvBandwidth": 0.75,
  "gaudi2/attention": 0.45,
  "gaudi3/attention": 0.3,
  "gaudi2/collectives": 0.9,
  "gaudi3/collectives": 0.9,
  "gaudi2/memoryBandwidth": 0.8,
  "gaudi3/memoryBandwidth": 0.8,
  // Training
  // Megatron-LM (arXiv 1909.08053, section 5): 39 of 125 TFLOP/s on a V100 with all else that a step does.
  "volta/train16": 0.4,
  "ampere/train16": 0.7,
  "hopper/train16": 0.6,
  // The share that Megatron reaches in FP8 there, where casts come on top: its bf16 cannot be half as fast.
  "hopper/trainMixture16": [0.68, 0.08],
  "blackwell/train16": 0.75,
  "hopper/train8": [0.6, 0.35],
  "blackwell/train8": [0.55, 0.35],
  trainAttention: 0.3,
  "hopper/trainAttention": 0.25,
  // Products of whole experts run like others where each has rows enough; what small experts lose is the permuting of rows.
  trainGrouped: [0.92, 0.08],
  trainRoutedPasses: [24, 0.3],
  // Megatron's grouped MLP adds them in a loop over its experts, with a split, a concatenation and an activation of its own.
  trainBiasPasses: [8, 0.5],
  // Read in 16 bits, written in 8 twice (a transposed copy), for the forward pass and for the gradients: 8 bytes in three.
  trainCastBytes: [1.3, 0.3],
  trainCollectives: [0.4, 0.5],
  trainExchanges: [0.5, 0.6],
  trainShards: [0.5, 0.5],
  "tpu/train16": 0.8,
  "neuron/train16": 0.45,
};
