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

/** Versions that the flags were looked up in. */
export const EXPORT_VERSIONS: Readonly<Record<ExportTarget, string>> = {
  vllm: "vLLM 0.10",
  sglang: "SGLang 0.5",
  "tensorrt-llm": "TensorRT-LLM 1.0",
  deepspeed: "DeepSpeed 0.16",
  "megatron-lm": "Megatron Core 0.12",
  torchrun: "PyTorch 2.4",
  "llama.cpp": "llama.cpp b6000",
  chorale: "chorale 0.1",
};

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
    "--nnodes",
    "--node-rank",
    "--dist-init-addr",
  ],
  "tensorrt-llm": ["--tp_size", "--pp_size", "--ep_size", "--max_batch_size", "--max_seq_len"],
  deepspeed: ["--num_gpus", "--num_nodes", "--hostfile", "--deepspeed_config"],
  "megatron-lm": [
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
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
    "--use-distributed-optimizer",
    "--sequence-parallel",
    "--recompute-granularity",
  ],
  torchrun: ["--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"],
  "llama.cpp": ["-m", "-ngl", "--split-mode", "--tensor-split", "-c", "-np", "-fa", "--cache-type-k", "--cache-type-v"],
  chorale: ["-n", "--model", "--plan", "--prompt"],
};
