/** From a Hugging Face config to a ModelSpec. */
import { FormatError, invariant } from "../../core/index.ts";
import { ConfigReader, parseConfigText } from "../../foreign/formats/index.ts";
import { draftOf } from "./architectures.ts";
import { countParameters, type LayerSpec, type ModelSpec } from "./spec.ts";
import { weightFormatOf } from "./weight-format.ts";

/** More parameters than this are a broken config: sums of bytes must stay exact in a JavaScript number. */
const MAX_PARAMETERS = 2 ** 48;

/**
 * Builds a ModelSpec from a parsed `config.json`.
 * @param where names the file in errors
 * @throws FormatError naming the field; UnsupportedError for an architecture that is not known
 * @example
 * modelFromConfig({ model_type: "gpt2", n_embd: 768, n_layer: 12, n_head: 12, vocab_size: 50257, n_positions: 1024 }, "gpt2").numLayers // 12
 */
export function modelFromConfig(config: unknown, where = "config.json", name?: string): ModelSpec {
  const reader = config instanceof ConfigReader ? config : new ConfigReader(config, where);
  const draft = draftOf(reader);
  const kinds: LayerSpec[] = [];
  const layers = draft.layers.map((kind) => {
    const known = kinds.indexOf(kind);
    return known >= 0 ? known : kinds.push(kind) - 1;
  });
  invariant(layers.length > 0, "an architecture without layers");
  const format = weightFormatOf(reader);
  const spec: ModelSpec = {
    name: name ?? modelName(reader),
    architecture: reader.optionalString("model_type") ?? "unknown",
    isDecoder: draft.isDecoder ?? true,
    hiddenSize: draft.hiddenSize,
    vocabSize: draft.vocabSize,
    numLayers: layers.length,
    numHeads: draft.numHeads,
    numKvHeads: draft.numKvHeads,
    headDim: draft.headDim,
    contextLength: draft.contextLength,
    tiedEmbeddings: draft.tied,
    layerKinds: kinds,
    layers,
    embeddings: draft.embeddings,
    head: draft.head,
    ...(draft.activeWithout === undefined ? {} : { activeWithout: draft.activeWithout }),
    weightFormat: format.name,
    storedBytes: undefined,
    assumptions: [...(draft.assumptions ?? []), ...format.assumptions],
  };
  const { total } = countParameters(spec);
  if (!Number.isSafeInteger(total) || total > MAX_PARAMETERS) {
    throw new FormatError(reader.where, `describes ${total} parameters; more than 2^48 cannot be right`, {
      field: "hidden_size, num_hidden_layers, intermediate_size, vocab_size",
    });
  }
  return spec;
}

/** Builds a ModelSpec from the text of a `config.json`. @throws as modelFromConfig does */
export function modelFromConfigText(text: string, where = "config.json", name?: string): ModelSpec {
  return modelFromConfig(parseConfigText(text, where), where, name);
}

function modelName(reader: ConfigReader): string {
  return reader.optionalString("_name_or_path") || reader.optionalString("model_type") || "model";
}
