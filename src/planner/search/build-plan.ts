/** From a judged candidate to the plan: every rank with its device, layers, shards and memory; estimates in full. */
import { addCost, type Cost, NO_COST, totalUs } from "../cost/layer-time.ts";
import { generationOf } from "../cost/profiles.ts";
import { attendedTokens } from "../memory/kv-cache.ts";
import { linearElements } from "../memory/weights.ts";
import { countParameters, type ModelSpec } from "../model/spec.ts";
import {
  type Bottleneck,
  type InferenceEstimates,
  type LayerRange,
  PLAN_AXES,
  type PlanAxisSizes,
  type PlannedRank,
  type Rejected,
  rankAt,
  SHARDING_PLAN_SCHEMA_VERSION,
  type ShardingPlan,
  type TrainingEstimates,
} from "../plan.ts";
import { batchUs, type Context, type Evaluated, hopTimes, type Replica, replicaTimes, totalBatch } from "./evaluate.ts";
import { hostUse } from "./host-memory.ts";
import { StageModel } from "./stage.ts";
import type { Workload } from "./workload.ts";

/** Part `index` of `count` split into `parts`: equal but for the last, when it does not divide. */
function part(count: number, parts: number, index: number): LayerRange {
  const size = Math.ceil(count / parts);
  return { first: Math.min(count, index * size), end: Math.min(count, (index + 1) * size) };
}

function shardsOf(
  model: ModelSpec,
  axes: PlanAxisSizes,
  coords: PlanAxisSizes,
  firstLayer: number,
): PlannedRank["shards"] {
  const layer = model.layerKinds[model.layers[firstLayer] ?? 0];
  const mlp = layer?.mlp;
  const columns = mlp === undefined ? 0 : mlp.kind === "dense" ? mlp.intermediateSize : mlp.expertIntermediateSize;
  const kv = model.numKvHeads;
  const owner = Math.floor((coords.tp * kv) / axes.tp);
  return {
    heads: part(model.numHeads, axes.tp, coords.tp),
    kvHeads: kv >= axes.tp ? part(kv, axes.tp, coords.tp) : { first: owner, end: owner + 1 },
    intermediate: part(columns, axes.tp, coords.tp),
    vocab: part(model.vocabSize, axes.tp, coords.tp),
    ...(mlp?.kind === "moe" ? { experts: part(mlp.numExperts, axes.ep, coords.ep) } : {}),
  };
}

function ranksOf(model: ModelSpec, evaluated: Evaluated): PlannedRank[] {
  const { axes } = evaluated.candidate;
  const ranks: PlannedRank[] = [];
  for (const [dp, replica] of evaluated.replicas.entries()) {
    for (let pp = 0; pp < axes.pp; pp++) {
      const stage = evaluated.stageModels[replica.classes[pp] ?? 0];
      if (stage === undefined) continue;
      const layers = { first: replica.split.bounds[pp] ?? 0, end: replica.split.bounds[pp + 1] ?? 0 };
      const items = stage.memory(layers.first, layers.end, pp);
      const totalBytes = Object.values(items).reduce((sum, bytes) => sum + bytes, 0);
      const { availableBytes } = stage.blockClass.kind;
      const head = pp === axes.pp - 1;
      for (const [index, deviceId] of (replica.blocks[pp] ?? []).entries()) {
        const tp = index % axes.tp;
        const cp = Math.floor(index / axes.tp) % axes.cp;
        const ep = Math.floor(index / (axes.tp * axes.cp));
        const coords = { dp, pp, ep, cp, tp };
        ranks.push({
          rank: rankAt(axes, coords),
          coords,
          deviceId,
          layers,
          embeddings: pp === 0 || (head && model.tiedEmbeddings && model.isDecoder),
          head,
          shards: shardsOf(model, axes, coords, layers.first),
          memory: { items, totalBytes, availableBytes, headroomBytes: availableBytes - totalBytes },
        });
      }
    }
  }
  return ranks.sort((a, b) => a.rank - b.rank);
}

