/**
 * One rank's weights on its device, in the dtype of the file: rows of the column-parallel matrices, columns of the
 * row-parallel ones, as weights.ts has them for the host, but without padding.
 */
import { type ArrayOf, encodeArray, type Tensor, type World } from "chorale";
import { devicePtr, type RankDevice } from "chorale/device";
import type { LlamaConfig, Weights } from "chorale/formats";
import type { Range, Shard } from "../layout.ts";
import type { Launcher, WeightType } from "./launcher.ts";

/** Part of a tensor of the model; whole rows, or all rows by default. */
export interface Slice {
  readonly name: string;
  readonly rows?: Range;
  readonly columns?: Range;
}

/** Where weights come from. */
export interface WeightSource {
  readonly dtype: WeightType;
  /** Fills a device tensor with slices, one under the other. */
  fill(into: Tensor, slices: readonly Slice[]): void;
}

const length = ([start, end]: Range): number => end - start;

/** The one dtype of all weights; f32 where they differ, which holds every value of the others. */
export function weightTypeOf(weights: Weights): WeightType {
  const dtypes = new Set([...weights.tensors.values()].map(({ dtype }) => dtype));
  if (dtypes.size !== 1) return "f32";
  return dtypes.has("BF16") ? "bf16" : dtypes.has("F16") ? "f16" : "f32";
}

/** Reads from a folder. A slice of bf16 or f16 comes back as it was. */
export function fromFolder(world: World, weights: Weights): WeightSource {
  const dtype = weightTypeOf(weights);
  return {
    dtype,
    fill(into, slices) {
      const values = new Float32Array(into.size);
      let at = 0;
      for (const { name, rows, columns } of slices) {
        weights.readF32(name, values.subarray(at), {
          ...(rows === undefined ? {} : { rows }),
          ...(columns === undefined ? {} : { columns }),
        });
        const shape = weights.tensors.get(name)?.shape ?? [];
        at +=
          (rows === undefined ? (shape[0] ?? 1) : length(rows)) *
          (columns === undefined ? (shape[1] ?? 1) : length(columns));
      }
      world.upload(into, encode(dtype, values) as ArrayOf<typeof into.dtype>);
    },
  };
}

/** Exact for values that came from the dtype. */
export function encode(dtype: WeightType, values: Float32Array): Float32Array | Uint16Array {
  if (dtype === "f32") return values;
  if (dtype === "f16") return encodeArray("f16", values);
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  return Uint16Array.from(bits, (word) => word >>> 16);
}

/** Random weights, made on the device: for sizes that no file here has. */
export function random(at: RankDevice, launcher: Launcher, dtype: WeightType): WeightSource {
  let seed = 1;
  return {
    dtype,
    fill(into) {
      launcher.fillRandom(devicePtr(into, at.device), into.size, seed++, into.shape.length === 1 ? 1 : 0.02);
    },
  };
}

/** Weights of a layer's norms, and addresses of its others and of its cache; a bias that this rank does not add is 0. */
export interface GpuLayer {
  readonly inputNorm: Tensor;
  readonly qkv: bigint;
  readonly qkvBias: bigint;
  readonly output: bigint;
  readonly outputBias: bigint;
  readonly postNorm: Tensor;
  readonly gateUp: bigint;
  readonly gateUpBias: bigint;
  readonly down: bigint;
  readonly downBias: bigint;
  /** [positions][kvHeads][headDim], f32 */
  readonly keys: bigint;
  readonly values: bigint;
}

export interface GpuHead {
  readonly norm: Tensor;
  /** [rows of the shard's vocabulary, hidden] */
  readonly weight: bigint;
}

/** Makes a tensor that is freed with the part, and gives it with its address. */
export type Allocate = <D extends "f32" | "i32" | WeightType>(
  dtype: D,
  shape: readonly number[],
) => { readonly tensor: Tensor<D>; readonly address: bigint };

