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
import { MEMORY_ITEMS, type MemoryItem, type PlanAxisSizes } from "../plan.ts";
import type { Workload } from "./workload.ts";

/** A layout to be judged: axes, sequences a replica (of one ep rank), ZeRO stage. */
export interface Candidate {
  readonly axes: PlanAxisSizes;
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
function scheduleOf(workload: Workload, candidate: Candidate): Schedule {
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

/**
 * Of what a rank holds of each layer, the part that ep cuts: the experts, which only replicas (dp) hold again. ZeRO spreads
 * it over dp, not over dp x ep. From the whole layers and the cut ones; nothing where ep cuts nothing.
 */
function cutByEp(whole: readonly number[], cut: readonly number[], ep: number): Float64Array {
  return prefix(cut.map((value, index) => (ep === 1 ? 0 : ((whole[index] ?? value) - value) / (ep - 1))));
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

/** What depends only on how the model is cut (tp, ep, cp) and on the class of blocks: shared by many candidates. */
interface Tables {
  readonly rates: Rates;
  readonly times: LayerTimes;
  /** For each layer kind, how many of the layers before an index are of that kind. */
  readonly counts: readonly Float64Array[];
  readonly weights: Float64Array;
  readonly elements: Float64Array;
  readonly adapters: Float64Array;
  /** The experts' part of weights, elements and adapters, where ep cuts them. Training only. */
  readonly expertWeights: Float64Array;
  readonly expertElements: Float64Array;
  readonly expertAdapters: Float64Array;
  /** Of one sequence. */
  readonly kv: Float64Array;
  /** Of one sequence. */
  readonly saved: Float64Array;
  /** [embeddings, head, tied head] */
  readonly endWeights: readonly [number, number, number];
  readonly endElements: readonly [number, number, number];
}

/** Remembers tables during one search. */
export class TableCache {
  readonly #model: ModelSpec;
  readonly #workload: Workload;
  /** By the links of a class: its kind and links decide, not which blocks it lists. */
  readonly #tables = new Map<BlockClass["links"], Map<string, Tables>>();
  readonly #counts: readonly Float64Array[];

  constructor(model: ModelSpec, workload: Workload) {
    this.#model = model;
    this.#workload = workload;
    this.#counts = model.layerKinds.map((_, kind) => prefix(model.layers.map((own) => (own === kind ? 1 : 0))));
  }

  get(blockClass: BlockClass, { tp, ep, cp }: PlanAxisSizes): Tables {
    const key = `${tp} ${ep} ${cp}`;
    let ofClass = this.#tables.get(blockClass.links);
    if (ofClass === undefined) {
      ofClass = new Map();
      this.#tables.set(blockClass.links, ofClass);
    }
    let tables = ofClass.get(key);
    if (tables === undefined) {
      tables = this.#make(blockClass, tp, ep, cp);
      ofClass.set(key, tables);
    }
    return tables;
  }

  #make({ kind, links }: BlockClass, tp: number, ep: number, cp: number): Tables {
    const model = this.#model;
    const { format, kv, activationBytes, method, contextTokens, checkpointing, mode } = this.#workload;
    const rates = ratesOf(kind.device, format.compute, kind.ranksPerDevice);
    const weights = weightBytes(model, format, tp, ep);
    const training = mode === "training";
    const elements = training ? shardElements(model, tp, ep) : undefined;
    const perKind = (value: (kindIndex: number) => number) => {
      const values = model.layerKinds.map((_, index) => value(index));
      return model.layers.map((index) => values[index] ?? 0);
    };
    const adaptersAt = (ways: number) =>
      method?.adapter === undefined ? [] : perKind((index) => adapterElements(model, index, method, tp, ways));
    const adapters = adaptersAt(ep);
    return {
      rates,
      times: new LayerTimes({ model, format, kv, activationBytes, tp, ep, cp, links, rates }),
      counts: this.#counts,
      weights: prefix(weights.layers),
      elements: prefix(elements?.layers ?? []),
      adapters: prefix(adapters),
      expertWeights: cutByEp(training ? weightBytes(model, format, tp, 1).layers : [], weights.layers, ep),
      expertElements: cutByEp(training ? shardElements(model, tp, 1).layers : [], elements?.layers ?? [], ep),
      expertAdapters: cutByEp(adaptersAt(1), adapters, ep),
      kv: prefix(training ? [] : kvBytesByLayer(model, { contextTokens, sequences: 1, tp, cp, format: kv })),
      saved: prefix(
        training
          ? perKind((index) => {
              const layer = model.layerKinds[index];
              const perToken =
                layer === undefined ? 0 : savedBytesPerToken(model, layer, tp, activationBytes, checkpointing);
              return (perToken * contextTokens) / cp;
            })
          : [],
      ),
      endWeights: [weights.embeddings, weights.head, weights.tiedHead],
      endElements: [elements?.embeddings ?? 0, elements?.head ?? 0, elements?.tiedHead ?? 0],
    };
  }
}

/** Index of each item in MEMORY_ITEMS. */
const AT = Object.fromEntries(MEMORY_ITEMS.map((name, index) => [name, index])) as Readonly<Record<MemoryItem, number>>;

export class StageModel {
  readonly model: ModelSpec;
  readonly workload: Workload;
  readonly candidate: Candidate;
  readonly blockClass: BlockClass;
  readonly schedule: Schedule;
  readonly rates: Rates;
  readonly #tables: Tables;
  readonly #dpLink: GroupLink | undefined;
  /** By layer kind. */
  readonly #layerTimes: readonly StageTime[];
  readonly #items = new Float64Array(MEMORY_ITEMS.length);
  readonly #fixed: {
    readonly activations: number;
    readonly logits: number;
    readonly buffers: number;
    readonly reserve: number;
  };
  readonly #embedding: StageTime;
  readonly #head: StageTime;

  constructor(
    cache: TableCache,
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
    this.#tables = cache.get(blockClass, candidate.axes);
    this.rates = this.#tables.rates;
    this.#layerTimes = model.layerKinds.map((_, index) => this.#timeOf((phase) => this.layerCost(index, phase)));
    this.#embedding = this.#timeOf((phase) => this.endCost("embedding", phase));
    this.#head = this.#timeOf((phase) => this.endCost("head", phase));
    this.#fixed = this.#fixedMemory();
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
    if (phase === "train") return addCost(NO_COST, this.#tables.times.layer(kind, this.#trainPass), this.#trainFactor);
    if (phase === "decode") return this.#tables.times.layer(kind, this.#decodePass);
    return this.#tables.times.layer(kind, this.#prefillPass);
  }

  endCost(which: "embedding" | "head", phase: "decode" | "prefill" | "train"): Cost {
    const pass = phase === "train" ? this.#trainPass : phase === "decode" ? this.#decodePass : this.#prefillPass;
    return addCost(NO_COST, this.#tables.times[which](pass), phase === "train" ? this.#trainFactor : 1);
  }

  #timeOf(cost: (phase: "decode" | "prefill" | "train") => Cost): StageTime {
    if (this.workload.mode === "training") return { a: totalUs(cost("train")), b: 0 };
    return { a: this.workload.outputTokens > 0 ? totalUs(cost("decode")) : 0, b: totalUs(cost("prefill")) };
  }

  /** Time of layers [first, end), with the embedding or the head where the stage has them. */
  time(first: number, end: number, isFirst: boolean, isLast: boolean): StageTime {
    let a = (isFirst ? this.#embedding.a : 0) + (isLast ? this.#head.a : 0);
    let b = (isFirst ? this.#embedding.b : 0) + (isLast ? this.#head.b : 0);
    for (const [kind, time] of this.#layerTimes.entries()) {
      const sums = this.#tables.counts[kind];
      const count = sums === undefined ? 0 : between(sums, first, end);
      a += count * time.a;
      b += count * time.b;
    }
    if (this.workload.mode !== "training") return { a, b };
    const { zero, sync } = this.#exchange(first, end, isFirst, isLast);
    return { a: a + zero, b: b + sync };
  }

  #trained(first: number, end: number, isFirst: boolean, isLast: boolean): number {
    const method = this.workload.method;
    if (method === undefined) return 0;
    if (method.adapter !== undefined) return between(this.#tables.adapters, first, end);
    return this.#all(first, end, isFirst, isLast) * method.trainedModels;
  }

  /** The part of `#trained` that ep cuts. */
  #trainedExperts(first: number, end: number): number {
    const method = this.workload.method;
    if (method === undefined) return 0;
    if (method.adapter !== undefined) return between(this.#tables.expertAdapters, first, end);
    return between(this.#tables.expertElements, first, end) * method.trainedModels;
  }

  /** What a rank keeps of `all` from a ZeRO stage on: experts are spread over dp, all else over dp x ep. */
  #kept(all: number, experts: number, from: ZeroStage): number {
    const { axes, zeroStage } = this.candidate;
    return zeroStage >= from ? (all - experts) / (axes.dp * axes.ep) + experts / axes.dp : all;
  }

  #all(first: number, end: number, isFirst: boolean, isLast: boolean): number {
    const [embedding, head, tied] = this.#tables.endElements;
    return (
      between(this.#tables.elements, first, end) +
      (isFirst ? embedding : 0) +
      (isLast ? head + (isFirst ? 0 : tied) : 0)
    );
  }

  /** What data parallelism costs: ZeRO-3's gathers every microbatch, gradients and optimizer once a step. */
  #exchange(first: number, end: number, isFirst: boolean, isLast: boolean): { zero: number; sync: number } {
    const { axes, zeroStage } = this.candidate;
    const group = axes.dp * axes.ep;
    const trained = this.#trained(first, end, isFirst, isLast);
    const experts = this.#trainedExperts(first, end);
    const states = this.#kept(trained, experts, 1) * (GRADIENT_BYTES + 2 * OPTIMIZER_BYTES + 2 * MASTER_BYTES);
    const optimizer = (states / (this.rates.bandwidth * this.rates.achievable.memoryBandwidth)) * 1e6;
    if (group === 1) return { zero: 0, sync: optimizer };
    const exchangeUs = (elements: number, ranks: number) =>
      zeroStage === 0
        ? allReduceUs(elements * GRADIENT_BYTES, ranks, this.#dpLink)
        : reduceScatterUs(elements * GRADIENT_BYTES, ranks, this.#dpLink) +
          allGatherUs(elements * GRADIENT_BYTES, ranks, this.#dpLink);
    const gradients = exchangeUs(trained - experts, group) + (experts > 0 ? exchangeUs(experts, axes.dp) : 0);
    const all = this.#all(first, end, isFirst, isLast);
    const allExperts = between(this.#tables.expertElements, first, end);
    const gatherUs =
      allGatherUs((all - allExperts) * 2, group, this.#dpLink) +
      (allExperts > 0 ? allGatherUs(allExperts * 2, axes.dp, this.#dpLink) : 0);
    const gathers = zeroStage === 3 ? 2 * gatherUs * (1 - GATHER_OVERLAP) : 0;
    return { zero: gathers, sync: optimizer + gradients * (1 - GRADIENT_OVERLAP) };
  }

  /** Memory of one rank of the stage, item by item; items of nothing are absent. */
  memory(first: number, end: number, stage: number): Partial<Record<MemoryItem, number>> {
    this.#fill(first, end, stage);
    const items: Partial<Record<MemoryItem, number>> = {};
    for (const [index, name] of MEMORY_ITEMS.entries()) {
      const bytes = this.#items[index] ?? 0;
      if (bytes > 0) items[name] = bytes;
    }
    return items;
  }

  /** Sum of `memory`, without making an object: the search asks a million times. */
  memoryBytes(first: number, end: number, stage: number): number {
    this.#fill(first, end, stage);
    let sum = 0;
    for (const bytes of this.#items) sum += bytes;
    return sum;
  }

  /** Writes whole bytes by item into `#items`, in the order of MEMORY_ITEMS. */
  #fill(first: number, end: number, stage: number): void {
    const items = this.#items;
    items.fill(0);
    const { pp } = this.candidate.axes;
    const [isFirst, isLast] = [stage === 0, stage === pp - 1];
    const [embedding, head, tied] = this.#tables.endWeights;
    const weights =
      between(this.#tables.weights, first, end) +
      (isFirst ? embedding : 0) +
      (isLast ? head + (isFirst ? 0 : tied) : 0);
    if (this.workload.mode === "training") this.#fillTraining(weights, first, end, stage);
    else {
      items[AT.weights] = weights;
      items[AT.kvCache] = between(this.#tables.kv, first, end) * this.candidate.batchPerReplica;
      items[AT.activations] = this.#fixed.activations;
    }
    if (isLast) items[AT.logits] = this.#fixed.logits;
    items[AT.communicationBuffers] = this.#fixed.buffers;
    let sum = 0;
    for (const bytes of items) sum += bytes;
    items[AT.fragmentation] = sum * FRAGMENTATION;
    items[AT.frameworkReserve] = this.#fixed.reserve;
    for (let index = 0; index < items.length; index++) items[index] = Math.ceil(items[index] ?? 0);
  }

  #fillTraining(weights: number, first: number, end: number, stage: number): void {
    const items = this.#items;
    const { axes } = this.candidate;
    const method = this.workload.method;
    const trained = this.#trained(first, end, stage === 0, stage === axes.pp - 1);
    const experts = this.#trainedExperts(first, end);
    const kept = this.#kept(weights, between(this.#tables.expertWeights, first, end), 3);
    // One forward, one backward: a stage holds as many microbatches as there are stages from it to the end.
    const inFlight = Math.min(axes.pp - stage, this.schedule.trainBatches);
    items[AT.weights] = kept * (method?.trainedModels ?? 1);
    items[AT.referenceModels] = kept * (method?.frozenModels ?? 0);
    items[AT.adapters] = method?.adapter === undefined ? 0 : this.#kept(trained, experts, 3) * 2;
    items[AT.gradients] = this.#kept(trained, experts, 2) * GRADIENT_BYTES;
    items[AT.optimizerStates] = this.#kept(trained, experts, 1) * OPTIMIZER_BYTES;
    items[AT.masterWeights] = this.#kept(trained, experts, 1) * MASTER_BYTES;
    items[AT.activations] = between(this.#tables.saved, first, end) * inFlight + this.#fixed.activations;
  }

  /** What does not depend on the layers. */
  #fixedMemory(): { activations: number; logits: number; buffers: number; reserve: number } {
    const { model, workload, schedule } = this;
    const { axes } = this.candidate;
    const training = workload.mode === "training";
    const tokens = training
      ? Math.ceil(workload.contextTokens / axes.cp)
      : Math.max(Math.ceil(schedule.prefillTokens / axes.cp), schedule.decodeSequences);
    const rows = training ? tokens : Math.max(schedule.decodeSequences, schedule.prefillSequences);
    const onCpu = this.blockClass.kind.device.family === "cpu";
    const sizes = [axes.tp, axes.pp, axes.ep, axes.cp, training ? axes.dp : 1];
    const numAxes = sizes.filter((size) => size > 1).length;
    return {
      activations: forwardBytes(model, tokens, axes.tp, workload.activationBytes),
      logits: logitsBytes(model, rows, axes.tp, workload.activationBytes),
      buffers: numAxes * (onCpu ? COMMUNICATOR_BYTES.cpu : COMMUNICATOR_BYTES.accelerator),
      reserve: onCpu ? FRAMEWORK_RESERVE_BYTES.cpu : FRAMEWORK_RESERVE_BYTES.accelerator,
    };
  }

  /** What the fullest of `pp` stages holds at least: an even share of what grows with the layers. */
  leastMemoryBytes(): number {
    const { numLayers } = this.model;
    const { axes } = this.candidate;
    const { group, zeroStage } = { group: axes.dp * axes.ep, zeroStage: this.candidate.zeroStage };
    const weights = between(this.#tables.weights, 0, numLayers) / (zeroStage === 3 ? group : 1);
    return (weights + between(this.#tables.kv, 0, numLayers) * this.candidate.batchPerReplica) / axes.pp;
  }
}
