/**
 * One rank's part of a model, read from the folder straight into its arenas: rows of the column-parallel matrices,
 * columns of the row-parallel ones. Nothing of another rank's part is read, but for the rows around narrow columns.
 *
 * In memory every dim is padded to a multiple of 8. A head's two halves are padded each by itself (`half` floats), so
 * that rotary embeddings pair a lane of the first with a lane of the second; the columns of the output projection
 * follow. Padding is zero everywhere and so never changes a sum.
 */
import type { LlamaConfig, Weights } from "chorale/formats";
import { padded } from "./kernels.ts";
import type { Range, Shard } from "./layout.ts";
import { type Arena, roomFor } from "./memory.ts";

/** Padded sizes of a rank's matrices, in elements. */
export interface Sizes {
  readonly hidden: number;
  readonly half: number;
  readonly head: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  /** All query heads; then with keys and values. */
  readonly queries: number;
  readonly qkv: number;
  readonly intermediate: number;
  readonly vocab: number;
}

const length = ([start, end]: Range): number => end - start;

export function sizesOf(config: LlamaConfig, shard: Shard): Sizes {
  const half = Math.ceil(config.headDim / 8) * 4;
  const head = 2 * half;
  const numHeads = length(shard.heads);
  const numKvHeads = length(shard.kvHeads);
  return {
    hidden: padded(config.hiddenSize),
    half,
    head,
    numHeads,
    numKvHeads,
    queries: numHeads * head,
    qkv: (numHeads + 2 * numKvHeads) * head,
    intermediate: padded(length(shard.intermediate)),
    vocab: padded(shard.vocabRows),
  };
}

/** Addresses of a layer's weights and cache; a bias that the model lacks is 0. */
export interface Layer {
  readonly arena: Arena;
  readonly inputNorm: number;
  readonly qkv: number;
  readonly qkvBias: number;
  readonly output: number;
  readonly outputBias: number;
  readonly postNorm: number;
  readonly gateUp: number;
  readonly gateUpBias: number;
  readonly down: number;
  readonly downBias: number;
  /** [position][k heads, v heads][head] */
  readonly cache: number;
}

export interface Head {
  readonly arena: Arena;
  readonly norm: number;
  readonly weight: number;
}

type Part = Exclude<keyof Layer, "arena">;

/** Elements of each part of a layer. */
function partsOf(config: LlamaConfig, sizes: Sizes, positions: number): Readonly<Record<Part, number>> {
  const { hidden, qkv, queries, intermediate, numKvHeads, head } = sizes;
  return {
    inputNorm: hidden,
    qkv: qkv * hidden,
    qkvBias: config.qkvBias ? qkv : 0,
    output: hidden * queries,
    outputBias: config.outputBias ? hidden : 0,
    postNorm: hidden,
    gateUp: 2 * intermediate * hidden,
    gateUpBias: config.mlpBias ? 2 * intermediate : 0,
    down: hidden * intermediate,
    downBias: config.mlpBias ? hidden : 0,
    cache: positions * 2 * numKvHeads * head,
  };
}

export function layerBytes(config: LlamaConfig, sizes: Sizes, positions: number): number {
  return Object.values(partsOf(config, sizes, positions)).reduce((sum, floats) => sum + roomFor(floats), 0);
}

export const headBytes = (sizes: Sizes): number => roomFor(sizes.hidden) + roomFor(sizes.vocab * sizes.hidden);

/** Checks the shapes of all tensors that this rank reads. @throws FormatError before anything is allocated */
export function checkShapes(config: LlamaConfig, shard: Shard, weights: Weights): void {
  const { hiddenSize, headDim, numHeads, numKvHeads, intermediateSize, vocabSize } = config;
  const [q, kv] = [numHeads * headDim, numKvHeads * headDim];
  const linear = (name: string, rows: number, columns: number, bias: boolean) => {
    weights.expect(`${name}.weight`, [rows, columns]);
    if (bias) weights.expect(`${name}.bias`, [rows]);
  };
  for (let i = shard.layers[0]; i < shard.layers[1]; i++) {
    const name = `model.layers.${i}`;
    weights.expect(`${name}.input_layernorm.weight`, [hiddenSize]);
    weights.expect(`${name}.post_attention_layernorm.weight`, [hiddenSize]);
    linear(`${name}.self_attn.q_proj`, q, hiddenSize, config.qkvBias);
    linear(`${name}.self_attn.k_proj`, kv, hiddenSize, config.qkvBias);
    linear(`${name}.self_attn.v_proj`, kv, hiddenSize, config.qkvBias);
    linear(`${name}.self_attn.o_proj`, hiddenSize, q, config.outputBias);
    linear(`${name}.mlp.gate_proj`, intermediateSize, hiddenSize, config.mlpBias);
    linear(`${name}.mlp.up_proj`, intermediateSize, hiddenSize, config.mlpBias);
    linear(`${name}.mlp.down_proj`, hiddenSize, intermediateSize, config.mlpBias);
  }
  if (shard.first) weights.expect(EMBEDDING, [vocabSize, hiddenSize]);
  if (shard.last) {
    weights.expect("model.norm.weight", [hiddenSize]);
    weights.expect(headName(config), [vocabSize, hiddenSize]);
  }
}

const EMBEDDING = "model.embed_tokens.weight";
const headName = (config: LlamaConfig): string => (config.tiedEmbeddings ? EMBEDDING : "lm_head.weight");

