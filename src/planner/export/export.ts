/**
 * A plan in the words of other engines: command lines and config files, for one named version of each, with only the
 * flags that this version has (`FLAGS`, checked by a test). What an engine cannot do is an error, not a wrong flag.
 */

import { UnsupportedError, wordTable } from "../../core/index.ts";
import { oneOf } from "../../core/internal.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import type { PlanAxis, ShardingPlan } from "../plan.ts";
import { EXPORT_TARGETS, EXPORT_VERSIONS, type ExportTarget } from "./engines.ts";

export { EXPORT_TARGETS, EXPORT_VERSIONS, type ExportTarget, FLAGS } from "./engines.ts";

/** What comes out: the command, environment variables that it needs, and files to write beside it. */
export interface Exported {
  readonly target: ExportTarget;
  readonly version: string;
  readonly command: string;
  readonly env: Readonly<Record<string, string>>;
  readonly files: Readonly<Record<string, string>>;
  readonly notes: readonly string[];
}

export interface ExportOptions {
  /** Folder or name of the model for the command line. Default: the plan's model name. */
  readonly modelPath?: string;
  /** Hosts that the plan's devices are on, in order; from `hostsOf`. Default 1. */
  readonly numHosts?: number;
  /** Environment that shows the engine the plan's devices only, in rank order; from `visibleDevices`. */
  readonly env?: Readonly<Record<string, string>>;
}

/** What limits a driver to some of its devices. */
const VISIBLE: Readonly<Record<string, string>> = wordTable({
  "nvidia-gpu": "CUDA_VISIBLE_DEVICES",
  "amd-gpu": "HIP_VISIBLE_DEVICES",
});

/**
 * The environment variable without which an engine would take the first devices of the host in place of the plan's;
 * empty where these are the plan's, in that order, and for plans over several hosts.
 */
export function visibleDevices(
  plan: ShardingPlan,
  inventory: Pick<Inventory, "devices">,
): Readonly<Record<string, string>> {
  const devices = new Map(inventory.devices.map((device) => [device.id, device]));
  const used = [...new Set(plan.ranks.map((rank) => rank.deviceId))].map((id) => devices.get(id));
  const name = VISIBLE[used[0]?.family ?? ""];
  const indexes = used.map((device) => device?.index ?? 0);
  return name === undefined || indexes.every((value, at) => value === at) ? {} : { [name]: indexes.join(",") };
}

/** Numbers of layers in each stage of the first replica. */
function stageLayers(plan: ShardingPlan): number[] {
  const { pp } = plan.mesh.axes;
  return Array.from({ length: pp }, (_, stage) => {
    const rank = plan.ranks.find(({ coords }) => coords.dp === 0 && coords.pp === stage);
    return rank === undefined ? 0 : rank.layers.end - rank.layers.first;
  });
}

function isEven(counts: readonly number[]): boolean {
  return Math.max(...counts) - Math.min(...counts) <= 0;
}

function refuse(plan: ShardingPlan, target: ExportTarget, axes: readonly PlanAxis[], why: string): void {
  for (const axis of axes) {
    if (plan.mesh.axes[axis] > 1) {
      throw new UnsupportedError(
        `${axis}=${plan.mesh.axes[axis]} in ${EXPORT_VERSIONS[target]}`,
        `${why}: plan with --constrain ${axis}=1`,
      );
    }
  }
}

function needs(plan: ShardingPlan, target: ExportTarget, mode: "inference" | "training"): void {
  if (plan.workload.mode !== mode) {
    throw new UnsupportedError(`a plan for ${plan.workload.mode} in ${EXPORT_VERSIONS[target]}`, `it is for ${mode}`);
  }
}

/** Formats that vLLM and SGLang quantize to, or read, under this name; undefined: the weights' own. */
function servingQuantization(format: string): string | undefined {
  if (/^gptq/.test(format)) return "gptq";
  if (/^awq/.test(format)) return "awq";
  if (format === "fp8" || format === "fp8-block128") return "fp8";
  if (format === "nf4") return "bitsandbytes";
  if (format === "mxfp4") return "mxfp4";
  if (format === "nvfp4") return "modelopt_fp4";
  return undefined;
}

