/**
 * What depends only on how the model is cut and on the class of blocks: prefix sums over the layers of weights, caches,
 * saved activations and adapters, and the times of their parts. Remembered during one search.
 */
import type { Device } from "../../machine/topology/index.ts";
import { type Rates, ratesOf } from "../cost/device-rates.ts";
import { LayerTimes } from "../cost/layer-time.ts";
import { type Checkpointing, savedBytesPerToken } from "../memory/activations.ts";
import { kvBytesByLayer } from "../memory/kv-cache.ts";
import { adapterElements } from "../memory/training.ts";
import { shardElements, weightBytes } from "../memory/weights.ts";
import type { ModelSpec } from "../model/spec.ts";
import type { BlockClass } from "../placement/blocks.ts";
import type { GroupLink } from "../placement/fabric.ts";
import type { PlanAxisSizes } from "../plan.ts";
import { chunkCounts } from "./chunks.ts";
import type { Workload } from "./workload.ts";

/** Dense peak of 8-bit floats, FLOP/s; undefined where the device has none. */
function eightBitFlops(device: Device, ranks: number): number | undefined {
  const tflops = device.peakTflops?.f8e4m3;
  return tflops === undefined ? undefined : (tflops * 1e12) / ranks;
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

/** Sum of layers [first, end). */
export const between = (sums: Float64Array, first: number, end: number) => (sums[end] ?? 0) - (sums[first] ?? 0);

/** What depends only on how the model is cut (tp, ep, cp) and on the class of blocks: shared by many candidates. */
export interface Tables {
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
  /** Of one sequence, by what is kept. */
  readonly saved: Readonly<Record<Checkpointing, Float64Array>>;
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
  /** For each layer kind, how many of the layers before an index are of that kind. */
  readonly counts: readonly Float64Array[];
  readonly #chunks = new Map<number, readonly number[]>();
  readonly #groups = new Map<BlockClass["links"], Map<string, GroupLink | undefined>>();

  constructor(model: ModelSpec, workload: Workload) {
    this.#model = model;
    this.#workload = workload;
    this.counts = model.layerKinds.map((_, kind) => prefix(model.layers.map((own) => (own === kind ? 1 : 0))));
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

  /** Chunks that a pipeline of so many stages may interleave. */
  chunkCounts(pp: number): readonly number[] {
    let counts = this.#chunks.get(pp);
    if (counts === undefined) {
      counts = chunkCounts(this.#model.numLayers, pp);
      this.#chunks.set(pp, counts);
    }
    return counts;
  }

  /** The link of a group of ranks, which many candidates share; `name` tells it from others of the class with these links. */
  groupLink(links: BlockClass["links"], name: string, make: () => GroupLink | undefined): GroupLink | undefined {
    let ofClass = this.#groups.get(links);
    if (ofClass === undefined) {
      ofClass = new Map();
      this.#groups.set(links, ofClass);
    }
    if (!ofClass.has(name)) ofClass.set(name, make());
    return ofClass.get(name);
  }

  #make({ kind, links }: BlockClass, tp: number, ep: number, cp: number): Tables {
    const model = this.#model;
    const { format, kv, activationBytes, method, contextTokens, mode, loraTargets } = this.#workload;
    const rates = ratesOf(kind.device, format.compute, {
      ranks: kind.ranksPerDevice,
      format,
      engine: this.#workload.engine ?? (mode === "training" ? "pytorch" : undefined),
      constants: this.#workload.constants,
    });
    const weights = weightBytes(model, format, tp, ep);
    const training = mode === "training";
    const elements = training ? shardElements(model, tp, ep) : undefined;
    const perKind = (value: (kindIndex: number) => number) => {
      const values = model.layerKinds.map((_, index) => value(index));
      return model.layers.map((index) => values[index] ?? 0);
    };
    const adaptersAt = (ways: number) =>
      method?.adapter === undefined
        ? []
        : perKind((index) => adapterElements(model, index, method, tp, ways, loraTargets));
    const adapters = adaptersAt(ep);
    const savedOf = (checkpointing: Checkpointing) =>
      prefix(
        training
          ? perKind((index) => {
              const layer = model.layerKinds[index];
              const perToken =
                layer === undefined ? 0 : savedBytesPerToken(model, layer, tp, activationBytes, checkpointing);
              return (perToken * contextTokens) / cp;
            })
          : [],
      );
    return {
      rates,
      times: new LayerTimes({
        model,
        format,
        kv,
        activationBytes,
        tp,
        ep,
        cp,
        links,
        rates,
        trainsInEight: this.#workload.trainPrecision === "fp8",
        eightBitFlops: eightBitFlops(kind.device, kind.ranksPerDevice),
        expertOverlap: this.#workload.expertOverlap,
      }),
      counts: this.counts,
      weights: prefix(weights.layers),
      elements: prefix(elements?.layers ?? []),
      adapters: prefix(adapters),
      expertWeights: cutByEp(training ? weightBytes(model, format, tp, 1).layers : [], weights.layers, ep),
      expertElements: cutByEp(training ? shardElements(model, tp, 1).layers : [], elements?.layers ?? [], ep),
      expertAdapters: cutByEp(adaptersAt(1), adapters, ep),
      kv: prefix(training ? [] : kvBytesByLayer(model, { contextTokens, sequences: 1, tp, cp, format: kv })),
      saved: {
        none: savedOf("none"),
        selective: savedOf("selective"),
        full: savedOf("full"),
      },
      endWeights: [weights.embeddings, weights.head, weights.tiedHead],
      endElements: [elements?.embeddings ?? 0, elements?.head ?? 0, elements?.tiedHead ?? 0],
    };
  }
}
