/** Options of `chorale plan` beyond model and hardware: readers of their values, and what they become in a request. */
import { type Command, InvalidArgumentError as CommanderArgumentError } from "commander";
import { InvalidArgumentError } from "../../core/index.ts";
import {
  CHECKPOINTING,
  type Checkpointing,
  ENGINES,
  type Engine,
  GRADIENT_FORMATS,
  type GradientFormat,
  LORA_TARGETS,
  type LoraTargets,
  OFFLOADS,
  type Offload,
  OPTIMIZERS,
  type OptimizerName,
  PIPELINE_SCHEDULES,
  type PipelineSchedule,
  type PlanRequest,
  TRAIN_PRECISIONS,
  type TrainPrecision,
} from "../../planner/index.ts";
import { sized, whole } from "./option-readers.ts";

export interface ModelOfTimeFlags {
  readonly engine?: string;
  readonly microBatch?: number;
  readonly checkpointing?: string;
  readonly optimizer?: string;
  readonly gradients?: string;
  readonly trainPrecision?: string;
  readonly pipelineSchedule?: string;
  readonly offload?: string;
  readonly loraRank?: number;
  readonly loraTargets?: string;
  readonly rollout?: number;
  readonly forceContext?: boolean;
  readonly ropeScaling?: boolean;
  readonly prefixHits?: number;
  readonly prefillChunk?: number;
  readonly expertOverlap?: number;
  readonly speculate?: string;
  readonly gpuMemoryUtilization?: number;
  readonly allowCpu?: boolean;
}

/** A share from 0 to 1. */
function share(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0 && value <= 1)) {
    throw new CommanderArgumentError("expected a number from 0 to 1, such as 0.9.");
  }
  return value;
}

const list = (names: readonly string[]) => names.join(", ");

/** Adds the options to the command. */
export function addModelOfTimeOptions(command: Command): Command {
  return command
    .option("--engine <name>", `whose speed is estimated: ${list(ENGINES)} (default: by format and device)`)
    .option("--gpu-memory-utilization <share>", "share of each accelerator's memory that the engine may take", share)
    .option("--allow-cpu", "plan on the CPU where no accelerator can serve")
    .option("--force-context", "plan beyond the model's context (RoPE scaling)")
    .option("--rope-scaling", "the same as --force-context")
    .option("--prefix-hits <share>", "share of the prompt that a prefix cache holds", share)
    .option("--prefill-chunk <tokens>", "most tokens of one pass of a prefill (default: 8192; llama.cpp 512)", sized(1))
    .option("--expert-overlap <share>", "share of the experts' exchange that is hidden behind computation", share)
    .option("--speculate <n:p>", "a draft proposes n tokens a step, each accepted with probability p: 3:0.7")
    .option("--micro-batch <n>", "training: sequences of one pass (default: the best)", sized(1))
    .option("--checkpointing <what>", `training: ${list(CHECKPOINTING)} (default: the least that fits)`)
    .option("--optimizer <name>", `training: ${list(OPTIMIZERS)} (default: adamw)`)
    .option("--gradients <dtype>", `training: ${list(GRADIENT_FORMATS)} (default: bf16)`)
    .option("--train-precision <dtype>", `training: linear layers in ${list(TRAIN_PRECISIONS)} (default: bf16)`)
    .option(
      "--pipeline-schedule <name>",
      `training: ${list(PIPELINE_SCHEDULES)} (default: interleaved where the layers divide, else 1f1b)`,
    )
    .option("--offload <what>", `training: to host memory: ${list(OFFLOADS)} (default: none)`)
    .option(
      "--rollout <tokens>",
      "training by PPO or GRPO: tokens that each sequence generates before a step",
      sized(1),
    )
    .option("--lora-rank <n>", "training: rank of the adapters, for lora and qlora", whole(1))
    .option("--lora-targets <what>", `training: matrices with adapters: ${list(LORA_TARGETS)} (default: all)`);
}

function speculation(text: string): { tokens: number; acceptance: number } {
  const match = /^(\d{1,3}):(0?\.\d+|0)$/.exec(text.trim());
  if (match === null)
    throw new InvalidArgumentError(
      "--speculate",
      text,
      "TOKENS:ACCEPTANCE, up to 64 tokens and a share below 1, such as 3:0.7",
    );
  return { tokens: Number(match[1]), acceptance: Number(match[2]) };
}

const TRAINING_ONLY = [
  ["microBatch", "--micro-batch"],
  ["checkpointing", "--checkpointing"],
  ["optimizer", "--optimizer"],
  ["gradients", "--gradients"],
  ["trainPrecision", "--train-precision"],
  ["pipelineSchedule", "--pipeline-schedule"],
  ["offload", "--offload"],
  ["loraRank", "--lora-rank"],
  ["loraTargets", "--lora-targets"],
  ["rollout", "--rollout"],
] as const;
const SERVING_ONLY = [
  ["prefixHits", "--prefix-hits"],
  ["prefillChunk", "--prefill-chunk"],
  ["expertOverlap", "--expert-overlap"],
  ["speculate", "--speculate"],
] as const;

/**
 * What the options say, as part of a request. Options that the mode would ignore are refused.
 * @throws InvalidArgumentError naming the option and what it needs
 */
export function modelOfTimeRequest(flags: ModelOfTimeFlags, train: string | undefined): Partial<PlanRequest> {
  for (const [name, option] of train === undefined ? TRAINING_ONLY : SERVING_ONLY) {
    const value = flags[name];
    if (value !== undefined) {
      throw new InvalidArgumentError(option, value, train === undefined ? "--train METHOD beside it" : "no --train");
    }
  }
  if (flags.loraRank !== undefined && !/^q?lora$/.test(train ?? "")) {
    throw new InvalidArgumentError("--lora-rank", flags.loraRank, "--train lora or --train qlora beside it");
  }
  if (flags.loraTargets !== undefined && !/^q?lora(?:-\d+)?$/.test(train ?? "")) {
    throw new InvalidArgumentError("--lora-targets", flags.loraTargets, "--train lora or --train qlora beside it");
  }
  const given = {
    engine: flags.engine as Engine | undefined,
    gpuMemoryUtilization: flags.gpuMemoryUtilization,
    allowCpu: flags.allowCpu,
    forceContext: flags.forceContext ?? flags.ropeScaling,
    prefixHits: flags.prefixHits,
    prefillChunkTokens: flags.prefillChunk,
    expertOverlap: flags.expertOverlap,
    speculation: flags.speculate === undefined ? undefined : speculation(flags.speculate),
    microBatch: flags.microBatch,
    checkpointing: flags.checkpointing as Checkpointing | undefined,
    optimizer: flags.optimizer as OptimizerName | undefined,
    gradients: flags.gradients as GradientFormat | undefined,
    trainPrecision: flags.trainPrecision as TrainPrecision | undefined,
    pipelineSchedule: flags.pipelineSchedule as PipelineSchedule | undefined,
    offload: flags.offload as Offload | undefined,
    rolloutTokens: flags.rollout,
    loraTargets: flags.loraTargets as LoraTargets | undefined,
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Partial<PlanRequest>;
}
