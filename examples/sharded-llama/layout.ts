/**
 * How a Llama model lies on a mesh of dp x pp x tp ranks: which stage holds which layers, which rank which heads,
 * columns of the MLP and rows of the vocabulary. Pure arithmetic: it is checked before a weight is read or a rank talks.
 */
import { InvalidArgumentError } from "chorale";
import type { LlamaConfig } from "chorale/formats";
import type { ShardingPlan } from "chorale/planner";

/** Half-open: [start, end). */
export type Range = readonly [start: number, end: number];

export interface LayoutRequest {
  readonly tp?: number;
  readonly pp?: number;
  /** `"auto"`: as many replicas as the ranks make. 1 by default. */
  readonly dp?: number | "auto";
  /** Takes the sizes and the layers of each stage from a plan; the sizes above must then agree with it. */
  readonly plan?: ShardingPlan;
}

export interface Layout {
  readonly dp: number;
  readonly pp: number;
  readonly tp: number;
  /** Layers of each stage. */
  readonly stages: readonly Range[];
}

/** What one rank holds. */
export interface Shard {
  readonly tpRank: number;
  readonly tp: number;
  readonly layers: Range;
  readonly heads: Range;
  /** Several ranks hold the same KV head when tp exceeds their number. */
  readonly kvHeads: Range;
  readonly intermediate: Range;
  /** Rows of the embedding and the head. The last ranks have fewer when tp does not divide the vocabulary. */
  readonly vocab: Range;
  /** Rows that every rank counts for in the all-gather of the logits. */
  readonly vocabRows: number;
  readonly first: boolean;
  readonly last: boolean;
}

/** Part `index` of [0, total) in `parts` parts whose sizes differ by at most one, the larger first. */
export function splitEvenly(total: number, parts: number, index: number): Range {
  const size = Math.floor(total / parts);
  const larger = total % parts;
  const start = index * size + Math.min(index, larger);
  return [start, start + size + (index < larger ? 1 : 0)];
}

/** Throws unless `holds`; the equation says which numbers do not fit. */
function require(holds: boolean, argument: string, value: unknown, equation: string): void {
  if (!holds) throw new InvalidArgumentError(argument, value, equation);
}

/**
 * Lays a model out.
 * @throws InvalidArgumentError with the equation that does not hold
 */
export function layoutOf(config: LlamaConfig, request: LayoutRequest, numRanks: number): Layout {
  const { plan } = request;
  const axes = plan?.mesh.axes;
  for (const axis of ["ep", "cp"] as const) {
    require(axes === undefined || axes[axis] === 1, `plan's ${axis}`, axes?.[
      axis
    ], "1: this example has only dp, pp and tp");
  }
  for (const axis of ["tp", "pp", "dp"] as const) {
    const asked = request[axis];
    if (axes === undefined || asked === undefined || asked === "auto") continue;
    require(asked === axes[axis], axis, asked, `${axes[axis]}, as in the plan`);
  }
  const tp = axes?.tp ?? request.tp ?? 1;
  const pp = axes?.pp ?? request.pp ?? 1;
  for (const [axis, size] of [
    ["tp", tp],
    ["pp", pp],
  ] as const) {
    require(Number.isInteger(size) && size >= 1, axis, size, "an integer of at least 1");
  }

  const { numHeads, numKvHeads, intermediateSize, numLayers, vocabSize } = config;
  require(numHeads % tp ===
    0, "tp", tp, `a divisor of the attention heads, but ${numHeads} heads % tp ${tp} = ${numHeads % tp}, not 0`);
  require(numKvHeads % tp === 0 ||
    tp % numKvHeads ===
      0, "tp", tp, `a divisor or a multiple of the KV heads, but ${numKvHeads} KV heads % tp ${tp} = ${numKvHeads % tp} and ` +
    `tp ${tp} % ${numKvHeads} KV heads = ${tp % numKvHeads}, neither 0`);
  require(tp <= intermediateSize, "tp", tp, `tp <= intermediate_size, but ${tp} > ${intermediateSize}`);
  require(tp <= vocabSize, "tp", tp, `tp <= vocab_size, but ${tp} > ${vocabSize}`);
  require(pp <= numLayers, "pp", pp, `pp <= layers, one layer a stage at least, but ${pp} > ${numLayers} layers`);

  const asked = axes?.dp ?? request.dp ?? 1;
  const dp = asked === "auto" ? numRanks / (pp * tp) : asked;
  require(Number.isInteger(dp) &&
    dp >= 1 &&
    dp * pp * tp ===
      numRanks, "number of ranks", numRanks, `dp x pp x tp = ${asked === "auto" ? "dp" : asked} x ${pp} x ${tp} = ${asked === "auto" ? `a multiple of ${pp * tp}` : asked * pp * tp} ranks`);
  return { dp, pp, tp, stages: stagesOf(config, pp, plan) };
}

function stagesOf(config: LlamaConfig, pp: number, plan: ShardingPlan | undefined): readonly Range[] {
  if (plan === undefined) return Array.from({ length: pp }, (_, i) => splitEvenly(config.numLayers, pp, i));
  const planned: readonly [string, number, number][] = [
    ["layers", plan.model.numLayers, config.numLayers],
    ["hidden size", plan.model.hiddenSize, config.hiddenSize],
    ["vocabulary", plan.model.vocabSize, config.vocabSize],
  ];
  for (const [what, inPlan, inModel] of planned) {
    require(inPlan ===
      inModel, `plan's ${what}`, inPlan, `${inModel}, as this model has: the plan is for another model`);
  }
  // Every replica and every rank of a stage has the same layers; parsePlan has checked that they join up.
  return Array.from({ length: pp }, (_, stage) => {
    const ranges = plan.ranks.filter(({ coords }) => coords.pp === stage).map(({ layers }) => layers);
    const { first, end } = ranges[0] ?? { first: 0, end: 0 };
    const same = ranges.every((range) => range.first === first && range.end === end);
    require(same && end > first, `plan's stage ${stage}`, ranges, "the same layers on all its ranks, one at least");
    return [first, end] as const;
  });
}

/** What the rank at (pp, tp) holds. */
export function shardOf(config: LlamaConfig, layout: Layout, at: { readonly pp: number; readonly tp: number }): Shard {
  const { tp, pp, stages } = layout;
  const { numHeads, numKvHeads, intermediateSize, vocabSize } = config;
  const kvStart = Math.floor((at.tp * numKvHeads) / tp);
  const vocabRows = Math.ceil(vocabSize / tp);
  const vocabStart = Math.min(at.tp * vocabRows, vocabSize);
  return {
    tpRank: at.tp,
    tp,
    layers: stages[at.pp] as Range,
    heads: splitEvenly(numHeads, tp, at.tp),
    kvHeads: [kvStart, kvStart + Math.max(1, numKvHeads / tp)],
    intermediate: splitEvenly(intermediateSize, tp, at.tp),
    vocab: [vocabStart, Math.min(vocabStart + vocabRows, vocabSize)],
    vocabRows,
    first: at.pp === 0,
    last: at.pp === pp - 1,
  };
}
