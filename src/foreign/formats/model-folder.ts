/**
 * The weights of a Hugging Face folder: `model.safetensors`, or several files and `model.safetensors.index.json`
 * (`{metadata, weight_map: {tensor: file}}`). All headers are read and checked when the folder is opened; at most one
 * file is open at a time. File names that leave the folder are refused: an index is foreign input.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { FormatError, show } from "../../core/index.ts";
import { type ByteSource, fileSource } from "./byte-source.ts";
import { readJsonFile } from "./json.ts";
import { readSliceF32, type Slice } from "./read-slice.ts";
import { readSafetensorsHeader, type SafetensorsTensor } from "./safetensors.ts";

export const WEIGHTS_FILE = "model.safetensors";
export const INDEX_FILE = "model.safetensors.index.json";

/** A shard's file name: one path element of letters, digits, `.`, `_`, `-`; not hidden. */
const SHARD_NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]*\.safetensors$/;

/** The tensors of a folder. */
export interface Weights {
  readonly where: string;
  /** The files, in order of their names. */
  readonly files: readonly string[];
  readonly tensors: ReadonlyMap<string, SafetensorsTensor>;
  /**
   * Finds a tensor and checks its shape.
   * @throws FormatError when it is missing or has another shape
   */
  expect(name: string, shape: readonly number[]): SafetensorsTensor;
  /** Reads a slice as f32: see `readSliceF32`. @throws FormatError when the tensor is missing */
  readF32(name: string, into: Float32Array, slice?: Slice): void;
  close(): void;
}

/**
 * Checks an index: which file holds which tensor.
 * @throws FormatError naming the field
 */
export function parseIndex(json: unknown, where: string): ReadonlyMap<string, string> {
  const isRecord = (value: unknown): value is Record<string, unknown> =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isRecord(json)) throw new FormatError(where, `is ${show(json)}; expected an object`);
  const { metadata, weight_map: map } = json;
  if (metadata !== undefined && metadata !== null && !isRecord(metadata)) {
    throw new FormatError(where, `is ${show(metadata)}; expected an object`, { field: "metadata" });
  }
  if (!isRecord(map) || Object.keys(map).length === 0) {
    throw new FormatError(where, `is ${show(map)}; expected an object of file names`, { field: "weight_map" });
  }
  const files = new Map<string, string>();
  for (const [tensor, file] of Object.entries(map)) {
    if (typeof file !== "string" || !SHARD_NAME.test(file)) {
      throw new FormatError(where, `${show(tensor)} is in ${show(file)}; expected a .safetensors file of this folder`, {
        field: "weight_map",
      });
    }
    files.set(tensor, file);
  }
  return files;
}

/**
 * Opens the weights of a folder: reads and checks every header, no data.
 * @throws FormatError when there are none, or a file breaks its format, or the index names what is not there
 * @example
 * import { openWeights } from "chorale/formats";
 * try {
 *   const weights = openWeights("no-such-model");
 *   weights.close();
 * } catch (error) {
 *   console.log(String(error)); // FormatError: no-such-model: has neither model.safetensors nor ...
 * }
 */
export function openWeights(folder: string): Weights {
  const indexPath = join(folder, INDEX_FILE);
  const singlePath = join(folder, WEIGHTS_FILE);
  const single = existsSync(singlePath);
  if (!single && !existsSync(indexPath)) {
    throw new FormatError(folder, `has neither ${WEIGHTS_FILE} nor ${INDEX_FILE}`);
  }
  // As transformers does: the single file wins when both are there.
  const index = single ? undefined : parseIndex(readJsonFile(indexPath), indexPath);
  const files = index === undefined ? [WEIGHTS_FILE] : [...new Set(index.values())].sort();

  const tensors = new Map<string, SafetensorsTensor>();
  const pathOf = new Map<string, string>();
  for (const file of files) {
    const path = join(folder, file);
    const source = fileSource(path);
    try {
      const header = readSafetensorsHeader(source);
      for (const [name, tensor] of header.tensors) {
        // A tensor that the index places elsewhere, or does not name, is not part of the model.
        if (index !== undefined && index.get(name) !== file) continue;
        tensors.set(name, tensor);
        pathOf.set(name, path);
      }
    } finally {
      source.close();
    }
  }
  for (const [name, file] of index ?? []) {
    if (!tensors.has(name)) {
      throw new FormatError(indexPath, `${show(name)} is said to be in ${file}, which does not hold it`, {
        field: "weight_map",
      });
    }
  }

  let open: ByteSource | undefined;
  const sourceOf = (path: string): ByteSource => {
    if (open?.where !== path) {
      open?.close();
      open = fileSource(path);
    }
    return open;
  };
  const find = (name: string): SafetensorsTensor => {
    const tensor = tensors.get(name);
    if (tensor === undefined) throw new FormatError(folder, "is not in the weights", { field: show(name) });
    return tensor;
  };
  return {
    where: folder,
    files,
    tensors,
    expect(name, shape) {
      const tensor = find(name);
      if (tensor.shape.length !== shape.length || tensor.shape.some((dim, i) => dim !== shape[i])) {
        throw new FormatError(
          pathOf.get(name) ?? folder,
          `has shape ${show(tensor.shape)}; the config makes it ${show(shape)}`,
          {
            field: show(name),
          },
        );
      }
      return tensor;
    },
    readF32(name, into, slice) {
      const tensor = find(name);
      readSliceF32(sourceOf(pathOf.get(name) as string), tensor, into, slice);
    },
    close() {
      open?.close();
      open = undefined;
    },
  };
}