/** Formats that need no flag: plain dtypes, and what the files say themselves. */
function servingFormat(plan: ShardingPlan, target: ExportTarget): string[] {
  const { weightFormat } = plan.workload;
  if (/^(f32|f16|bf16)$/.test(weightFormat)) return ["--dtype", DTYPE_NAMES[weightFormat] ?? "auto"];
  const name = servingQuantization(weightFormat);
  if (name === undefined) {
    throw new UnsupportedError(
      `weights in ${weightFormat} in ${EXPORT_VERSIONS[target]}`,
      "plan with --quant fp8, gptq-4-g128, awq-4-g128, nf4, mxfp4 or nvfp4",
    );
  }
  return ["--quantization", name];
}

const DTYPE_NAMES: Readonly<Record<string, string>> = wordTable({ f32: "float32", f16: "float16", bf16: "bfloat16" });

function sizes(pairs: readonly (readonly [string, number])[]): string[] {
  return pairs.flatMap(([flag, size]) => (size > 1 ? [flag, String(size)] : []));
}

type Exporter = (plan: ShardingPlan, model: string, numHosts: number) => Omit<Exported, "target" | "version">;

const vllm: Exporter = (plan, model, numHosts) => {
  needs(plan, "vllm", "inference");
  refuse(plan, "vllm", ["cp"], "it shards no prefill over ranks");
  const { tp, pp, dp, ep } = plan.mesh.axes;
  const counts = stageLayers(plan);
  // Its expert-parallel group is all of tp x dp; attention is replicated over dp, as our ep axis is.
  const words = [
    "vllm serve",
    model,
    ...sizes([
      ["--tensor-parallel-size", tp],
      ["--pipeline-parallel-size", pp],
      ["--data-parallel-size", dp * ep],
    ]),
    ...(ep > 1 ? ["--enable-expert-parallel"] : []),
    "--max-model-len",
    String(plan.workload.contextTokens),
    "--max-num-seqs",
    String(plan.workload.batchPerReplica),
    ...servingFormat(plan, "vllm"),
    ...(plan.workload.kvFormat === "fp8" ? ["--kv-cache-dtype", "fp8"] : []),
    // Its own processes stay on one host; several hosts are a Ray cluster.
    ...(numHosts > 1 ? ["--distributed-executor-backend", "ray"] : []),
    ...(numHosts > 1 && dp * ep > 1 ? ["--data-parallel-backend", "ray"] : []),
  ];
  const spread = ep > 1 && dp > 1 ? [`its experts are spread over all ${dp * ep * tp} ranks, ours over ${ep}`] : [];
  const cluster = numHosts > 1 ? [`run it on one host of a Ray cluster of the ${numHosts} hosts (ray start)`] : [];
  return {
    command: words.join(" "),
    env: isEven(counts) ? {} : { VLLM_PP_LAYER_PARTITION: counts.join(",") },
    files: {},
    notes: [...spread, ...cluster],
  };
};

const sglang: Exporter = (plan, model, numHosts) => {
  needs(plan, "sglang", "inference");
  refuse(plan, "sglang", ["cp"], "it has no context parallelism under this name");
  const { tp, pp, dp, ep } = plan.mesh.axes;
  const words = [
    "python -m sglang.launch_server --model-path",
    model,
    // Expert-parallel ranks are part of its tensor-parallel group.
    ...sizes([
      ["--tp-size", tp * ep],
      ["--pp-size", pp],
      ["--dp-size", dp],
      ["--ep-size", ep],
    ]),
    "--context-length",
    String(plan.workload.contextTokens),
    "--max-running-requests",
    String(plan.workload.batch),
    ...servingFormat(plan, "sglang"),
    ...(plan.workload.kvFormat === "fp8" ? ["--kv-cache-dtype", "fp8_e4m3"] : []),
    ...(numHosts > 1
      ? ["--nnodes", String(numHosts), "--node-rank", "$NODE_RANK", "--dist-init-addr", "$HEAD_ADDRESS:20000"]
      : []),
  ];
  const notes = ep > 1 ? ["its attention is sharded over the expert-parallel ranks too, ours is replicated"] : [];
  return { command: words.join(" "), env: {}, files: {}, notes: [...notes, ...unevenNote(plan)] };
};

