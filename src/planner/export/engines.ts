/** The engines that plans are exported to: the version of each, and the flags of that version that may be written. */

export const EXPORT_TARGETS = [
  "vllm",
  "sglang",
  "tensorrt-llm",
  "deepspeed",
  "megatron-lm",
  "torchrun",
  "llama.cpp",
  "chorale",
] as const;
export type ExportTarget = (typeof EXPORT_TARGETS)[number];

/** Engines that are for serving, and for training; torchrun starts either. */
export const SERVING_TARGETS = [
  "vllm",
  "sglang",
  "tensorrt-llm",
  "llama.cpp",
  "chorale",
] as const satisfies readonly ExportTarget[];
export const TRAINING_TARGETS = ["deepspeed", "megatron-lm", "torchrun"] as const satisfies readonly ExportTarget[];

/** Engines whose devices and formats are known: those, and plain PyTorch, whose times are known too. */
export const ENGINE_NAMES = [...EXPORT_TARGETS, "pytorch"] as const;
export type EngineName = (typeof ENGINE_NAMES)[number];

/** Versions that the flags were looked up in. */
export const EXPORT_VERSIONS: Readonly<Record<ExportTarget, string>> = {
  vllm: "vLLM 0.10",
  sglang: "SGLang 0.5",
  "tensorrt-llm": "TensorRT-LLM 1.0",
  deepspeed: "DeepSpeed 0.16",
  "megatron-lm": "Megatron Core 0.12",
  torchrun: "PyTorch 2.4",
  "llama.cpp": "llama.cpp b6100",
  chorale: "chorale 0.1",
};

/** The engine with its version, for messages. */
export function engineTitle(engine: EngineName): string {
  return engine === "pytorch" ? "PyTorch" : EXPORT_VERSIONS[engine];
}

/** Flags that may be written, by engine. */
export const FLAGS: Readonly<Record<ExportTarget, readonly string[]>> = {
  vllm: [
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--enable-expert-parallel",
    "--max-model-len",
    "--max-num-seqs",
    "--dtype",
    "--quantization",
    "--kv-cache-dtype",
    "--gpu-memory-utilization",
    "--enable-chunked-prefill",
    "--max-num-batched-tokens",
    "--enable-prefix-caching",
    "--speculative-config",
    "--hf-overrides",
    "--distributed-executor-backend",
    "--data-parallel-backend",
  ],
  sglang: [
    "--model-path",
    "--tp-size",
    "--pp-size",
    "--dp-size",
    "--ep-size",
    "--context-length",
    "--max-running-requests",
    "--dtype",
    "--quantization",
    "--kv-cache-dtype",
    "--load-format",
    "--enable-dp-attention",
    "--mem-fraction-static",
    "--chunked-prefill-size",
    "--enable-two-batch-overlap",
    "--moe-a2a-backend",
    "--speculative-algorithm",
    "--speculative-draft-model-path",
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-num-draft-tokens",
    "--json-model-override-args",
    "--nnodes",
    "--node-rank",
    "--dist-init-addr",
  ],
  "tensorrt-llm": [
    "--tp_size",
    "--pp_size",
    "--ep_size",
    "--max_batch_size",
    "--max_seq_len",
    "--max_num_tokens",
    "--kv_cache_free_gpu_memory_fraction",
    "--extra_llm_api_options",
  ],
  deepspeed: ["--num_gpus", "--num_nodes", "--hostfile", "--deepspeed_config"],
  "megatron-lm": [
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--num-layers",
    "--hidden-size",
    "--num-attention-heads",
    "--group-query-attention",
    "--num-query-groups",
    "--seq-length",
    "--max-position-embeddings",
    "--micro-batch-size",
    "--global-batch-size",
    "--bf16",
    "--fp16",
    "--optimizer",
    "--use-distributed-optimizer",
    "--use-precision-aware-optimizer",
    "--optimizer-cpu-offload",
    "--grad-reduce-in-bf16",
    "--fp8-format",
    "--sequence-parallel",
    "--recompute-granularity",
    "--recompute-method",
    "--recompute-num-layers",
    "--num-virtual-stages-per-pipeline-rank",
    "--rotary-seq-len-interpolation-factor",
  ],
  torchrun: ["--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"],
  "llama.cpp": [
    "-m",
    "-hf",
    "-ngl",
    "--split-mode",
    "--tensor-split",
    "-c",
    "-np",
    "-b",
    "-ub",
    "-fa",
    "--cache-type-k",
    "--cache-type-v",
    "-md",
    "--draft-max",
    "--rope-scaling",
    "--rope-scale",
    "--yarn-orig-ctx",
  ],
  chorale: ["-n", "--model", "--plan", "--prompt"],
};