/** Cost by cause along the pipeline of a replica, for one microbatch. */
function pathCost(
  model: ModelSpec,
  evaluated: Evaluated,
  replica: Replica,
  phase: "decode" | "prefill" | "train",
): Cost {
  let cost: Cost = { ...NO_COST };
  const { pp } = evaluated.candidate.axes;
  for (let stage = 0; stage < pp; stage++) {
    const stageModel = evaluated.stageModels[replica.classes[stage] ?? 0];
    if (stageModel === undefined) continue;
    const perKind = model.layerKinds.map((_, kind) => stageModel.layerCost(kind, phase));
    for (let layer = replica.split.bounds[stage] ?? 0; layer < (replica.split.bounds[stage + 1] ?? 0); layer++) {
      cost = addCost(cost, perKind[model.layers[layer] ?? 0] ?? NO_COST);
    }
    if (stage === 0) cost = addCost(cost, stageModel.endCost("embedding", phase));
    if (stage === pp - 1) cost = addCost(cost, stageModel.endCost("head", phase));
    const hop = hopTimes(stageModel, replica.hops[stage]);
    if (hop !== undefined) cost.communication += phase === "prefill" ? hop.b : hop.a;
  }
  return cost;
}

function bottleneckOf(parts: Readonly<Record<Bottleneck, number>>): Bottleneck {
  const order = Object.entries(parts).sort((a, b) => b[1] - a[1]) as [Bottleneck, number][];
  return order[0]?.[0] ?? "memory-bandwidth";
}

function parts(cost: Cost, bubbleUs: number): Record<Bottleneck, number> {
  return {
    "memory-bandwidth": cost.memory,
    compute: cost.compute,
    communication: cost.communication,
    overhead: cost.overhead,
    "pipeline-bubble": Math.max(0, bubbleUs),
  };
}

const toMs = (record: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(record).map(([name, us]) => [name, us / 1e3]));

const clamp = (fraction: number) => Math.min(1, Math.max(0, fraction));

/** FLOPs of one token through the model, forward: 2 for each active matrix element, and attention over the context. */
function flopsPerToken(model: ModelSpec, context: number): number {
  let flops = 2 * model.hiddenSize * (model.isDecoder ? model.vocabSize : 0);
  for (const kind of model.layers) {
    const layer = model.layerKinds[kind];
    if (layer === undefined) continue;
    const { attention, dense, expert } = linearElements(layer);
    const chosen = layer.mlp.kind === "moe" ? layer.mlp.expertsPerToken : 0;
    flops += 2 * (attention + dense + expert * chosen);
    if (layer.attention.kind === "none") continue;
    const width = layer.attention.kind === "gqa" ? 2 * layer.attention.headDim : layer.attention.vHeadDim * 2;
    flops += 2 * layer.attention.numHeads * width * attendedTokens(layer.attention, context);
  }
  return flops;
}

function peakFlops(evaluated: Evaluated): number {
  return evaluated.replicas.reduce(
    (sum, replica) =>
      sum +
      replica.classes.reduce(
        (inner, cls, stage) =>
          inner + (evaluated.stageModels[cls]?.rates.flops ?? 0) * (replica.blocks[stage]?.length ?? 0),
        0,
      ),
    0,
  );
}

function slowest(workload: Workload, evaluated: Evaluated): Replica | undefined {
  const [first, ...rest] = evaluated.replicas;
  return rest.reduce(
    (a, b) => (a !== undefined && batchUs(workload, b.times) <= batchUs(workload, a.times) ? a : b),
    first,
  );
}

function inferenceEstimates(context: Context, evaluated: Evaluated): InferenceEstimates {
  const { model, workload } = context;
  const replica = slowest(workload, evaluated);
  const { axes } = evaluated.candidate;
  const batch = totalBatch(workload, evaluated.candidate);
  const stepUs = replica?.times.stepUs ?? 0;
  const fillUs = replica?.times.fillUs ?? 0;
  const generates = workload.outputTokens > 0;
  const cost = replica === undefined ? NO_COST : pathCost(model, evaluated, replica, generates ? "decode" : "prefill");
  const wholeUs = generates ? stepUs : fillUs;
  // One decode step; one prefill pass through a pipeline, whose others are its bubble; every pass where there is none.
  const path = addCost(NO_COST, cost, generates || axes.pp > 1 ? 1 : evaluated.schedule.prefillPasses);
  const causes = parts(path, wholeUs - totalUs(path));
  const perSecond = generates && stepUs > 0 ? (batch * workload.tokensPerStep * 1e6) / stepUs : 0;
  const fraction = evaluated.stageModels[0]?.rates.achievable.memoryBandwidth ?? 1;
  const busyUs = (cost.memory * fraction * evaluated.schedule.decodeBatches) / axes.pp;
  const counted = batch * (generates ? 1 : workload.contextTokens);
  const flops = flopsPerToken(model, workload.promptTokens) * counted;
  return {
    kind: "inference",
    prefillMs: fillUs / 1e3,
    ttftMs: fillUs / 1e3,
    decodeStepMs: stepUs / 1e3,
    decodeTokensPerSecondPerUser: generates && stepUs > 0 ? (workload.tokensPerStep * 1e6) / stepUs : 0,
    decodeTokensPerSecond: perSecond,
    requestMs: (fillUs + (workload.outputTokens * stepUs) / workload.tokensPerStep) / 1e3,
    bottleneck: bottleneckOf(causes),
    breakdownMs: toMs(causes),
    memoryBandwidthUtilization: wholeUs > 0 ? clamp(busyUs / wholeUs) : 0,
    computeUtilization: wholeUs > 0 ? clamp(flops / (peakFlops(evaluated) * (wholeUs / 1e6))) : 0,
    throughputCurve: generates && replica !== undefined ? throughputCurve(context, evaluated, replica) : [],
  };
}