function unevenNote(plan: ShardingPlan): string[] {
  const counts = stageLayers(plan);
  return isEven(counts) ? [] : [`splits layers evenly; the plan has ${counts.join(", ")}`];
}

const tensorrt: Exporter = (plan, model, numHosts) => {
  needs(plan, "tensorrt-llm", "inference");
  refuse(plan, "tensorrt-llm", ["cp"], "trtllm-serve has no flag for it");
  const { tp, pp, ep, dp } = plan.mesh.axes;
  const words = [
    "trtllm-serve",
    model,
    ...sizes([
      ["--tp_size", tp * ep],
      ["--pp_size", pp],
      ["--ep_size", ep],
    ]),
    "--max_batch_size",
    String(plan.workload.batchPerReplica),
    "--max_seq_len",
    String(plan.workload.contextTokens),
  ];
  const { weightFormat, kvFormat } = plan.workload;
  const notes = [
    ...(dp > 1 ? [`start it ${dp} times, one for each replica, behind a load balancer`] : []),
    ...(numHosts > 1 ? [`start it under mpirun or srun over the ${numHosts} hosts, with trtllm-llmapi-launch`] : []),
    // It has no flag for either: the checkpoint's own files say.
    ...(/^(f32|f16|bf16)$/.test(weightFormat) ? [] : [`the checkpoint itself must be in ${weightFormat} (ModelOpt)`]),
    ...(/^(f32|f16|bf16)$/.test(kvFormat) ? [] : [`the checkpoint itself must ask for a KV cache in ${kvFormat}`]),
  ];
  return { command: words.join(" "), env: {}, files: {}, notes: [...notes, ...unevenNote(plan)] };
};

const deepspeed: Exporter = (plan, _model, numHosts) => {
  needs(plan, "deepspeed", "training");
  refuse(plan, "deepspeed", ["pp", "ep", "cp"], "its config file has no field for it");
  const { tp, dp } = plan.mesh.axes;
  const { batch, zeroStage = 0 } = plan.workload;
  const steps = Math.max(1, Math.ceil(batch / dp));
  const config = {
    train_micro_batch_size_per_gpu: 1,
    gradient_accumulation_steps: steps,
    bf16: { enabled: true },
    zero_optimization: { stage: zeroStage, overlap_comm: zeroStage > 0 },
    ...(tp > 1 ? { tensor_parallel: { autotp_size: tp } } : {}),
  };
  const perHost = Math.ceil(plan.mesh.worldSize / numHosts);
  const hosts = numHosts > 1 ? ["--num_nodes", String(numHosts)] : [];
  return {
    command: [
      "deepspeed",
      ...hosts,
      "--num_gpus",
      String(perHost),
      "train.py",
      "--deepspeed_config",
      "ds_config.json",
    ].join(" "),
    env: {},
    files: { "ds_config.json": `${JSON.stringify(config, null, 2)}\n` },
    notes: ["train.py is yours"],
  };
};