export function readLayer(
  config: LlamaConfig,
  shard: Shard,
  weights: Weights,
  arena: Arena,
  index: number,
  positions: number,
): Layer {
  const sizes = sizesOf(config, shard);
  const parts = partsOf(config, sizes, positions);
  const at = (part: Part): number => (parts[part] === 0 ? 0 : arena.allocate(parts[part]));
  const layer: Layer = {
    arena,
    inputNorm: at("inputNorm"),
    qkv: at("qkv"),
    qkvBias: at("qkvBias"),
    output: at("output"),
    outputBias: at("outputBias"),
    postNorm: at("postNorm"),
    gateUp: at("gateUp"),
    gateUpBias: at("gateUpBias"),
    down: at("down"),
    downBias: at("downBias"),
    cache: at("cache"),
  };
  const name = `model.layers.${index}`;
  const { hidden, intermediate, head } = sizes;
  const view = (part: Part) => arena.view(layer[part], parts[part]);
  weights.readF32(`${name}.input_layernorm.weight`, view("inputNorm"));
  weights.readF32(`${name}.post_attention_layernorm.weight`, view("postNorm"));

  // Query, key and value rows are one matrix, and so one product.
  let row = 0;
  for (const [projection, heads] of [
    ["q_proj", shard.heads],
    ["k_proj", shard.kvHeads],
    ["v_proj", shard.kvHeads],
  ] as const) {
    const tensor = `${name}.self_attn.${projection}`;
    readHeads(config, sizes, weights, `${tensor}.weight`, heads, view("qkv").subarray(row * hidden), hidden);
    if (config.qkvBias) readHeads(config, sizes, weights, `${tensor}.bias`, heads, view("qkvBias").subarray(row), 1);
    row += length(heads) * head;
  }
  readOutput(config, shard, sizes, weights, `${name}.self_attn.o_proj.weight`, view("output"));

  for (const [projection, first] of [
    ["gate_proj", 0],
    ["up_proj", intermediate],
  ] as const) {
    const tensor = `${name}.mlp.${projection}`;
    const rows = shard.intermediate;
    weights.readF32(`${tensor}.weight`, view("gateUp").subarray(first * hidden), { rows, stride: hidden });
    if (config.mlpBias) weights.readF32(`${tensor}.bias`, view("gateUpBias").subarray(first), { rows });
  }
  weights.readF32(`${name}.mlp.down_proj.weight`, view("down"), { columns: shard.intermediate, stride: intermediate });

  // The ranks' outputs are added up: the bias of a row-parallel matrix must be added by one of them only.
  if (shard.tpRank === 0) {
    if (config.outputBias) weights.readF32(`${name}.self_attn.o_proj.bias`, view("outputBias"));
    if (config.mlpBias) weights.readF32(`${name}.mlp.down_proj.bias`, view("downBias"));
  }
  return layer;
}

/** Reads the rows of some heads (or their biases, with a stride of 1), each half to its padded place. */
function readHeads(
  { headDim }: LlamaConfig,
  { half, head }: Sizes,
  weights: Weights,
  name: string,
  heads: Range,
  into: Float32Array,
  stride: number,
): void {
  if (headDim === head) {
    weights.readF32(name, into, { rows: [heads[0] * headDim, heads[1] * headDim], stride });
    return;
  }
  for (let h = heads[0]; h < heads[1]; h++) {
    for (const part of [0, 1]) {
      const start = h * headDim + (part * headDim) / 2;
      const row = (h - heads[0]) * head + part * half;
      weights.readF32(name, into.subarray(row * stride), { rows: [start, start + headDim / 2], stride });
    }
  }
}

/** Rows of the output projection that are rearranged at once. */
const ROWS_AT_ONCE = 256;

/** Reads the columns of this rank's heads, each half to its padded place. */
function readOutput(
  { headDim, hiddenSize }: LlamaConfig,
  { heads }: Shard,
  { half, head, queries }: Sizes,
  weights: Weights,
  name: string,
  into: Float32Array,
): void {
  const columns: Range = [heads[0] * headDim, heads[1] * headDim];
  if (headDim === head) {
    weights.readF32(name, into, { columns, stride: queries });
    return;
  }
  const width = length(columns);
  const temporary = new Float32Array(Math.min(ROWS_AT_ONCE, hiddenSize) * width);
  for (let first = 0; first < hiddenSize; first += ROWS_AT_ONCE) {
    const rows = Math.min(ROWS_AT_ONCE, hiddenSize - first);
    weights.readF32(name, temporary, { rows: [first, first + rows], columns });
    for (let r = 0; r < rows; r++) {
      for (let h = 0; h < length(heads); h++) {
        for (const part of [0, 1]) {
          const from = r * width + h * headDim + (part * headDim) / 2;
          into.set(temporary.subarray(from, from + headDim / 2), (first + r) * queries + h * head + part * half);
        }
      }
    }
  }
}

export function readHead(config: LlamaConfig, shard: Shard, weights: Weights, arena: Arena): Head {
  const { hidden, vocab } = sizesOf(config, shard);
  const head: Head = { arena, norm: arena.allocate(hidden), weight: arena.allocate(vocab * hidden) };
  weights.readF32("model.norm.weight", arena.view(head.norm, hidden));
  const view = arena.view(head.weight, vocab * hidden);
  weights.readF32(headName(config), view, { rows: shard.vocab, stride: hidden });
  return head;
}

/** Reads this rank's rows of the embedding, padded to the hidden size's stride. */
export function readEmbedding(config: LlamaConfig, shard: Shard, weights: Weights): Float32Array {
  const { hidden } = sizesOf(config, shard);
  const into = new Float32Array(length(shard.vocab) * hidden);
  weights.readF32(EMBEDDING, into, { rows: shard.vocab, stride: hidden });
  return into;
}
