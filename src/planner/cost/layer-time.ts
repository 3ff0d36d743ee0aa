/**
 * How long one layer, the embedding and the head take on one rank: a roofline for each group of operators (memory
 * traffic and FLOPs, whichever is longer), the collectives of the mesh axes, and a fixed cost a layer.
 */

import { bytesOf, type WeightFormat } from "../memory/formats.ts";
import { attendedTokens, type KvFormat, kvBytesPerToken, stateBytes } from "../memory/kv-cache.ts";
import { kvHeadsOf, shardShape } from "../memory/weights.ts";
import type { LayerSpec, ModelSpec, WeightSpec } from "../model/spec.ts";
import type { GroupLink } from "../placement/fabric.ts";
import { allGatherUs, allReduceUs } from "./collectives.ts";
import { ELEMENTWISE_PASSES } from "./constants.ts";
import type { Rates } from "./device-rates.ts";
import { expertExchangeUs } from "./expert-exchange.ts";

/** Microseconds by cause. */
export interface Cost {
  memory: number;
  compute: number;
  communication: number;
  overhead: number;
}

export const NO_COST: Readonly<Cost> = { memory: 0, compute: 0, communication: 0, overhead: 0 };

export function totalUs(cost: Readonly<Cost>): number {
  return cost.memory + cost.compute + cost.communication + cost.overhead;
}

export function addCost(a: Readonly<Cost>, b: Readonly<Cost>, times = 1): Cost {
  return {
    memory: a.memory + b.memory * times,
    compute: a.compute + b.compute * times,
    communication: a.communication + b.communication * times,
    overhead: a.overhead + b.overhead * times,
  };
}

/** How the model is cut, on what it runs and what joins the ranks: fixed for one candidate and device kind. */
export interface Slice {
  readonly model: ModelSpec;
  readonly format: WeightFormat;
  readonly kv: KvFormat;
  readonly activationBytes: number;
  readonly tp: number;
  readonly ep: number;
  readonly cp: number;
  readonly links: {
    readonly tp: GroupLink | undefined;
    readonly cp: GroupLink | undefined;
    readonly ep: GroupLink | undefined;
  };
  readonly rates: Rates;
  /** Training multiplies in 8-bit floats, at this peak. */
  readonly trainsInEight: boolean;
  readonly eightBitFlops: number | undefined;
  /** Share of the experts' exchange that is hidden in serving. */
  readonly expertOverlap: number;
}

/** One forward pass: `tokens` new tokens of `sequences` sequences, each attending to `context` tokens on average. */
export interface Pass {
  readonly tokens: number;
  readonly sequences: number;
  /** Tokens that a new token attends to, on average (half the prompt in causal prefill). */
  readonly context: number;
  readonly isPrefill: boolean;
  /** A forward pass that a backward one follows. */
  readonly isTraining?: boolean;
}

interface Group {
  readonly elements: number;
  readonly bytes: number;
  /** Inputs and outputs of its products. */
  readonly ends: number;
  /** In the workload's format; left in 16 bits otherwise. */
  readonly isFormatted: boolean;
}

/** Elements and bytes on one rank of a layer's matrices: attention, dense MLP, routed experts. */
interface KindShard {
  readonly attention: Group;
  readonly dense: Group;
  readonly expert: Group;
  readonly hasExpertBias: boolean;
}

function groupOf(weights: readonly WeightSpec[], slice: Slice, layer: LayerSpec): Group {
  const hasExperts = slice.model.layerKinds.some((kind) => kind.mlp.kind === "moe");
  let elements = 0;
  let bytes = 0;
  let ends = 0;
  for (const weight of weights) {
    const shape = shardShape(weight, slice.tp, slice.ep, kvHeadsOf(layer));
    elements += shape.copies * shape.out * shape.input;
    ends += shape.copies * (shape.out + shape.input);
    bytes += bytesOf(weight, shape, slice.format, hasExperts);
  }
  const isFormatted =
    slice.format.scope !== "experts" ||
    slice.format.restBits < 16 ||
    !hasExperts ||
    weights.some((weight) => weight.perExpert);
  return { elements, bytes, ends, isFormatted };
}

function shardOf(layer: LayerSpec, slice: Slice): KindShard {
  const matrices = layer.weights.filter((weight) => weight.shape.length > 1);
  return {
    hasExpertBias: layer.weights.some(({ perExpert, shape }) => perExpert && shape.length === 1),
    attention: groupOf(
      matrices.filter((weight) => weight.component === "attention"),
      slice,
      layer,
    ),
    dense: groupOf(
      matrices.filter((weight) => weight.component !== "attention" && !weight.perExpert),
      slice,
      layer,
    ),
    expert: groupOf(
      matrices.filter((weight) => weight.perExpert),
      slice,
      layer,
    ),
  };
}