const megatron: Exporter = (plan, _model, numHosts) => {
  needs(plan, "megatron-lm", "training");
  const { tp, pp, ep, cp, dp } = plan.mesh.axes;
  const { zeroStage = 0, batch, contextTokens } = plan.workload;
  if (zeroStage > 1)
    throw new UnsupportedError(
      `ZeRO stage ${zeroStage} in ${EXPORT_VERSIONS["megatron-lm"]}`,
      "plan with --zero 1: its distributed optimizer is stage 1",
    );
  const counts = stageLayers(plan);
  const middle = counts.slice(1, -1);
  const uneven = !isEven(counts);
  if (uneven && !isEven(middle.length > 0 ? middle : [0])) {
    throw new UnsupportedError(
      `a split of ${counts.join(", ")} layers in ${EXPORT_VERSIONS["megatron-lm"]}`,
      "only its first and last stage may differ",
    );
  }
  const { model } = plan;
  const perHost = Math.ceil(plan.mesh.worldSize / numHosts);
  const words = [
    ...["torchrun", "--nnodes", String(numHosts), "--nproc-per-node", String(perHost), "pretrain_gpt.py"],
    ...sizes([
      ["--tensor-model-parallel-size", tp],
      ["--pipeline-model-parallel-size", pp],
      ["--context-parallel-size", cp],
      ["--expert-model-parallel-size", ep],
    ]),
    ...(uneven
      ? [
          "--decoder-first-pipeline-num-layers",
          String(counts[0]),
          "--decoder-last-pipeline-num-layers",
          String(counts.at(-1)),
        ]
      : []),
    ...["--num-layers", String(model.numLayers), "--hidden-size", String(model.hiddenSize)],
    ...["--num-attention-heads", String(model.numHeads)],
    ...(model.numKvHeads === model.numHeads
      ? []
      : ["--group-query-attention", "--num-query-groups", String(model.numKvHeads)]),
    ...["--seq-length", String(contextTokens), "--max-position-embeddings", String(contextTokens)],
    ...["--micro-batch-size", "1", "--global-batch-size", String(Math.ceil(batch / (dp * ep)) * dp * ep), "--bf16"],
    ...(zeroStage === 1 ? ["--use-distributed-optimizer"] : []),
    ...(tp > 1 ? ["--sequence-parallel"] : []),
    ...["--recompute-granularity", "selective"],
  ];
  return {
    command: words.join(" "),
    env: { CUDA_DEVICE_MAX_CONNECTIONS: "1" },
    files: {},
    notes: [
      "data, tokenizer, and the shape of the MLP, experts, norms and positions are yours: the plan does not hold them",
    ],
  };
};

const torchrun: Exporter = (plan, _model, numHosts) => {
  const perHost = Math.ceil(plan.mesh.worldSize / numHosts);
  const rendezvous =
    numHosts > 1 ? ["--rdzv-backend", "c10d", "--rdzv-endpoint", "$HEAD_ADDRESS:29500", "--rdzv-id", "chorale"] : [];
  const words = [
    "torchrun",
    "--nnodes",
    String(numHosts),
    "--nproc-per-node",
    String(perHost),
    ...rendezvous,
    "script.py",
  ];
  return {
    command: words.join(" "),
    env: {},
    files: {},
    notes: ["script.py is yours; ranks are numbered as in the plan"],
  };
};

/** Formats that a GGUF file can have. */
const GGUF_FORMATS = /^(f32|f16|bf16|mxfp4|i?t?q\d.*)$/;

const llamaCpp: Exporter = (plan, model) => {
  needs(plan, "llama.cpp", "inference");
  refuse(plan, "llama.cpp", ["dp", "ep", "cp"], "it splits by layers or rows only");
  const { tp, pp } = plan.mesh.axes;
  if (tp > 1 && pp > 1)
    throw new UnsupportedError(
      `tp=${tp} with pp=${pp} in ${EXPORT_VERSIONS["llama.cpp"]}`,
      "it splits by layers or by rows, not both",
    );
  const { weightFormat } = plan.workload;
  if (!GGUF_FORMATS.test(weightFormat)) {
    throw new UnsupportedError(
      `weights in ${weightFormat} in ${EXPORT_VERSIONS["llama.cpp"]}`,
      "it reads GGUF types: plan with --dtype bf16 or --quant q8_0, q6_k, q4_k_m, …",
    );
  }
  const onCpu = plan.ranks.every((rank) => rank.deviceId.includes("cpu"));
  const { kvFormat } = plan.workload;
  const cache: Readonly<Record<string, string>> = { f32: "f32", bf16: "bf16", int8: "q8_0", int4: "q4_0" };
  const type = cache[kvFormat];
  if (kvFormat === "fp8")
    throw new UnsupportedError(`a KV cache in fp8 in ${EXPORT_VERSIONS["llama.cpp"]}`, "plan with --kv int8 or f16");
  const words = [
    "llama-server -m",
    model.endsWith(".gguf") ? model : `${model}.gguf`,
    ...["-ngl", onCpu ? "0" : String(plan.model.numLayers + 1)],
    ...(plan.mesh.worldSize > 1
      ? [
          "--split-mode",
          tp > 1 ? "row" : "layer",
          "--tensor-split",
          (tp > 1 ? Array.from({ length: tp }, () => 1) : stageLayers(plan)).join(","),
        ]
      : []),
    // Its context is shared by the slots.
    ...["-c", String(plan.workload.contextTokens * plan.workload.batch), "-np", String(plan.workload.batch)],
    // A quantized V cache is refused without flash attention.
    ...(kvFormat === "int8" || kvFormat === "int4" ? ["-fa"] : []),
    ...(type === undefined ? [] : ["--cache-type-k", type, "--cache-type-v", type]),
  ];
  const notes = model.endsWith(".gguf") ? [] : [`convert the model to a GGUF file in ${weightFormat} first`];
  return { command: words.join(" "), env: {}, files: {}, notes };
};

