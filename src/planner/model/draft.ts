/** What all architectures share: the draft that they make, and how the common fields of a config are read. */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { languageHead, norms, tokenEmbedding } from "./build.ts";
import type { LayerSpec, WeightSpec } from "./spec.ts";

/** What an architecture makes of a config; `model/from-config.ts` completes it to a ModelSpec. */
export interface Draft {
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly contextLength: number | undefined;
  readonly tied: boolean;
  readonly isDecoder?: boolean;
  /** The kind of each layer, in order. Equal kinds must be the same object. */
  readonly layers: readonly LayerSpec[];
  readonly embeddings: readonly WeightSpec[];
  readonly head: readonly WeightSpec[];
  readonly assumptions?: readonly string[];
  readonly activeWithout?: "embedding" | "embedding and head";
}

export type Architecture = (config: ConfigReader) => Draft;

export const MAX_LAYERS = 4096;

/** Reads the fields that nearly every decoder has. Defaults are those of the family's configuration class. */
export function basics(
  config: ConfigReader,
  defaults: {
    tied?: boolean;
    headDim?: number;
    numHeads?: number;
    numKvHeads?: number;
    vocabSize?: number;
    numLayers?: number;
  } = {},
) {
  const hiddenSize = config.int("hidden_size", { max: 1 << 20 });
  const numLayers = config.int("num_hidden_layers", {
    max: MAX_LAYERS,
    ...(defaults.numLayers === undefined ? {} : { default: defaults.numLayers }),
  });
  const vocabSize = config.int("vocab_size", {
    max: 1 << 26,
    ...(defaults.vocabSize === undefined ? {} : { default: defaults.vocabSize }),
  });
  const numHeads = config.int("num_attention_heads", {
    max: 1 << 16,
    ...(defaults.numHeads === undefined ? {} : { default: defaults.numHeads }),
  });
  const numKvHeads = config.int("num_key_value_heads", { max: 1 << 16, default: defaults.numKvHeads ?? numHeads });
  if (numHeads % numKvHeads !== 0) {
    throw config.error(
      "num_key_value_heads",
      `is ${numKvHeads}; expected a divisor of num_attention_heads ${numHeads}`,
    );
  }
  const headDim =
    config.optionalInt("head_dim", { max: 1 << 16 }) ?? defaults.headDim ?? dividedHeads(config, hiddenSize, numHeads);
  const contextLength = config.optionalInt("max_position_embeddings");
  const tied = config.bool("tie_word_embeddings", defaults.tied ?? false);
  return { hiddenSize, numLayers, vocabSize, numHeads, numKvHeads, headDim, contextLength, tied };
}

export function dividedHeads(config: ConfigReader, hiddenSize: number, numHeads: number): number {
  if (hiddenSize % numHeads !== 0) {
    throw config.error("hidden_size", `is ${hiddenSize}; expected a multiple of the ${numHeads} heads, or head_dim`);
  }
  return hiddenSize / numHeads;
}

export const intermediate = (config: ConfigReader, name = "intermediate_size") => config.int(name, { max: 1 << 22 });

/** What the config lists for each layer, as `layer_types` does; undefined where it does not. */
export function listedTypes(config: ConfigReader, numLayers: number, name = "layer_types") {
  const types = config.optionalStrings(name);
  if (types !== undefined && types.length !== numLayers) {
    throw config.error(name, `has ${types.length} entries; num_hidden_layers is ${numLayers}`);
  }
  return types;
}

/** Layers in order: those of which `kindOf` says the same are one kind, and made once. */
export function layersOf<const Kind extends readonly unknown[]>(
  count: number,
  kindOf: (index: number) => Kind,
  make: (...kind: Kind) => LayerSpec,
): LayerSpec[] {
  const kinds = new Map<string, LayerSpec>();
  return Array.from({ length: count }, (_, index) => {
    const kind = kindOf(index);
    const made = kinds.get(String(kind)) ?? make(...kind);
    kinds.set(String(kind), made);
    return made;
  });
}

/** The part of a multimodal config that describes its text model. @throws FormatError where there is none */
export function textConfig(config: ConfigReader): ConfigReader {
  const text = config.optionalObject("text_config");
  if (text === undefined) throw config.error("text_config", "is missing");
  return text;
}

export function repeat(count: number, kind: LayerSpec): LayerSpec[] {
  return Array.from({ length: count }, () => kind);
}

/** Embedding, final RMS norm and head: what Llama and its descendants have around the layers. */
export function ends(base: ReturnType<typeof basics>, finalNormBias = false) {
  return {
    embeddings: [tokenEmbedding(base.vocabSize, base.hiddenSize)],
    head: [
      ...norms("final_norm", 1, base.hiddenSize, finalNormBias),
      ...languageHead(base.vocabSize, base.hiddenSize, base.tied),
    ],
  };
}
