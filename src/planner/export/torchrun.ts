/** A plan as a launch line of PyTorch's torchrun. What is trained or served is the script's: notes say what it must do. */

import { wordTable } from "../../core/index.ts";
import { PLAN_AXES, type ShardingPlan } from "../plan.ts";
import { type Exporter, installNotes, refusal, torchrunWords } from "./exporter.ts";
import {
  checkpointingDuty,
  dutyNotes,
  HALF_NOTE,
  methodDuty,
  optimizerDuty,
  precisionDuty,
  ropeDuty,
  scheduleNotes,
  trainsInHalf,
} from "./training-duties.ts";

const TARGET = "torchrun";

const OFFLOADS: Readonly<Record<string, string>> = wordTable({
  optimizer: "keep optimizer states in host memory",
  all: "keep weights and optimizer states in host memory (FSDP2's CPUOffloadPolicy)",
});
const SCHEDULES: Readonly<Record<string, string>> = wordTable({
  interleaved: "ScheduleInterleaved1F1B",
  "1f1b": "Schedule1F1B",
  "zero-bubble": "ScheduleInterleavedZeroBubble",
});

function pipelineDuty({ workload }: ShardingPlan): string {
  const { pipelineChunks: chunks, pipelineSchedule = chunks === undefined ? "1f1b" : "interleaved" } = workload;
  const each = chunks === undefined ? "" : `, ${chunks} stages of it a rank`;
  return `run torch.distributed.pipelining's ${SCHEDULES[pipelineSchedule]}${each}`;
}

function trainingDuties(plan: ShardingPlan): (string | undefined)[] {
  const { workload, mesh } = plan;
  const { zeroStage = 0, microBatch = 1, batch, contextTokens, gradients, offload } = workload;
  const { dp, ep, pp } = mesh.axes;
  const steps = Math.max(1, Math.ceil(batch / (dp * ep * microBatch)));
  return [
    methodDuty(plan),
    `take ${microBatch} sequence(s) of ${contextTokens} tokens a pass and accumulate ${steps} pass(es)`,
    `shard by ZeRO stage ${zeroStage}`,
    optimizerDuty(plan),
    `keep gradients in ${gradients === "f32" ? gradients : trainsInHalf(plan) ? "f16" : "bf16"}`,
    precisionDuty(plan),
    checkpointingDuty(plan),
    offload === undefined ? undefined : OFFLOADS[offload],
    pp > 1 ? pipelineDuty(plan) : undefined,
    ropeDuty(plan),
  ];
}

function servingDuties(plan: ShardingPlan): (string | undefined)[] {
  const { workload } = plan;
  const { prefillChunkTokens, speculation, gpuMemoryUtilization, prefixHits, expertOverlap } = workload;
  const percent = (share: number) => `${Math.round(share * 100)} %`;
  return [
    `serve ${workload.batchPerReplica} sequence(s) of ${workload.contextTokens} tokens a replica, weights in ${workload.weightFormat}, KV cache in ${workload.kvFormat}`,
    prefillChunkTokens === undefined ? undefined : `read prompts ${prefillChunkTokens} tokens at a time`,
    speculation === undefined
      ? undefined
      : `draft ${speculation.tokens} tokens a step, each accepted with probability ${speculation.acceptance}`,
    gpuMemoryUtilization === undefined ? undefined : `take at most ${percent(gpuMemoryUtilization)} of each device`,
    prefixHits === undefined ? undefined : `find ${percent(prefixHits)} of each prompt in a prefix cache`,
    expertOverlap === undefined ? undefined : `hide ${percent(expertOverlap)} of the experts' exchange`,
    ropeDuty(plan),
  ];
}

export const torchrun: Exporter = (plan, { model, numHosts }) => {
  const hasApple = plan.hardware?.some(({ family }) => family === "apple-gpu") ?? false;
  if (hasApple && plan.mesh.worldSize > 1) {
    throw refusal(
      "several ranks on Apple GPUs",
      TARGET,
      "no backend of torch.distributed reaches them: plan with --ranks 1",
    );
  }
  const layout = PLAN_AXES.map((axis) => `${axis}=${plan.mesh.axes[axis]}`).join(" x ");
  return {
    command: torchrunWords(plan, numHosts, "script.py").join(" "),
    env: {},
    files: {},
    notes: [
      `script.py is yours; ranks are numbered as in the plan: ${layout}`,
      ...installNotes(TARGET, plan),
      ...(plan.workload.mode === "training" && trainsInHalf(plan) ? [HALF_NOTE] : []),
      ...dutyNotes("script.py", [`load ${model}`]),
      ...dutyNotes("script.py", plan.workload.mode === "training" ? trainingDuties(plan) : servingDuties(plan)),
      ...scheduleNotes(plan),
    ],
  };
};
