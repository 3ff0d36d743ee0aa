/** A plan as a launch line of DeepSpeed and its config file. Fields: deepspeed.ai/docs/config-json, 0.16. */
import { wordTable } from "../../core/index.ts";
import type { ShardingPlan } from "../plan.ts";
import { type Exporter, installNotes, needsMode, refusal, refuseAxes } from "./exporter.ts";
import {
  checkpointingDuty,
  dutyNotes,
  HALF_NOTE,
  methodDuty,
  ropeDuty,
  scheduleNotes,
  trainsInHalf,
} from "./training-duties.ts";

const TARGET = "deepspeed";

/** Its names; others are those of torch.optim, which ZeRO takes when told that they are untested. */
interface Optimizer {
  readonly type: string;
  readonly params?: object;
  readonly needs?: string;
}
const OPTIMIZERS: Readonly<Record<string, Optimizer>> = wordTable({
  adamw: { type: "AdamW" },
  sgd: { type: "SGD", params: { momentum: 0.9 } },
  adafactor: { type: "Adafactor", needs: "PyTorch 2.5 or later for torch.optim.Adafactor" },
});

function optimizerOf({ workload }: ShardingPlan) {
  const { optimizer: name = "adamw" } = workload;
  const known = OPTIMIZERS[name];
  if (known === undefined) {
    const why =
      name === "muon"
        ? "its config names torch.optim's optimizers, and Muon takes matrices alone"
        : "it keeps f32 master weights, which a plan with 8-bit states on bf16 weights does not hold";
    throw refusal(`--optimizer ${name}`, TARGET, `${why}: plan with --optimizer adamw, sgd or adafactor`);
  }
  return known;
}

/** Offloading, by the stages that have it. */
function offloadOf({ workload }: ShardingPlan): object {
  const { offload, zeroStage = 0, optimizer = "adamw" } = workload;
  if (offload === undefined) return {};
  if (optimizer !== "adamw") {
    throw refusal(
      `--offload ${offload} with --optimizer ${optimizer}`,
      TARGET,
      "on CPUs it updates with Adam: plan with --optimizer adamw",
    );
  }
  const least = offload === "all" ? 3 : 1;
  if (zeroStage < least) {
    throw refusal(
      `--offload ${offload} with ZeRO stage ${zeroStage}`,
      TARGET,
      `it offloads ${offload === "all" ? "weights" : "states"} from stage ${least}: plan with --zero ${least}`,
    );
  }
  const onHost = { device: "cpu", pin_memory: true };
  return { offload_optimizer: onHost, ...(offload === "all" ? { offload_param: onHost } : {}) };
}

export const deepspeed: Exporter = (plan, { model, numHosts }) => {
  needsMode(plan, TARGET, "training");
  refuseAxes(plan, TARGET, ["pp", "ep", "cp"], "its config file has no field for it");
  const { tp, dp } = plan.mesh.axes;
  const { batch, zeroStage = 0, microBatch = 1, precision, gradients } = plan.workload;
  if (precision === "fp8") {
    throw refusal(
      "--train-precision fp8",
      TARGET,
      "its config has no FP8 recipe: plan with --train-precision bf16, or export to megatron-lm or torchrun",
    );
  }
  const { needs, ...optimizer } = optimizerOf(plan);
  const isHalf = trainsInHalf(plan);
  const isUntested = optimizer.type !== "AdamW" && zeroStage > 0;
  const config = {
    train_micro_batch_size_per_gpu: microBatch,
    gradient_accumulation_steps: Math.max(1, Math.ceil(batch / (dp * microBatch))),
    [isHalf ? "fp16" : "bf16"]: { enabled: true },
    optimizer,
    ...(isUntested ? { zero_allow_untested_optimizer: true } : {}),
    data_types: { grad_accum_dtype: gradients === "f32" ? "fp32" : isHalf ? "fp16" : "bf16" },
    zero_optimization: { stage: zeroStage, overlap_comm: zeroStage > 0, ...offloadOf(plan) },
    ...(tp > 1 ? { tensor_parallel: { autotp_size: tp } } : {}),
  };
  const perHost = Math.ceil(plan.mesh.worldSize / numHosts);
  const hosts = numHosts > 1 ? ["--num_nodes", String(numHosts)] : [];
  const words = [
    "deepspeed",
    ...hosts,
    "--num_gpus",
    String(perHost),
    "train.py",
    "--deepspeed_config",
    "ds_config.json",
  ];
  return {
    command: words.join(" "),
    env: {},
    files: { "ds_config.json": `${JSON.stringify(config, null, 2)}\n` },
    notes: [
      "train.py is yours, and so is the learning rate (optimizer.params.lr)",
      ...installNotes(TARGET, plan),
      ...(needs === undefined ? [] : [`needs ${needs}`]),
      ...(numHosts > 1 ? ["its launcher finds the hosts in /job/hostfile, or in --hostfile FILE"] : []),
      ...(isHalf ? [HALF_NOTE] : []),
      ...dutyNotes("train.py", [
        `load ${model} and read sequences of ${plan.workload.contextTokens} tokens`,
        methodDuty(plan),
        checkpointingDuty(plan),
        ropeDuty(plan),
      ]),
      ...scheduleNotes(plan),
    ],
  };
};
