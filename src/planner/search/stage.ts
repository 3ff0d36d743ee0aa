/**
 * One pipeline stage as the search sees it: for layers [first, end) of the model on one class of devices, its time and
 * its memory, both from prefix sums over the layers.
 */

import { allGatherUs, allReduceUs, reduceScatterUs } from "../cost/collectives.ts";
import { COMMUNICATOR_BYTES, FRAGMENTATION, FRAMEWORK_RESERVE_BYTES, HOST_BANDWIDTH } from "../cost/constants.ts";
import type { Rates } from "../cost/device-rates.ts";
import { addCost, type Cost, NO_COST, type Pass, totalUs } from "../cost/layer-time.ts";
import { type Checkpointing, forwardBytes, logitsBytes, lossBytes, savedBytesPerToken } from "../memory/activations.ts";
import type { ZeroStage } from "../memory/training.ts";
import type { ModelSpec } from "../model/spec.ts";
import type { BlockClass } from "../placement/blocks.ts";
import type { GroupLink } from "../placement/fabric.ts";
import { MEMORY_ITEMS, type MemoryItem } from "../plan.ts";
import { type Candidate, type Schedule, scheduleOf } from "./schedule.ts";
import { between, type TableCache, type Tables } from "./stage-tables.ts";
import type { Workload } from "./workload.ts";

/** Cards of less are PCs' and workstations'. */
const SMALL_CARD_BYTES = 64 * 1024 ** 3;
/** Share of a forward pass that is computed again. */
const RECOMPUTED: Readonly<Record<Checkpointing, number>> = { none: 0, selective: 0.08, full: 1 };
/**
 * Times of a stage. Inference: `a` one decode microbatch, `b` one prefill pass. Training: `a` one microbatch forward
 * and backward, `b` what follows the last microbatch (gradient exchange, optimizer step).
 */
export interface StageTime {
  readonly a: number;
  readonly b: number;
}
/** Index of each item in MEMORY_ITEMS. */
const AT = Object.fromEntries(MEMORY_ITEMS.map((name, index) => [name, index])) as Readonly<Record<MemoryItem, number>>;

