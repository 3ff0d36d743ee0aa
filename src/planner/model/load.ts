/** What MODEL means on the command line: a folder, a file, a preset's name, or a parameter count. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import {
  fileSource,
  INDEX_FILE,
  openWeights,
  parseIndex,
  readConfigFile,
  readGgufHeader,
  readJsonFile,
  readSafetensorsHeader,
  type SafetensorsTensor,
  WEIGHTS_FILE,
} from "../../foreign/formats/index.ts";
import { weightFormat } from "../memory/formats.ts";
import { modelBytes, weightBytes } from "../memory/weights.ts";
import { refuseEncoderDecoderName } from "./encoder-decoders.ts";
import { modelFromConfig } from "./from-config.ts";
import { modelFromCount, parseParameterCount } from "./from-count.ts";
import { modelFromGguf } from "./from-gguf.ts";
import { modelFromTensors, withStoredBytes } from "./from-safetensors.ts";
import { findModelPreset, MODEL_PRESETS, modelPreset } from "./presets.ts";
import type { ModelSpec } from "./spec.ts";

/**
 * Finds and reads a model: a folder with `config.json` (and safetensors or GGUF files), a `config.json`, a safetensors
 * file or index, a GGUF file, a preset such as `llama-3.1-70b`, or a count such as `70B`.
 * @throws FormatError naming file and field; InvalidArgumentError when it is none of these; UnsupportedError for an
 * architecture that is not known
 * @example
 * (await loadModel("gpt2")).numLayers // 12
 */
export async function loadModel(text: string): Promise<ModelSpec> {
  if (existsSync(text)) return statSync(text).isDirectory() ? loadFolder(text) : loadFile(text);
  refuseEncoderDecoderName(text);
  if (findModelPreset(text) !== undefined) return modelPreset(text);
  const count = parseParameterCount(text);
  if (count !== undefined) return modelFromCount(count, text);
  throw new InvalidArgumentError(
    "model",
    text,
    `a folder, a config.json, a safetensors or GGUF file, a count such as 70B, or one of ${MODEL_PRESETS.join(", ")}`,
  );
}

async function loadFolder(folder: string): Promise<ModelSpec> {
  const configPath = join(folder, "config.json");
  const name = basename(folder) === "." ? folder : basename(folder);
  const hasWeights = existsSync(join(folder, WEIGHTS_FILE));
  const indexPath = join(folder, INDEX_FILE);
  if (existsSync(configPath)) {
    const spec = modelFromConfig(readConfigFile(configPath), configPath, name);
    if (hasWeights) return withTensors(spec, folder);
    if (!existsSync(indexPath)) return spec;
    return withIndex(spec, indexPath);
  }
  if (hasWeights || existsSync(indexPath)) return fromWeights(folder, name);
  const ggufs = readdirSync(folder).filter((file) => file.endsWith(".gguf"));
  const [only, second] = ggufs.sort();
  if (only !== undefined && second === undefined) return loadFile(join(folder, only));
  throw new FormatError(
    folder,
    second === undefined
      ? "holds neither a config.json nor weights"
      : `holds ${ggufs.length} GGUF files: name one of them`,
    { field: "config.json" },
  );
}

function fromWeights(folder: string, name: string): ModelSpec {
  const weights = openWeights(folder);
  try {
    return modelFromTensors(weights.tensors, folder, name);
  } finally {
    weights.close();
  }
}

function withTensors(spec: ModelSpec, folder: string): ModelSpec {
  const weights = openWeights(folder);
  try {
    return withStoredBytes(spec, weights.tensors, folder);
  } finally {
    weights.close();
  }
}

/** An index: its shards' headers where they are all there, else its total size, spread as the formula spreads it. */
function withIndex(spec: ModelSpec, indexPath: string): ModelSpec {
  const json = readJsonFile(indexPath);
  const files = parseIndex(json, indexPath);
  const folder = dirname(indexPath);
  if ([...new Set(files.values())].every((file) => existsSync(join(folder, file)))) return withTensors(spec, folder);
  const layers = new Set([...files.keys()].flatMap((name) => /\.(?:layers|h|layer)\.(\d+)\./.exec(name)?.[1] ?? []));
  if (layers.size > 0 && layers.size < spec.numLayers) {
    throw new FormatError(indexPath, `names ${layers.size} layers; config.json says ${spec.numLayers}`, {
      field: "weight_map",
    });
  }
  const total = (json as { metadata?: { total_size?: unknown } | null }).metadata?.total_size;
  const note = "the index's files are not here";
  if (total === undefined) return { ...spec, assumptions: [...spec.assumptions, `${note}: sizes follow the formula`] };
  if (typeof total !== "number" || !Number.isSafeInteger(total) || total < 1) {
    throw new FormatError(indexPath, `is ${JSON.stringify(total)}; expected a number of bytes`, {
      field: "metadata.total_size",
    });
  }
  const format = weightFormat(spec.weightFormat);
  const ratio = total / modelBytes(spec, format);
  const whole = weightBytes(spec, format, 1, 1);
  return {
    ...spec,
    storedBytes: {
      embeddings: Math.round(whole.embeddings * ratio),
      layers: whole.layers.map((bytes) => Math.round(bytes * ratio)),
      head: Math.round(whole.head * ratio),
    },
    assumptions: [...spec.assumptions, `${note}: its total of ${total} bytes was spread as the formula spreads it`],
  };
}

async function loadFile(path: string): Promise<ModelSpec> {
  const file = basename(path);
  if (file.endsWith(".gguf")) {
    const source = fileSource(path);
    try {
      return modelFromGguf(await readGgufHeader(source));
    } finally {
      source.close();
    }
  }
  const config = join(dirname(path), "config.json");
  const name = basename(dirname(path));
  if (file.endsWith(".safetensors")) {
    const source = fileSource(path);
    let tensors: ReadonlyMap<string, SafetensorsTensor>;
    try {
      tensors = readSafetensorsHeader(source).tensors;
    } finally {
      source.close();
    }
    if (existsSync(config) && file === WEIGHTS_FILE) {
      return withStoredBytes(modelFromConfig(readConfigFile(config), config, name), tensors, path);
    }
    return modelFromTensors(tensors, path, file.replace(/\.safetensors$/, ""));
  }
  if (file.endsWith(".safetensors.index.json")) {
    if (!existsSync(config)) return fromWeights(dirname(path), name);
    return withIndex(modelFromConfig(readConfigFile(config), config, name), path);
  }
  if (file.endsWith(".json")) {
    return modelFromConfig(readConfigFile(path), path, file === "config.json" ? name : file.replace(/\.json$/, ""));
  }
  throw new FormatError(path, "is none of config.json, *.safetensors, *.safetensors.index.json and *.gguf", {
    field: "(file name)",
  });
}
