/**
 * One pipeline stage as the search sees it: for layers [first, end) of the model on one class of devices, its time and
 * its memory, both from prefix sums over the layers.
 */

import { allGatherUs, allReduceUs, reduceScatterUs } from "../cost/collectives.ts";
import {
  COMMUNICATOR_BYTES,
  FRAGMENTATION,
  FRAMEWORK_RESERVE_BYTES,
  GATHER_OVERLAP,
  GRADIENT_OVERLAP,
  PREFILL_CHUNK_TOKENS,
} from "../cost/constants.ts";
import { type Rates, ratesOf } from "../cost/device-rates.ts";
import { addCost, type Cost, LayerTimes, NO_COST, type Pass, totalUs } from "../cost/layer-time.ts";
import { forwardBytes, logitsBytes, savedBytesPerToken } from "../memory/activations.ts";
import { kvBytesByLayer } from "../memory/kv-cache.ts";
import { adapterElements, GRADIENT_BYTES, MASTER_BYTES, OPTIMIZER_BYTES, type ZeroStage } from "../memory/training.ts";
import { shardElements, weightBytes } from "../memory/weights.ts";
import type { ModelSpec } from "../model/spec.ts";
import type { BlockClass } from "../placement/blocks.ts";
import type { GroupLink } from "../placement/fabric.ts";
import type { AxisSizes, MemoryItem } from "../plan.ts";
import type { Workload } from "./workload.ts";

/** A layout to be judged: axes, sequences a replica (of one ep rank), ZeRO stage. */
export interface Candidate {
  readonly axes: AxisSizes;
  readonly batchPerReplica: number;
  readonly zeroStage: ZeroStage;
}

/** How a batch goes through the pipeline. */
export interface Schedule {
  /** Microbatches that decode in turns, and sequences in each. */
  readonly decodeBatches: number;
  readonly decodeSequences: number;
  /** Passes of a prefill, and tokens and sequences in each. */
  readonly prefillPasses: number;
  readonly prefillTokens: number;
  readonly prefillSequences: number;
  /** Microbatches of one training step, of one sequence each. */
  readonly trainBatches: number;
}

/** Splits a replica's batch into what passes through the pipeline at once. */
export function scheduleOf(workload: Workload, candidate: Candidate): Schedule {
  const batch = candidate.batchPerReplica;
  const { pp } = candidate.axes;
  const decodeBatches = Math.min(pp, batch);
  const prompt = workload.promptTokens;
  let perPass = Math.max(1, Math.min(batch, Math.floor(PREFILL_CHUNK_TOKENS / prompt)));
  perPass = Math.min(perPass, Math.ceil(batch / Math.min(batch, pp)));
  const chunks = Math.ceil(prompt / PREFILL_CHUNK_TOKENS);
  return {
    decodeBatches,
    decodeSequences: Math.ceil(batch / decodeBatches),
    prefillPasses: chunks > 1 ? batch * chunks : Math.ceil(batch / perPass),
    prefillTokens: chunks > 1 ? Math.ceil(prompt / chunks) : perPass * prompt,
    prefillSequences: chunks > 1 ? 1 : perPass,
    trainBatches: batch,
  };
}

function prefix(values: readonly number[]): Float64Array {
  const sums = new Float64Array(values.length + 1);
  for (const [index, value] of values.entries()) sums[index + 1] = (sums[index] ?? 0) + value;
  return sums;
}

const between = (sums: Float64Array, first: number, end: number) => (sums[end] ?? 0) - (sums[first] ?? 0);

/**
 * Times of a stage. Inference: `a` one decode microbatch, `b` one prefill pass. Training: `a` one microbatch forward
 * and backward, `b` what follows the last microbatch (gradient exchange, optimizer step).
 */
export interface StageTime {
  readonly a: number;
  readonly b: number;
}