/** What a stage holds whatever its layers are, in bytes. */
interface FixedMemory {
  readonly activations: number;
  readonly logits: number;
  readonly chunkedLogits: number;
  readonly buffers: number;
  readonly reserve: number;
}

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
  // Made when memory is asked for: most candidates of a search are dismissed by their time.
  #filled: Float64Array | undefined;
  #fixedOnce: FixedMemory | undefined;
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
    this.#dpLink = dpLink;
    this.#tables = cache.get(blockClass, candidate.axes);
    this.rates = this.#tables.rates;
    this.schedule = scheduleOf(workload, candidate, this.rates.engine);
    this.#layerTimes = model.layerKinds.map((_, index) => this.#timeOf((phase) => this.layerCost(index, phase)));
    this.#embedding = this.#timeOf((phase) => this.endCost("embedding", phase));
    this.#head = this.#timeOf((phase) => this.endCost("head", phase));
  }

  get #items(): Float64Array {
    this.#filled ??= new Float64Array(MEMORY_ITEMS.length);
    return this.#filled;
  }

  get #fixed(): FixedMemory {
    this.#fixedOnce ??= this.#fixedMemory();
    return this.#fixedOnce;
  }

  get #decodePass(): Pass {
    const { decodeSequences: n } = this.schedule;
    // Half of the output has been written on average when a token is decoded.
    const context = this.workload.promptTokens + this.workload.outputTokens / 2;
    // The model checks what the draft proposed, and one token more.
    const tokens = n * (1 + (this.workload.speculation?.tokens ?? 0));
    return { tokens, sequences: n, context, isPrefill: false };
  }

  get #prefillPass(): Pass {
    const { prefillTokens: tokens, prefillSequences: sequences } = this.schedule;
    const causal = this.model.isDecoder ? 0.5 : 1;
    return { tokens, sequences, context: this.workload.promptTokens * causal, isPrefill: true };
  }

  get #trainPass(): Pass {
    const { contextTokens } = this.workload;
    const tokens = contextTokens * this.candidate.microBatch;
    return { tokens, sequences: tokens, context: contextTokens / 2, isPrefill: true, isTraining: true };
  }

  /** Forward passes that the arithmetic of a training step is worth: 3 for full, 2 where weights are frozen. */
  get #trainFactor(): number {
    const method = this.workload.method;
    if (method === undefined) return 1;
    const recompute = RECOMPUTED[this.candidate.checkpointing];
    const own = method.adapter === undefined ? 3 : 2;
    return method.trainedModels * (own + recompute) + method.frozenModels;
  }

  /** The parts of one layer's time, for the breakdown. */
  layerCost(kind: number, phase: "decode" | "prefill" | "train"): Readonly<Cost> {
    if (phase === "train") return addCost(NO_COST, this.#tables.times.layer(kind, this.#trainPass), this.#trainFactor);
    if (phase === "decode") return this.#tables.times.layer(kind, this.#decodePass);
    return this.#tables.times.layer(kind, this.#prefillPass);
  }

  endCost(which: "embedding" | "head", phase: "decode" | "prefill" | "train"): Readonly<Cost> {
    const pass = phase === "train" ? this.#trainPass : phase === "decode" ? this.#decodePass : this.#prefillPass;
    return addCost(NO_COST, this.#tables.times[which](pass), phase === "train" ? this.#trainFactor : 1);
  }

  #timeOf(cost: (phase: "decode" | "prefill" | "train") => Readonly<Cost>): StageTime {
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
    if (this.workload.mode !== "training") {
      // Microbatches that take turns are never quite alike, and each waits for the slowest.
      const { decodeBatches } = this.schedule;
      const lost = 1 + this.rates.achievable.pipelineLoss * (1 - 1 / decodeBatches);
      return { a: a * lost, b: b * lost };
    }
    const { zero, sync } = this.#exchange(first, end, isFirst, isLast);
    if (this.workload.offload !== "all") return { a: a + zero, b: b + sync };
    // Weights come from the host for the forward and for the backward pass, behind the computation of the layer before.
    const streamed = 2 * between(this.#tables.weights, first, end) * (this.workload.method?.trainedModels ?? 1);
    return { a: Math.max(a, (streamed / HOST_BANDWIDTH) * 1e6) + zero, b: b + sync };
  }

  /** What any stage of so many layers takes at least, whichever layers they are, without its ends and exchanges. */
  leastTime(numLayers: number): StageTime {
    return {
      a: numLayers * Math.min(...this.#layerTimes.map(({ a }) => a)),
      b: numLayers * Math.min(...this.#layerTimes.map(({ b }) => b)),
    };
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

  /** What a rank keeps of `all` from a ZeRO stage on: experts are spread over dp x cp, all else over dp x ep x cp. */
  #kept(all: number, experts: number, from: ZeroStage): number {
    const { axes, zeroStage } = this.candidate;
    const spread = axes.dp * axes.cp;
    return zeroStage >= from ? (all - experts) / (spread * axes.ep) + experts / spread : all;
  }

  #all(first: number, end: number, isFirst: boolean, isLast: boolean): number {
    const [embedding, head, tied] = this.#tables.endElements;
    return (
      between(this.#tables.elements, first, end) +
      (isFirst ? embedding : 0) +
      (isLast ? head + (isFirst ? 0 : tied) : 0)
    );
  }

  /** What data parallelism costs: ZeRO-3's gathers and sharded gradients every microbatch, all else once a step. */
  #exchange(first: number, end: number, isFirst: boolean, isLast: boolean): { zero: number; sync: number } {
    const { axes, zeroStage } = this.candidate;
    const { optimizer: spec, gradientBytes, offload } = this.workload;
    const replicas = axes.dp * axes.cp;
    const group = replicas * axes.ep;
    const trained = this.#trained(first, end, isFirst, isLast);
    const experts = this.#trainedExperts(first, end);
    const states = this.#kept(trained, experts, 1) * (gradientBytes + 2 * spec.stateBytes + 2 * spec.masterBytes);
    const bandwidth = offload === "none" ? this.rates.bandwidth : Math.min(this.rates.bandwidth, HOST_BANDWIDTH);
    const optimizer = (states / (bandwidth * this.rates.achievable.memoryBandwidth)) * 1e6;
    const dpLink = this.#dpLink ?? this.blockClass.links.cp;
    if (group === 1) return { zero: 0, sync: optimizer };
    const seen = this.rates.achievable.trainShards;
    const overAll = (exchangeUs: typeof allReduceUs, bytes: number) =>
      exchangeUs((trained - experts) * bytes, group, dpLink) +
      (experts > 0 ? exchangeUs(experts * bytes, replicas, dpLink) : 0);
    const reduced = overAll(zeroStage === 0 ? allReduceUs : reduceScatterUs, gradientBytes) * seen;
    // Sharded gradients leave nothing to sum up on the spot: each microbatch's are scattered. The stages below keep whole
    // gradients, and exchange them once a step.
    const [each, once] = zeroStage >= 2 ? [reduced, 0] : [0, reduced];
    // Stages 1 and 2 gather the new weights once.
    const renewed = zeroStage === 1 || zeroStage === 2 ? overAll(allGatherUs, 2) * seen : 0;
    const all = this.#all(first, end, isFirst, isLast);
    const allExperts = between(this.#tables.expertElements, first, end);
    const gatherUs =
      allGatherUs((all - allExperts) * 2, group, dpLink) +
      (allExperts > 0 ? allGatherUs(allExperts * 2, replicas, dpLink) : 0);
    const gathers = zeroStage === 3 ? 2 * gatherUs * seen : 0;
    return { zero: gathers + each, sync: optimizer + once + renewed };
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

  #isOver(bytes: number): boolean {
    const whole = bytes * (1 + FRAGMENTATION.training) + this.#fixed.reserve;
    return whole > this.blockClass.kind.availableBytes;
  }

  get #looksUpOnHost(): boolean {
    const { device } = this.blockClass.kind;
    const apart =
      device.family !== "cpu" && device.unifiedMemory !== true && (device.memoryBytes ?? 0) < SMALL_CARD_BYTES;
    return (
      apart && this.workload.mode === "inference" && this.rates.engine === "llama.cpp" && !this.model.tiedEmbeddings
    );
  }

  /** Writes whole bytes by item into `#items`, in the order of MEMORY_ITEMS. */
  #fill(first: number, end: number, stage: number): void {
    const items = this.#items;
    items.fill(0);
    const { pp } = this.candidate.axes;
    const [isFirst, isLast] = [stage === 0, stage === pp - 1];
    const [table, head, tied] = this.#tables.endWeights;
    // llama.cpp looks tokens up in host memory. Counted where memory is short: what a card has more of is not asked for.
    const embedding = this.#looksUpOnHost ? 0 : table;
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
    if (isLast && this.workload.mode === "training" && this.#isOver(sum)) {
      // Trainers compute the loss in chunks, or fused, where the logits of a whole micro-batch do not fit.
      sum -= this.#fixed.logits - this.#fixed.chunkedLogits;
      items[AT.logits] = this.#fixed.chunkedLogits;
    }
    items[AT.fragmentation] = sum * FRAGMENTATION[this.workload.mode];
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
    // An interleaved one holds some chunks of layers more (arXiv 2104.04473, section 2.2).
    const { trainBatches } = this.schedule;
    const { chunks } = this.candidate;
    const more = chunks > 1 ? (axes.pp - 1) / chunks : 0;
    const inFlight = Math.min(axes.pp - stage + more, trainBatches);
    items[AT.weights] = kept * (method?.trainedModels ?? 1);
    items[AT.referenceModels] = kept * (method?.frozenModels ?? 0);
    items[AT.adapters] = method?.adapter === undefined ? 0 : this.#kept(trained, experts, 3) * 2;
    const { optimizer, gradientBytes, offload } = this.workload;
    const { microBatch, checkpointing } = this.candidate;
    // Without accumulation each gradient is applied and freed as soon as it is there (LOMO, arXiv 2306.09782).
    const isFused = optimizer.name === "paged-adamw-8bit" && trainBatches === 1;
    items[AT.gradients] = isFused ? 0 : this.#kept(trained, experts, 2) * gradientBytes;
    items[AT.optimizerStates] = offload === "none" ? this.#kept(trained, experts, 1) * optimizer.stateBytes : 0;
    items[AT.masterWeights] = offload === "none" ? this.#kept(trained, experts, 1) * optimizer.masterBytes : 0;
    const saved = between(this.#tables.saved[checkpointing], first, end);
    items[AT.activations] = saved * inFlight * microBatch + this.#fixed.activations;
    const isSharded = this.candidate.zeroStage === 3 && axes.dp * axes.ep * axes.cp > 1;
    // Two whole layers are gathered at a time: the one that computes and the next.
    const gathered = (2 * weights) / Math.max(1, end - first);
    if (isSharded) items[AT.activations] = (items[AT.activations] ?? 0) + Math.min(weights, gathered);
    if (offload !== "all") return;
    // Weights and gradients wait in host memory, and come layer by layer.
    const share = Math.min(1, 2 / Math.max(1, end - first));
    for (const at of [AT.weights, AT.gradients]) items[at] = (items[at] ?? 0) * share;
  }

  /**
   * What one rank keeps in its host's memory: states and master weights that are offloaded, with the gradients that update
   * them there, and the weights too with `all`; the states of a paged optimizer.
   */
  hostBytes(first: number, end: number, stage: number): number {
    const { optimizer, gradientBytes, offload, method } = this.workload;
    if (this.workload.mode !== "training" || method === undefined) return 0;
    const { pp } = this.candidate.axes;
    const trained = this.#trained(first, end, stage === 0, stage === pp - 1);
    const experts = this.#trainedExperts(first, end);
    const states = this.#kept(trained, experts, 1) * (optimizer.stateBytes + optimizer.masterBytes);
    const paged = this.#kept(trained, experts, 1) * optimizer.pagedBytes;
    if (offload === "none") return Math.ceil(paged);
    const gradients = this.#kept(trained, experts, 2) * gradientBytes;
    if (offload === "optimizer") return Math.ceil(states + paged + gradients);
    return Math.ceil(states + paged + gradients + this.#offloadedWeights(first, end, stage));
  }

  /** Weights of a stage, in bytes, that `offload: all` keeps in host memory. */
  #offloadedWeights(first: number, end: number, stage: number): number {
    const [table, head, tied] = this.#tables.endWeights;
    const { method } = this.workload;
    const isLast = stage === this.candidate.axes.pp - 1;
    const ends = (stage === 0 ? table : 0) + (isLast ? head + (stage === 0 ? 0 : tied) : 0);
    const weights = between(this.#tables.weights, first, end) + ends;
    const kept = this.#kept(weights, between(this.#tables.expertWeights, first, end), 3);
    return kept * ((method?.trainedModels ?? 1) + (method?.frozenModels ?? 0));
  }

  /** Training: what one layer's backward pass holds beside what is kept. Recomputed layers are there whole, with gradients. */
  #workingBytes(tokens: number): number {
    const { model, workload, candidate } = this;
    const { tp } = candidate.axes;
    const forward = forwardBytes(model, tokens, tp, workload.activationBytes);
    if (candidate.checkpointing === "none") return forward;
    const whole = Math.max(
      ...model.layerKinds.map((layer) => savedBytesPerToken(model, layer, tp, workload.activationBytes, "none")),
    );
    return Math.max(forward, Math.ceil(whole * tokens * (candidate.checkpointing === "full" ? 2 : 1.5)));
  }

  /** What does not depend on the layers. */
  #fixedMemory(): FixedMemory {
    const { model, workload, schedule } = this;
    const { axes } = this.candidate;
    const training = workload.mode === "training";
    const tokens = training
      ? Math.ceil((workload.contextTokens * this.candidate.microBatch) / axes.cp)
      : Math.max(Math.ceil(schedule.prefillTokens / axes.cp), schedule.decodeSequences);
    const rows = training ? tokens : Math.max(schedule.decodeSequences, schedule.prefillSequences);
    const onCpu = this.blockClass.kind.device.family === "cpu";
    const sizes = [axes.tp, axes.pp, axes.ep, axes.cp, training ? axes.dp : 1];
    const numAxes = sizes.filter((size) => size > 1).length;
    return {
      activations: training
        ? this.#workingBytes(tokens)
        : forwardBytes(model, tokens, axes.tp, workload.activationBytes),
      logits: training
        ? lossBytes(model, rows, axes.tp, workload.method?.adapter !== undefined)
        : logitsBytes(model, rows, axes.tp, workload.activationBytes),
      chunkedLogits: training ? lossBytes(model, rows, axes.tp, true) : 0,
      buffers: numAxes * (onCpu ? COMMUNICATOR_BYTES.cpu : COMMUNICATOR_BYTES.accelerator),
      reserve: FRAMEWORK_RESERVE_BYTES[onCpu ? "cpu" : this.rates.engine === "llama.cpp" ? "llama.cpp" : "accelerator"],
    };
  }

  /** What the fullest of `pp` stages holds at least: an even share of what grows with the layers. */
  leastMemoryBytes(): number {
    const { numLayers } = this.model;
    const { axes } = this.candidate;
    const { group, zeroStage } = { group: axes.dp * axes.ep, zeroStage: this.candidate.zeroStage };
    // Offloaded weights come two layers at a time.
    const there = this.workload.offload === "all" ? Math.min(1, 2 / numLayers) : 1;
    const weights = (between(this.#tables.weights, 0, numLayers) * there) / (zeroStage === 3 ? group : 1);
    return (weights + between(this.#tables.kv, 0, numLayers) * this.candidate.batchPerReplica) / axes.pp;
  }
}