/** What the extra kernels of a layer with experts cost at most when few tokens are there, us, and how many few are. */
const FEW_TOKENS_US = 60;
const FEW_TOKENS = 128;

/**
 * Memory traffic and arithmetic overlap, but not wholly: near the ridge a kernel is slower than either bound. `sharpness` is
 * the exponent of their norm; infinite would be the textbook's roofline. The longer of the two is what is blamed.
 */
function roofline(cost: Cost, memoryUs: number, computeUs: number, sharpness: number): void {
  const [longer, shorter] = memoryUs >= computeUs ? [memoryUs, computeUs] : [computeUs, memoryUs];
  if (longer <= 0) return;
  const us = longer * (1 + (shorter / longer) ** sharpness) ** (1 / sharpness);
  if (memoryUs >= computeUs) cost.memory += us;
  else cost.compute += us;
}

/** Costs of a slice's parts; made once per candidate and device kind. */
export class LayerTimes {
  readonly #slice: Slice;
  readonly #shards: readonly KindShard[];
  readonly #hasExperts: boolean;

  constructor(slice: Slice) {
    this.#slice = slice;
    this.#hasExperts = slice.model.layerKinds.some(({ mlp }) => mlp.kind === "moe");
    this.#shards = slice.model.layerKinds.map((layer) => shardOf(layer, slice));
  }

  /** Streaming a group's weights. */
  #readUs(group: Group, share = 1): number {
    const { bandwidth, achievable, product, attentionFlops } = this.#slice.rates;
    const isPacked = group.isFormatted && product.packed;
    const packed = isPacked ? achievable.packedBandwidth : 1;
    const streamedUs = ((group.bytes * share) / (bandwidth * achievable.memoryBandwidth * packed)) * 1e6;
    // Whole bytes need no masks and shifts.
    if (!isPacked || this.#slice.format.bits >= 8) return streamedUs;
    return streamedUs + ((group.elements * share * achievable.unpackOperations) / attentionFlops) * 1e6;
  }

  /** Multiplying `rows` vectors with `elements` weights of a group. */
  #multiplyUs(group: Group, elements: number, rows: number, training: boolean): number {
    const { product, attentionFlops, achievable } = this.#slice.rates;
    if (training) {
      const isEight = this.#slice.trainsInEight && group.isFormatted;
      const flops = isEight ? (this.#slice.eightBitFlops ?? attentionFlops) : attentionFlops;
      const half = this.#hasExperts ? achievable.trainMixture16 : achievable.train16;
      return ((2 * elements * rows) / (flops * (isEight ? achievable.train8 : half))) * 1e6;
    }
    const flops = group.isFormatted ? product.flops : attentionFlops;
    const fraction = achievable[group.isFormatted ? product.kind : "matmul16"];
    return ((2 * elements * rows) / (flops * fraction)) * 1e6;
  }

  /** Casting `rows` inputs and outputs of products to 8-bit floats and back, with the transposed copies that gradients need. */
  #castUs(group: Group, ends: number, rows: number): number {
    if (!this.#slice.trainsInEight || !group.isFormatted) return 0;
    const { bandwidth, achievable } = this.#slice.rates;
    return ((rows * ends * achievable.trainCastBytes) / (bandwidth * achievable.memoryBandwidth)) * 1e6;
  }