/** Decode speed of the same layout at other batch sizes, while memory lasts. */
function throughputCurve(
  context: Context,
  evaluated: Evaluated,
  replica: Replica,
): InferenceEstimates["throughputCurve"] {
  const { model, workload } = context;
  const { axes } = evaluated.candidate;
  const curve: { batch: number; decodeStepMs: number; tokensPerSecond: number }[] = [];
  const { bounds } = replica.split;
  for (let perReplica = 1; perReplica <= 1024; perReplica *= 2) {
    const candidate = { ...evaluated.candidate, batchPerReplica: perReplica };
    const models = evaluated.stageModels.map(
      (old) => new StageModel(context.cache, model, workload, candidate, old.blockClass, undefined),
    );
    let sumA = 0;
    let maxA = 0;
    for (let stage = 0; stage < axes.pp; stage++) {
      const stageModel = models[replica.classes[stage] ?? 0];
      const [first = 0, end = 0] = [bounds[stage], bounds[stage + 1]];
      if (
        stageModel === undefined ||
        stageModel.memoryBytes(first, end, stage) > stageModel.blockClass.kind.availableBytes
      )
        return curve;
      const hop = hopTimes(stageModel, replica.hops[stage])?.a ?? 0;
      const a = stageModel.time(first, end, stage === 0, stage === axes.pp - 1).a + hop;
      sumA += a;
      maxA = Math.max(maxA, a);
    }
    const schedule = models[0]?.schedule;
    if (schedule === undefined) return curve;
    const { stepUs } = replicaTimes(workload, schedule, { sumA, maxA, sumB: 0, maxB: 0, maxMemory: 0 });
    const batch = perReplica * axes.dp * axes.ep;
    curve.push({ batch, decodeStepMs: stepUs / 1e3, tokensPerSecond: (batch * 1e6) / stepUs });
  }
  return curve;
}

function trainingEstimates(context: Context, evaluated: Evaluated): TrainingEstimates {
  const { model, workload } = context;
  const replica = slowest(workload, evaluated);
  const stepUs = replica === undefined ? 0 : batchUs(workload, replica.times);
  const tokens = totalBatch(workload, evaluated.candidate) * workload.contextTokens;
  const cost = replica === undefined ? NO_COST : pathCost(model, evaluated, replica, "train");
  const { trainBatches } = evaluated.schedule;
  const { pp } = evaluated.candidate.axes;
  const steady = addCost(NO_COST, cost, trainBatches / pp);
  const sync = replica?.times.fillUs ?? 0;
  const causes = parts({ ...steady, communication: steady.communication + sync }, stepUs - sync - totalUs(steady));
  const { method } = workload;
  // Forward, and backward twice as long; frozen weights have no gradients, and frozen models no backward pass.
  const passes =
    method === undefined ? 3 : method.trainedModels * (method.adapter === undefined ? 3 : 2) + method.frozenModels;
  const flops = passes * flopsPerToken(model, workload.contextTokens / 2) * tokens;
  return {
    kind: "training",
    stepMs: stepUs / 1e3,
    tokensPerSecond: stepUs > 0 ? (tokens * 1e6) / stepUs : 0,
    mfu: stepUs > 0 ? clamp(flops / (peakFlops(evaluated) * (stepUs / 1e6))) : 0,
    bottleneck: bottleneckOf(causes),
    breakdownMs: toMs(causes),
    microbatches: trainBatches,
  };
}