const chorale: Exporter = (plan, model) => {
  needs(plan, "chorale", "inference");
  const command = `chorale launch -n ${plan.mesh.worldSize} examples/sharded-llama/main.ts -- --model ${model} --plan plan.json --prompt "Once upon a time"`;
  return { command, env: {}, files: { "plan.json": `${JSON.stringify(plan, null, 2)}\n` }, notes: [] };
};

const EXPORTERS: Readonly<Record<ExportTarget, Exporter>> = {
  vllm,
  sglang,
  "tensorrt-llm": tensorrt,
  deepspeed,
  "megatron-lm": megatron,
  torchrun,
  "llama.cpp": llamaCpp,
  chorale,
};

/** Quotes a word for a POSIX shell where it needs it. */
function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:@%+,=-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

/**
 * Writes a plan as another engine's command line and files.
 * @throws InvalidArgumentError for an unknown target; UnsupportedError when the engine cannot do what the plan says
 * @example
 * import { exportPlan, modelPreset, planModel } from "chorale/planner";
 * import { presetInventory } from "chorale/topology";
 * const [plan] = planModel({ model: modelPreset("llama-3.1-70b"), inventory: presetInventory("hgx-h100-8") }).plans;
 * if (plan !== undefined) exportPlan(plan, "vllm").command; // vllm serve llama-3.1-70b --tensor-parallel-size 8 ...
 */
export function exportPlan(plan: ShardingPlan, target: string, options: ExportOptions = {}): Exported {
  const name = oneOf(target, "--export", EXPORT_TARGETS);
  const model = shellWord(options.modelPath ?? plan.model.name);
  const exported = EXPORTERS[name](plan, model, options.numHosts ?? 1);
  const notes = [...exported.notes];
  const env = { ...(name === "chorale" ? {} : options.env), ...exported.env };
  if (name === "deepspeed" && options.env !== undefined && Object.keys(options.env).length > 0) {
    notes.push("its launcher ignores visible devices beside --num_gpus: pass --include localhost:INDEXES in its place");
  }
  return { target: name, version: EXPORT_VERSIONS[name], ...exported, env, notes };
}

/** An export as text: files first, then the command with its environment. */
export function renderExport(exported: Exported): string {
  const env = Object.entries(exported.env).map(([name, value]) => `${name}=${value} `);
  return [
    `# ${exported.version}`,
    ...Object.entries(exported.files).flatMap(([file, text]) =>
      file === "plan.json"
        ? [`# plan.json: written by --output-file plan.json`]
        : [
            `# ${file}:`,
            ...text
              .trimEnd()
              .split("\n")
              .map((line) => `#   ${line}`),
          ],
    ),
    ...exported.notes.map((text) => `# ${text}`),
    `${env.join("")}${exported.command}`,
  ].join("\n");
}