export function loadLayer(
  config: LlamaConfig,
  shard: Shard,
  source: WeightSource,
  allocate: Allocate,
  index: number,
  positions: number,
): GpuLayer {
  const { hiddenSize, headDim } = config;
  const [numHeads, numKvHeads] = [length(shard.heads), length(shard.kvHeads)];
  const inner = length(shard.intermediate);
  const name = `model.layers.${index}`;
  const filled = (shape: readonly number[], slices: readonly Slice[]) => {
    const made = allocate(source.dtype, shape);
    source.fill(made.tensor, slices);
    return made;
  };
  const load = (shape: readonly number[], ...slices: Slice[]): bigint => filled(shape, slices).address;
  const loadNorm = (what: string): Tensor => filled([hiddenSize], [{ name: `${name}.${what}.weight` }]).tensor;
  const ofHeads = ([start, end]: Range): Range => [start * headDim, end * headDim];
  const [q, kv] = [ofHeads(shard.heads), ofHeads(shard.kvHeads)];
  const projections = [
    [`${name}.self_attn.q_proj`, q],
    [`${name}.self_attn.k_proj`, kv],
    [`${name}.self_attn.v_proj`, kv],
  ] as const;
  const rowsOf = (parts: readonly (readonly [string, Range])[], what: string): Slice[] =>
    parts.map(([part, rows]) => ({ name: `${part}.${what}`, rows }));
  const mlp = [
    [`${name}.mlp.gate_proj`, shard.intermediate],
    [`${name}.mlp.up_proj`, shard.intermediate],
  ] as const;
  const qkvRows = (numHeads + 2 * numKvHeads) * headDim;
  // The ranks' outputs are added up: the bias of a row-parallel matrix must be added by one of them only.
  const once = shard.tpRank === 0;
  const cache = () => allocate("f32", [positions, numKvHeads, headDim]).address;
  return {
    inputNorm: loadNorm("input_layernorm"),
    qkv: load([qkvRows, hiddenSize], ...rowsOf(projections, "weight")),
    qkvBias: config.qkvBias ? load([qkvRows], ...rowsOf(projections, "bias")) : 0n,
    output: load([hiddenSize, numHeads * headDim], { name: `${name}.self_attn.o_proj.weight`, columns: q }),
    outputBias: config.outputBias && once ? load([hiddenSize], { name: `${name}.self_attn.o_proj.bias` }) : 0n,
    postNorm: loadNorm("post_attention_layernorm"),
    gateUp: load([2 * inner, hiddenSize], ...rowsOf(mlp, "weight")),
    gateUpBias: config.mlpBias ? load([2 * inner], ...rowsOf(mlp, "bias")) : 0n,
    down: load([hiddenSize, inner], { name: `${name}.mlp.down_proj.weight`, columns: shard.intermediate }),
    downBias: config.mlpBias && once ? load([hiddenSize], { name: `${name}.mlp.down_proj.bias` }) : 0n,
    keys: cache(),
    values: cache(),
  };
}

const EMBEDDING = "model.embed_tokens.weight";

/** This rank's rows of the embedding. */
export function loadEmbedding(config: LlamaConfig, shard: Shard, source: WeightSource, allocate: Allocate): bigint {
  const { tensor, address } = allocate(source.dtype, [length(shard.vocab), config.hiddenSize]);
  if (length(shard.vocab) > 0) source.fill(tensor, [{ name: EMBEDDING, rows: shard.vocab }]);
  return address;
}

/** The last norm, and this rank's rows of the head: those of `embedding` when the model ties them and has them here. */
export function loadHead(
  config: LlamaConfig,
  shard: Shard,
  source: WeightSource,
  allocate: Allocate,
  embedding: bigint | undefined,
): GpuHead {
  const norm = allocate(source.dtype, [config.hiddenSize]);
  source.fill(norm.tensor, [{ name: "model.norm.weight" }]);
  if (config.tiedEmbeddings && embedding !== undefined) return { norm: norm.tensor, weight: embedding };
  const weight = allocate(source.dtype, [length(shard.vocab), config.hiddenSize]);
  const name = config.tiedEmbeddings ? EMBEDDING : "lm_head.weight";
  if (length(shard.vocab) > 0) source.fill(weight.tensor, [{ name, rows: shard.vocab }]);
  return { norm: norm.tensor, weight: weight.address };
}