/** What a plan says of its model. */
export function modelSummary(model: ModelSpec): ShardingPlan["model"] {
  const counts = countParameters(model);
  return {
    name: model.name,
    architecture: model.architecture,
    numParameters: counts.total,
    numActiveParameters: counts.active,
    numLayers: model.numLayers,
    hiddenSize: model.hiddenSize,
    vocabSize: model.vocabSize,
    numHeads: model.numHeads,
    numKvHeads: model.numKvHeads,
    assumptions: [...model.assumptions],
  };
}

function hostMemory({ fabric }: Context, evaluated: Evaluated): Pick<ShardingPlan["memory"], "host"> {
  const [fullest] = hostUse(evaluated, fabric);
  if (fullest === undefined) return {};
  const { bytes, availableBytes } = fullest;
  return { host: { bytes, ...(availableBytes === undefined ? {} : { availableBytes }) } };
}

/** What the plan runs on, where it is of one generation. */
function generationOfPlan({ stageModels }: Evaluated): { generation?: string } {
  const generations = new Set(stageModels.map(({ blockClass }) => generationOf(blockClass.kind.device)));
  const [only] = generations;
  return generations.size === 1 && only !== undefined ? { generation: only } : {};
}

/** Makes the plan. */
export function buildPlan(
  context: Context,
  evaluated: Evaluated,
  rejected: readonly Rejected[],
  extraNotes: readonly string[],
): ShardingPlan {
  const { model, workload, objective } = context;
  const { axes, batchPerReplica, zeroStage } = evaluated.candidate;
  const ranks = ranksOf(model, evaluated);
  const fullest = ranks.reduce((a, b) => (b.memory.totalBytes > a.memory.totalBytes ? b : a));
  const shared = Math.max(...evaluated.stageModels.map((stage) => stage.blockClass.kind.ranksPerDevice));
  const notes = [...new Set(evaluated.stageModels.flatMap((stage) => stage.rates.assumptions)), ...extraNotes];
  if (shared > 1) notes.push(`each device hosts ${shared} ranks, which share its memory, bandwidth and cores`);
  if (axes.tp > 1 && model.vocabSize % axes.tp !== 0) {
    notes.push(`the vocabulary of ${model.vocabSize} is padded to a multiple of tp=${axes.tp}`);
  }
  const [first] = evaluated.stageModels;
  if (workload.mode === "inference" && axes.tp > 1 && first?.rates.engine === "llama.cpp" && shared === 1) {
    notes.push(
      "llama.cpp's row mode is slower than its split by layers where it was measured (7B on 2x RTX 4090: 66 tokens/s, 149 on one): this estimate is too fast",
    );
  }
  const worldSize = PLAN_AXES.reduce((product, axis) => product * axes[axis], 1);
  return {
    schemaVersion: SHARDING_PLAN_SCHEMA_VERSION,
    model: modelSummary(model),
    workload: {
      mode: workload.mode,
      ...generationOfPlan(evaluated),
      ...(workload.method === undefined
        ? { engine: first?.rates.engine ?? "vllm" }
        : {
            method: workload.method.method,
            zeroStage,
            microBatch: evaluated.candidate.microBatch,
            checkpointing: evaluated.candidate.checkpointing,
            optimizer: workload.optimizer.name,
            precision: workload.trainPrecision,
            ...(evaluated.candidate.chunks > 1 ? { pipelineChunks: evaluated.candidate.chunks } : {}),
          }),
      weightFormat: workload.format.name,
      kvFormat: workload.kvName,
      activationFormat: workload.activationFormat,
      contextTokens: workload.contextTokens,
      promptTokens: workload.promptTokens,
      outputTokens: workload.outputTokens,
      batch: totalBatch(workload, evaluated.candidate),
      batchPerReplica,
    },
    objective,
    score: evaluated.score,
    mesh: { axes, order: [...PLAN_AXES] as ["dp", "pp", "ep", "cp", "tp"], worldSize, ranksPerDevice: shared },
    ranks,
    memory: {
      peakRankBytes: fullest.memory.totalBytes,
      totalBytes: ranks.reduce((sum, rank) => sum + rank.memory.totalBytes, 0),
      minHeadroomBytes: Math.min(...ranks.map((rank) => rank.memory.headroomBytes)),
      fullestRank: fullest.rank,
      ...hostMemory(context, evaluated),
    },
    estimates:
      workload.mode === "training" ? trainingEstimates(context, evaluated) : inferenceEstimates(context, evaluated),
    rejected: [...rejected],
    notes,
  };
}