export class StageModel {
  readonly model: ModelSpec;
  readonly workload: Workload;
  readonly candidate: Candidate;
  readonly blockClass: BlockClass;
  readonly schedule: Schedule;
  readonly rates: Rates;
  readonly #times: LayerTimes;
  readonly #dpLink: GroupLink | undefined;
  readonly #a: Float64Array;
  readonly #b: Float64Array;
  readonly #weights: Float64Array;
  readonly #elements: Float64Array;
  readonly #adapters: Float64Array;
  readonly #kv: Float64Array;
  readonly #saved: Float64Array;
  readonly #ends: {
    readonly weights: readonly [number, number, number];
    readonly elements: readonly [number, number, number];
  };
  readonly #endTimes: { readonly embedding: StageTime; readonly head: StageTime };

  constructor(
    model: ModelSpec,
    workload: Workload,
    candidate: Candidate,
    blockClass: BlockClass,
    dpLink: GroupLink | undefined,
  ) {
    this.model = model;
    this.workload = workload;
    this.candidate = candidate;
    this.blockClass = blockClass;
    this.schedule = scheduleOf(workload, candidate);
    this.#dpLink = dpLink;
    const { tp, ep, cp } = candidate.axes;
    const { kind, links } = blockClass;
    this.rates = ratesOf(kind.device, workload.format.compute, kind.ranksPerDevice);
    const { format, kv, activationBytes } = workload;
    this.#times = new LayerTimes({ model, format, kv, activationBytes, tp, ep, cp, links, rates: this.rates });
    const byKind = model.layerKinds.map((_, index) => this.#layerTimes(index));
    this.#a = prefix(model.layers.map((index) => byKind[index]?.a ?? 0));
    this.#b = prefix(model.layers.map((index) => byKind[index]?.b ?? 0));
    const weights = weightBytes(model, format, tp, ep);
    this.#weights = prefix(weights.layers);
    const training = workload.mode === "training";
    const elements = training ? shardElements(model, tp, ep) : undefined;
    this.#elements = prefix(elements?.layers ?? []);
    const { method } = workload;
    this.#adapters = prefix(
      method?.adapter === undefined ? [] : model.layers.map((index) => adapterElements(model, index, method, tp, ep)),
    );
    this.#ends = {
      weights: [weights.embeddings, weights.head, weights.tiedHead],
      elements: [elements?.embeddings ?? 0, elements?.head ?? 0, elements?.tiedHead ?? 0],
    };
    this.#kv = prefix(
      training
        ? []
        : kvBytesByLayer(model, {
            contextTokens: workload.contextTokens,
            sequences: candidate.batchPerReplica,
            tp,
            cp,
            format: kv,
          }),
    );
    this.#saved = prefix(
      training
        ? model.layers.map((index) => {
            const layer = model.layerKinds[index];
            const perToken =
              layer === undefined ? 0 : savedBytesPerToken(model, layer, tp, activationBytes, workload.checkpointing);
            return (perToken * workload.contextTokens) / cp;
          })
        : [],
    );
    this.#endTimes = { embedding: this.#endTime("embedding"), head: this.#endTime("head") };
  }

  get #decodePass(): Pass {
    const { decodeSequences: n } = this.schedule;
    // Half of the output has been written on average when a token is decoded.
    const context = this.workload.promptTokens + this.workload.outputTokens / 2;
    return { tokens: n, sequences: n, context, isPrefill: false };
  }

  get #prefillPass(): Pass {
    const { prefillTokens: tokens, prefillSequences: sequences } = this.schedule;
    const causal = this.model.isDecoder ? 0.5 : 1;
    return { tokens, sequences, context: this.workload.promptTokens * causal, isPrefill: true };
  }

  get #trainPass(): Pass {
    const { contextTokens } = this.workload;
    return { tokens: contextTokens, sequences: contextTokens, context: contextTokens / 2, isPrefill: true };
  }

  /** Forward passes that the arithmetic of a training step is worth: 3 for full, 2 where weights are frozen. */
  get #trainFactor(): number {
    const method = this.workload.method;
    if (method === undefined) return 1;
    const recompute = this.workload.checkpointing === "full" ? 1 : 0;
    const own = method.adapter === undefined ? 3 : 2;
    return method.trainedModels * (own + recompute) + method.frozenModels;
  }

  /** The parts of one layer's time, for the breakdown. */
  layerCost(kind: number, phase: "decode" | "prefill" | "train"): Cost {
    if (phase === "train") return addCost(NO_COST, this.#times.layer(kind, this.#trainPass), this.#trainFactor);
    if (phase === "decode") return this.#times.layer(kind, this.#decodePass);
    return this.#times.layer(kind, this.#prefillPass);
  }

  endCost(which: "embedding" | "head", phase: "decode" | "prefill" | "train"): Cost {
    const pass = phase === "train" ? this.#trainPass : phase === "decode" ? this.#decodePass : this.#prefillPass;
    return addCost(NO_COST, this.#times[which](pass), phase === "train" ? this.#trainFactor : 1);
  }

  #layerTimes(kind: number): StageTime {
    if (this.workload.mode === "training") return { a: totalUs(this.layerCost(kind, "train")), b: 0 };
    const a = this.workload.outputTokens > 0 ? totalUs(this.layerCost(kind, "decode")) : 0;
    return { a, b: totalUs(this.layerCost(kind, "prefill")) };
  }

  #endTime(which: "embedding" | "head"): StageTime {
    if (this.workload.mode === "training") return { a: totalUs(this.endCost(which, "train")), b: 0 };
    const a = this.workload.outputTokens > 0 ? totalUs(this.endCost(which, "decode")) : 0;
    return { a, b: totalUs(this.endCost(which, "prefill")) };
  }

  /** Time of layers [first, end), with the embedding or the head where the stage has them. */
  time(first: number, end: number, isFirst: boolean, isLast: boolean): StageTime {
    const { embedding, head } = this.#endTimes;
    const a = between(this.#a, first, end) + (isFirst ? embedding.a : 0) + (isLast ? head.a : 0);
    const b = between(this.#b, first, end) + (isFirst ? embedding.b : 0) + (isLast ? head.b : 0);
    if (this.workload.mode !== "training") return { a, b };
    const { zero, sync } = this.#exchange(first, end, isFirst, isLast);
    return { a: a + zero, b: b + sync };
  }

  #trained(first: number, end: number, isFirst: boolean, isLast: boolean): number {
    const method = this.workload.method;
    if (method === undefined) return 0;
    if (method.adapter !== undefined) return between(this.#adapters, first, end);
    return this.#all(first, end, isFirst, isLast) * method.trainedModels;
  }

  #all(first: number, end: number, isFirst: boolean, isLast: boolean): number {
    const [embedding, head, tied] = this.#ends.elements;
    return between(this.#elements, first, end) + (isFirst ? embedding : 0) + (isLast ? head + (isFirst ? 0 : tied) : 0);
  }

  /** What data parallelism costs: ZeRO-3's gathers every microbatch, gradients and optimizer once a step. */
  #exchange(first: number, end: number, isFirst: boolean, isLast: boolean): { zero: number; sync: number } {
    const { axes, zeroStage } = this.candidate;
    const group = axes.dp * axes.ep;
    const trained = this.#trained(first, end, isFirst, isLast);
    const shards = zeroStage >= 1 ? group : 1;
    const states = (trained * (GRADIENT_BYTES + 2 * OPTIMIZER_BYTES + 2 * MASTER_BYTES)) / shards;
    const optimizer = (states / (this.rates.bandwidth * this.rates.achievable.memoryBandwidth)) * 1e6;
    if (group === 1) return { zero: 0, sync: optimizer };
    const bytes = trained * GRADIENT_BYTES;
    const gradients =
      zeroStage === 0
        ? allReduceUs(bytes, group, this.#dpLink)
        : reduceScatterUs(bytes, group, this.#dpLink) + allGatherUs(bytes, group, this.#dpLink);
    const gathers =
      zeroStage === 3
        ? 2 * allGatherUs(this.#all(first, end, isFirst, isLast) * 2, group, this.#dpLink) * (1 - GATHER_OVERLAP)
        : 0;
    return { zero: gathers, sync: optimizer + gradients * (1 - GRADIENT_OVERLAP) };
  }

  /** Memory of one rank of the stage, item by item. */
  memory(first: number, end: number, stage: number): Partial<Record<MemoryItem, number>> {
    const { axes } = this.candidate;
    const isFirst = stage === 0;
    const isLast = stage === axes.pp - 1;
    const [embedding, head, tied] = this.#ends.weights;
    const weights =
      between(this.#weights, first, end) + (isFirst ? embedding : 0) + (isLast ? head + (isFirst ? 0 : tied) : 0);
    const items: Partial<Record<MemoryItem, number>> =
      this.workload.mode === "training"
        ? this.#trainingItems(weights, first, end, stage)
        : this.#inferenceItems(weights, first, end, isLast);
    const onCpu = this.blockClass.kind.device.family === "cpu";
    const numAxes = [axes.tp, axes.pp, axes.ep, axes.cp, this.workload.mode === "training" ? axes.dp : 1].filter(
      (n) => n > 1,
    ).length;
    items.communicationBuffers = numAxes * (onCpu ? COMMUNICATOR_BYTES.cpu : COMMUNICATOR_BYTES.accelerator);
    items.fragmentation = Object.values(items).reduce((sum, bytes) => sum + bytes, 0) * FRAGMENTATION;
    items.frameworkReserve = onCpu ? FRAMEWORK_RESERVE_BYTES.cpu : FRAMEWORK_RESERVE_BYTES.accelerator;
    for (const [item, bytes] of Object.entries(items) as [MemoryItem, number][]) {
      if (bytes > 0) items[item] = Math.ceil(bytes);
      else delete items[item];
    }
    return items;
  }

  #inferenceItems(weights: number, first: number, end: number, isLast: boolean): Partial<Record<MemoryItem, number>> {
    const { model, workload, schedule } = this;
    const { tp, cp } = this.candidate.axes;
    const tokens = Math.max(Math.ceil(schedule.prefillTokens / cp), schedule.decodeSequences);
    return {
      weights,
      kvCache: between(this.#kv, first, end),
      activations: forwardBytes(model, tokens, tp, workload.activationBytes),
      logits: isLast
        ? logitsBytes(
            model,
            Math.max(schedule.decodeSequences, schedule.prefillSequences),
            tp,
            workload.activationBytes,
          )
        : 0,
    };
  }

  #trainingItems(weights: number, first: number, end: number, stage: number): Partial<Record<MemoryItem, number>> {
    const { model, workload, schedule } = this;
    const { axes, zeroStage } = this.candidate;
    const method = workload.method;
    const isFirst = stage === 0;
    const isLast = stage === axes.pp - 1;
    const group = axes.dp * axes.ep;
    const share = (from: ZeroStage) => (zeroStage >= from ? group : 1);
    const trained = this.#trained(first, end, isFirst, isLast);
    const tokens = Math.ceil(workload.contextTokens / axes.cp);
    // One forward, one backward: a stage holds as many microbatches as there are stages from it to the end.
    const inFlight = Math.min(axes.pp - stage, schedule.trainBatches);
    return {
      weights: (weights * (method?.trainedModels ?? 1)) / share(3),
      referenceModels: (weights * (method?.frozenModels ?? 0)) / share(3),
      adapters: method?.adapter === undefined ? 0 : (trained * 2) / share(3),
      gradients: (trained * GRADIENT_BYTES) / share(2),
      optimizerStates: (trained * OPTIMIZER_BYTES) / share(1),
      masterWeights: (trained * MASTER_BYTES) / share(1),
      activations:
        between(this.#saved, first, end) * inFlight + forwardBytes(model, tokens, axes.tp, workload.activationBytes),
      logits: isLast ? logitsBytes(model, tokens, axes.tp, workload.activationBytes) : 0,
    };
  }

  /** Sum of `memory`. */
  memoryBytes(first: number, end: number, stage: number): number {
    return Object.values(this.memory(first, end, stage)).reduce((sum, bytes) => sum + bytes, 0);
  }
}