  /** Costs that were asked for before: many candidates of a search differ in what costs no time here. */
  readonly #known = new Map<string, Readonly<Cost>>();
  #remembered(what: string | number, pass: Pass, make: () => Cost): Readonly<Cost> {
    const { tokens, sequences, context, isPrefill, isTraining = false } = pass;
    const key = `${what} ${tokens} ${sequences} ${context} ${isPrefill} ${isTraining}`;
    const before = this.#known.get(key);
    if (before !== undefined) return before;
    const cost = make();
    this.#known.set(key, cost);
    return cost;
  }

  /** One layer of the given kind. */
  layer(kind: number, pass: Pass): Readonly<Cost> {
    return this.#remembered(kind, pass, () => this.#layer(kind, pass));
  }

  #layer(kind: number, pass: Pass): Cost {
    const { model, rates, tp, ep, cp, links, activationBytes } = this.#slice;
    const layer = model.layerKinds[kind];
    const shard = this.#shards[kind];
    const cost: Cost = { ...NO_COST };
    if (layer === undefined || shard === undefined) return cost;
    const { achievable } = rates;
    const training = pass.isTraining === true;
    const tokens = pass.isPrefill ? pass.tokens / cp : pass.tokens;
    // A product of few rows runs in a kernel of its own, which fills no tiles.
    const rows = tokens + Math.min(achievable.fillRows, Math.max(0, tokens - 1));
    for (const group of [shard.attention, shard.dense]) {
      roofline(
        cost,
        this.#readUs(group),
        this.#multiplyUs(group, group.elements, rows, training),
        achievable.sharpness,
      );
      if (training) cost.memory += this.#castUs(group, group.ends, tokens);
    }
    const hidden = model.hiddenSize;
    let columns = 0;
    let exchangedUs = 0;
    if (layer.mlp.kind === "moe") {
      const { numExperts, expertsPerToken } = layer.mlp;
      // Of the experts that a rank holds, those that at least one token of the ep group chose are read: all of one token's,
      // of each further token's the share that others have not chosen already.
      const held = Math.max(1, Math.ceil(numExperts / ep));
      const choosing = Math.max(1, tokens * ep);
      const chosen = 1 - (1 - expertsPerToken / numExperts) ** (1 + (choosing - 1) * achievable.routing);
      const perExpert = shard.expert.elements / held;
      // The fullest rank of the group sets the pace.
      const imbalance = training ? achievable.trainImbalance : achievable.imbalance;
      const fullest = 1 + (ep > 1 ? imbalance * Math.sqrt((2 * Math.log(ep)) / held) : 0);
      const filled = Math.min(achievable.groupedFillRows, choosing - 1);
      const expertRows = tokens * expertsPerToken * fullest + held * chosen * filled;
      const grouped = training ? achievable.trainGrouped : achievable.grouped;
      roofline(
        cost,
        this.#readUs(shard.expert, chosen),
        this.#multiplyUs(shard.expert, perExpert, expertRows, training) / grouped,
        achievable.sharpness,
      );
      if (training) {
        // Each token's copies are sorted by expert, padded, weighted and summed up again: what small experts spend most time on.
        const copies = (tokens * expertsPerToken * activationBytes) / tp;
        // Biases of experts are added expert by expert, and their parts put together again, around both products.
        const inner = shard.hasExpertBias ? hidden + 2 * layer.mlp.expertIntermediateSize : 0;
        const routed = copies * (hidden * achievable.trainRoutedPasses + inner * achievable.trainBiasPasses);
        cost.memory += (routed / (rates.bandwidth * achievable.memoryBandwidth)) * 1e6;
        cost.memory += this.#castUs(shard.expert, shard.expert.ends / held, tokens * expertsPerToken * fullest);
      }
      const used = expertsPerToken * layer.mlp.expertIntermediateSize + layer.mlp.sharedIntermediateSize;
      columns = (layer.mlp.gated ? 3 : 2) * used;
      const routedWidth = layer.mlp.latentSize ?? hidden;
      // Dispatch in the weights' width where that is narrower; results come back in 16 bits.
      exchangedUs =
        expertExchangeUs({
          tokens,
          expertsPerToken,
          groupLimit: layer.mlp.groupLimit,
          dispatchBytes: routedWidth * Math.min(activationBytes, rates.product.kind === "matmul16" ? 2 : 1),
          combineBytes: routedWidth * activationBytes,
          ep,
          gathersSmallGroups: !training,
          link: links.ep,
        }) *
        achievable.exchanges *
        (training ? achievable.trainExchanges : 1 - this.#slice.expertOverlap);
      // Sorting, padding and waiting for the fullest rank grow with the tokens; a few of them cost what kernels cost.
      const { expertOverheadUs } = achievable;
      const few = Math.min(expertOverheadUs, FEW_TOKENS_US);
      cost.overhead += few + ((expertOverheadUs - few) * tokens) / (tokens + FEW_TOKENS);
    } else {
      columns = (layer.mlp.gated ? 3 : 2) * layer.mlp.intermediateSize;
    }
    cost.communication += exchangedUs;
    // Norms, residuals, rotary embedding and activation function stream their operands through memory. Trainers shard norms
    // and residuals over tp as well (sequence parallelism, arXiv 2205.05198): what memory/activations.ts counts of them is
    // what is moved.
    const residual = (ELEMENTWISE_PASSES.hidden * hidden) / (training ? tp : 1);
    const streamed = tokens * (residual + (ELEMENTWISE_PASSES.columns * columns) / tp) * activationBytes;
    cost.memory += (streamed / (rates.bandwidth * achievable.memoryBandwidth)) * 1e6;
    this.#attention(cost, layer, pass, tokens);
    const reducedUs = 2 * allReduceUs(tokens * hidden * activationBytes, tp, links.tp) * achievable.collectives;
    cost.communication += training ? reducedUs * achievable.trainCollectives : reducedUs;
    cost.overhead += achievable.layerOverheadUs;
    return cost;
  }

  #attention(cost: Cost, layer: LayerSpec, pass: Pass, tokens: number): void {
    const { rates, tp, cp, kv, links } = this.#slice;
    const { attention } = layer;
    const stateUs = (sequences: number) =>
      ((2 * sequences * stateBytes(layer, tp)) / (rates.bandwidth * rates.achievable.kvBandwidth)) * 1e6;
    // A recurrent state is read and written for every sequence and step.
    cost.memory += pass.isPrefill ? 0 : stateUs(pass.sequences);
    if (attention.kind === "none") return;
    const context = attendedTokens(attention, pass.context);
    const heads = Math.ceil(attention.numHeads / tp);
    // Dot products with keys and weighted sums of values, two FLOPs an element. Decoding latent attention works in the
    // compressed space; its prefill expands keys and values.
    const width =
      attention.kind === "gqa"
        ? 2 * attention.headDim
        : pass.isPrefill
          ? attention.qkNopeHeadDim + attention.qkRopeHeadDim + attention.vHeadDim
          : 2 * attention.kvLoraRank + attention.qkRopeHeadDim;
    const shared = pass.isPrefill ? 1 : cp;
    const flops = (2 * tokens * context * heads * width) / shared;
    const cacheBytes =
      ((pass.isPrefill ? pass.tokens / cp : pass.sequences * context) / shared) * kvBytesPerToken(layer, tp, kv);
    const fraction = pass.isTraining === true ? rates.achievable.trainAttention : rates.achievable.attention;
    const computeUs = (flops / (rates.attentionFlops * fraction)) * 1e6;
    const memoryUs = (cacheBytes / (rates.bandwidth * rates.achievable.kvBandwidth)) * 1e6;
    roofline(cost, memoryUs, computeUs, rates.achievable.sharpness);
    if (cp <= 1) return;
    if (pass.isPrefill) {
      // Ring attention: keys and values travel around while the scores of the last block are computed; the first block waits.
      const ringUs = allGatherUs(pass.tokens * kvBytesPerToken(layer, tp, kv), cp, links.cp);
      cost.communication += Math.max(ringUs / cp, ringUs - Math.max(computeUs, memoryUs));
    } else {
      cost.communication += allReduceUs(pass.tokens * heads * width * 2, cp, links.cp);
    }
  }

  /** Looking tokens up; the shards of a cut vocabulary are summed. */
  embedding(pass: Pass): Readonly<Cost> {
    return this.#remembered("embedding", pass, () => this.#embedding(pass));
  }

  #embedding(pass: Pass): Cost {
    const { model, tp, cp, links, activationBytes, rates } = this.#slice;
    const tokens = pass.isPrefill ? pass.tokens / cp : pass.tokens;
    const reducedUs = allReduceUs(tokens * model.hiddenSize * activationBytes, tp, links.tp);
    return { ...NO_COST, communication: reducedUs * rates.achievable.collectives };
  }

  /** Final norm, head and sampling: of the last token of each sequence. */
  head(pass: Pass): Readonly<Cost> {
    return this.#remembered("head", pass, () => this.#head(pass));
  }

  #head(pass: Pass): Cost {
    const { model, tp, links, rates, format, activationBytes } = this.#slice;
    const { achievable } = rates;
    const training = pass.isTraining === true;
    const scheduled = training ? 0 : pass.sequences * achievable.sequenceOverheadUs;
    const cost: Cost = { ...NO_COST, overhead: achievable.stepOverheadUs + scheduled };
    if (!model.isDecoder) return cost;
    const rows = pass.sequences;
    const columns = Math.ceil(model.vocabSize / tp);
    const bits = headBits(format);
    const bytes = (columns * model.hiddenSize * bits) / 8;
    const memoryUs = (bytes / (rates.bandwidth * achievable.memoryBandwidth)) * 1e6;
    const fraction = training ? achievable.train16 : achievable.matmul16;
    const computeUs = ((2 * rows * columns * model.hiddenSize) / (rates.attentionFlops * fraction)) * 1e6;
    roofline(cost, memoryUs, computeUs, achievable.sharpness);
    // Training computes the loss on the shards.
    const gatheredUs = training ? 0 : allGatherUs(rows * model.vocabSize * activationBytes, tp, links.tp);
    cost.communication += gatheredUs * achievable.collectives;
    return cost;
  }
}

/** Bits of an element of the head: GGUF files give it six at least, formats of linear layers leave it alone. */
function headBits(format: WeightFormat): number {
  if (format.scope === "all") return format.bits;
  return format.gguf ? Math.max(format.bits, 6.5625) : format.restBits;
}
