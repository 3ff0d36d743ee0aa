/**
 * The forward pass of one rank: its layers of a Llama model, its heads and columns of each, in f32.
 *
 * Tensor parallelism is Megatron's (Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053): query, key, value, gate and
 * up projections are split by rows, output and down projections by columns, so that a layer needs two all-reduces.
 * The embedding and the head are split by vocabulary: an all-reduce after the one, an all-gather after the other.
 */
import { type Communicator, InvalidArgumentError, type Tensor, type World } from "chorale";
import { type LlamaConfig, openWeights } from "chorale/formats";
import type { Shard } from "./layout.ts";
import { Arena, groupBlocks, roomFor } from "./memory.ts";
import { HostLogits, type Logits, type Part } from "./part.ts";
import { fillRotations, inverseFrequencies } from "./rope.ts";
import {
  checkShapes,
  type Head,
  headBytes,
  type Layer,
  layerBytes,
  readEmbedding,
  readHead,
  readLayer,
  type Sizes,
  sizesOf,
} from "./weights.ts";

/** Most prompt tokens that pass the layers at once; a longer prompt passes in parts of this size. */
export const MAX_BATCH = 1024;

/** Addresses of an arena's scratch. */
interface Scratch {
  readonly arena: Arena;
  /** The residual stream, [batch][hidden]. */
  readonly x: number;
  readonly normed: number;
  readonly qkv: number;
  readonly attended: number;
  readonly partial: number;
  readonly gateUp: number;
  readonly activated: number;
  readonly scores: number;
  /** [positions][half] */
  readonly cos: number;
  readonly sin: number;
  readonly logits: number;
}

function scratchFloats(
  sizes: Sizes,
  batch: number,
  positions: number,
): Readonly<Record<keyof Omit<Scratch, "arena">, number>> {
  return {
    x: batch * sizes.hidden,
    normed: batch * sizes.hidden,
    qkv: batch * sizes.qkv,
    attended: batch * sizes.queries,
    partial: batch * sizes.hidden,
    gateUp: batch * 2 * sizes.intermediate,
    activated: batch * sizes.intermediate,
    scores: positions + 4,
    cos: positions * sizes.half,
    sin: positions * sizes.half,
    logits: sizes.vocab,
  };
}

function allocateScratch(arena: Arena, { config, sizes, batch, positions }: ModelPlan): Scratch {
  const floats = scratchFloats(sizes, batch, positions);
  const parts = Object.entries(floats).map(([name, count]) => [name, arena.allocate(count)]);
  const scratch = { arena, ...Object.fromEntries(parts) } as Scratch;
  const [cos, sin] = [arena.view(scratch.cos, floats.cos), arena.view(scratch.sin, floats.sin)];
  fillRotations(inverseFrequencies(config), cos, sin, sizes.half);
  return scratch;
}

export interface ModelOptions {
  readonly folder: string;
  readonly config: LlamaConfig;
  readonly shard: Shard;
  /** Positions that the KV cache holds. */
  readonly positions: number;
  /** Tokens of the longest prompt: scratch is made for so many at once, up to `maxBatch`. */
  readonly longestPrompt: number;
  /** `MAX_BATCH` by default. */
  readonly maxBatch?: number | undefined;
  /** Largest WASM memory, bytes; 4 GiB less a page by default. */
  readonly maxArenaBytes?: number | undefined;
}

/** Where a rank's part of a model will lie. Nothing is allocated yet. */
export interface ModelPlan extends ModelOptions {
  readonly sizes: Sizes;
  readonly batch: number;
  /** Bytes of each layer with its cache, then of the head on the last stage. */
  readonly blockBytes: readonly number[];
  /** Number of blocks in each arena. */
  readonly groups: readonly number[];
  readonly scratchBytes: number;
  /** The embedding is the head's matrix, which is here too. */
  readonly sharesEmbedding: boolean;
  readonly totalBytes: number;
}

/**
 * Plans a rank's memory, and checks that the folder's tensors are those of the config.
 * @throws FormatError when they are not
 * @throws OutOfMemoryError when a layer does not fit a WASM memory
 */
export function planModel(options: ModelOptions): ModelPlan {
  const { folder, config, shard, positions } = options;
  const weights = openWeights(folder);
  try {
    checkShapes(config, shard, weights);
  } finally {
    weights.close();
  }
  const sizes = sizesOf(config, shard);
  const batch = Math.min(options.longestPrompt, options.maxBatch ?? MAX_BATCH);
  const scratch = Object.values(scratchFloats(sizes, batch, positions));
  const scratchBytes = scratch.reduce((sum, floats) => sum + roomFor(floats), 0);
  const numLayers = shard.layers[1] - shard.layers[0];
  const blockBytes = new Array<number>(numLayers).fill(layerBytes(config, sizes, positions));
  if (shard.last) blockBytes.push(headBytes(sizes));
  const groups = groupBlocks(blockBytes, scratchBytes, options.maxArenaBytes);
  const sharesEmbedding = shard.first && shard.last && config.tiedEmbeddings;
  const embeddingBytes = shard.first && !sharesEmbedding ? (shard.vocab[1] - shard.vocab[0]) * sizes.hidden * 4 : 0;
  const totalBytes = blockBytes.reduce((sum, bytes) => sum + bytes, embeddingBytes + groups.length * scratchBytes);
  return { ...options, sizes, batch, blockBytes, groups, scratchBytes, sharesEmbedding, totalBytes };
}

/** How a rank talks while it computes. */
export interface ModelLinks {
  readonly world: World;
  /** The tensor-parallel group; used when it has more than one rank. */
  readonly tp: Communicator;
  /** Deadline of a collective: the time by which the slowest rank may be behind. */
  readonly timeoutMs: number;
}

/** One rank's part of a model, ready to run. */
export class ModelPart implements Part {
  readonly #world: World;
  readonly #config: LlamaConfig;
  readonly #shard: Shard;
  readonly #sizes: Sizes;
  readonly #tp: Communicator | undefined;
  readonly #wait: { readonly timeoutMs: number };
  readonly #positions: number;
  readonly #layers: readonly Layer[];
  readonly #head: Head | undefined;
  readonly #embedding: Float32Array | undefined;
  readonly #scratch = new Map<Arena, Scratch>();
  readonly #shared: Tensor<"f32">;
  readonly #sharedLogits: { readonly mine: Tensor<"f32">; readonly all: Tensor<"f32"> } | undefined;
  /** The arena whose `x` holds the residual stream. */
  #here: Scratch;
  /** Most tokens of one `forward`. */
  readonly batch: number;

  /** Allocates what was planned, and reads this rank's part of the weights. @throws FormatError */
  constructor(plan: ModelPlan, links: ModelLinks) {
    const { folder, config, shard, positions, sizes, blockBytes } = plan;
    this.#world = links.world;
    this.#config = config;
    this.#shard = shard;
    this.#positions = positions;
    this.#tp = links.tp.size > 1 ? links.tp : undefined;
    this.#wait = { timeoutMs: links.timeoutMs };
    this.batch = plan.batch;
    this.#sizes = sizes;

    const weights = openWeights(folder);
    try {
      const numLayers = shard.layers[1] - shard.layers[0];
      const layers: Layer[] = [];
      let block = 0;
      for (const count of plan.groups) {
        const end = block + count;
        const arena = new Arena(blockBytes.slice(block, end).reduce((sum, bytes) => sum + bytes, plan.scratchBytes));
        this.#scratch.set(arena, allocateScratch(arena, plan));
        for (; block < end; block++) {
          if (block === numLayers) this.#head = readHead(config, shard, weights, arena);
          else layers.push(readLayer(config, shard, weights, arena, shard.layers[0] + block, positions));
        }
      }
      this.#layers = layers;
      if (plan.sharesEmbedding && this.#head !== undefined) {
        this.#embedding = this.#head.arena.view(this.#head.weight, sizes.vocab * sizes.hidden);
      } else if (shard.first) this.#embedding = readEmbedding(config, shard, weights);
    } finally {
      weights.close();
    }
    this.#here = this.#scratchOf((this.#layers[0] as Layer).arena);
    this.#shared = links.world.tensor("f32", [this.batch * sizes.hidden]);
    if (shard.last && this.#tp !== undefined) {
      this.#sharedLogits = {
        mine: links.world.tensor("f32", [sizes.vocab]),
        all: links.world.tensor("f32", [shard.tp * sizes.vocab]),
      };
    }
  }

  /** Gives the communication memory back. */
  free(): void {
    this.#world.free(this.#shared);
    if (this.#sharedLogits === undefined) return;
    this.#world.free(this.#sharedLogits.mine);
    this.#world.free(this.#sharedLogits.all);
  }

  /** Puts the tokens' embeddings into the residual stream. Called on the first stage. */
  embed(tokens: readonly number[]): void {
    const { hidden } = this.#sizes;
    const [start, end] = this.#shard.vocab;
    this.#here = this.#scratchOf((this.#layers[0] as Layer).arena);
    const x = this.#stream(tokens.length);
    for (const [t, token] of tokens.entries()) {
      const row = x.subarray(t * hidden, (t + 1) * hidden);
      if (token >= start && token < end) {
        const at = (token - start) * hidden;
        row.set((this.#embedding as Float32Array).subarray(at, at + hidden));
      } else row.fill(0);
    }
    if (this.#tp === undefined) return;
    const shared = this.#reduce(this.#tp, x);
    x.set(shared);
  }

  /** Sends the residual stream of `count` tokens to the next stage. */
  send(to: Communicator, count: number): void {
    const tensor = this.#shared.slice(0, count * this.#sizes.hidden);
    tensor.data.set(this.#stream(count));
    to.send(tensor, to.rank + 1, this.#wait).wait(this.#wait);
  }

  /** Receives the residual stream of `count` tokens from the stage before. */
  receive(from: Communicator, count: number): void {
    const tensor = this.#shared.slice(0, count * this.#sizes.hidden);
    from.recv(tensor, from.rank - 1, this.#wait).wait(this.#wait);
    this.#here = this.#scratchOf((this.#layers[0] as Layer).arena);
    this.#stream(count).set(tensor.data);
  }

  /**
   * Passes `count` tokens, the first of them at `position`, through this rank's layers.
   * @throws InvalidArgumentError beyond the positions of the KV cache, or the batch
   */
  forward(count: number, position: number): void {
    if (count > this.batch || position + count > this.#positions) {
      throw new InvalidArgumentError(
        "tokens",
        `${count} at position ${position}`,
        `at most ${this.batch} at once, and ${this.#positions} in all`,
      );
    }
    for (const layer of this.#layers) {
      this.#moveTo(layer.arena, count);
      this.#attention(layer, count, position);
      this.#mlp(layer, count);
    }
  }

  /**
   * The logits of the last of `count` tokens, [vocabSize], on every rank of the last stage. Valid until the next call.
   */
  logits(count: number): Logits {
    const head = this.#head as Head;
    this.#moveTo(head.arena, count);
    const { hidden, vocab } = this.#sizes;
    const { vocabRows, tp } = this.#shard;
    const { vocabSize, hiddenSize, rmsNormEps } = this.#config;
    const scratch = this.#here;
    const { kernels } = head.arena;
    const rowBytes = hidden * 4;
    kernels.rmsnorm(scratch.x + (count - 1) * rowBytes, head.norm, scratch.normed, 1, rowBytes, hiddenSize, rmsNormEps);
    kernels.matmul(scratch.normed, head.weight, scratch.logits, 0, 1, vocab, rowBytes);
    const mine = head.arena.view(scratch.logits, vocab);
    if (this.#sharedLogits === undefined || this.#tp === undefined) return new HostLogits(mine.subarray(0, vocabSize));
    const { mine: input, all: output } = this.#sharedLogits;
    input.data.set(mine);
    this.#tp.allGather(input, { output, ...this.#wait }).wait(this.#wait);
    const logits = new Float32Array(vocabSize);
    for (let r = 0; r < tp; r++) {
      const rows = Math.min(vocabRows, vocabSize - r * vocabRows);
      if (rows > 0) logits.set(output.data.subarray(r * vocab, r * vocab + rows), r * vocabRows);
    }
    return new HostLogits(logits);
  }

  #attention(layer: Layer, count: number, position: number): void {
    const { kernels } = layer.arena;
    const { hidden, half, head, numHeads, numKvHeads, queries, qkv } = this.#sizes;
    const { hiddenSize, rmsNormEps, headDim, slidingWindow } = this.#config;
    const { x, normed, qkv: projected, attended, partial, scores, cos, sin } = this.#here;
    kernels.rmsnorm(x, layer.inputNorm, normed, count, hidden * 4, hiddenSize, rmsNormEps);
    kernels.matmul(normed, layer.qkv, projected, layer.qkvBias, count, qkv, hidden * 4);

    const kvFloats = 2 * numKvHeads * head;
    const cache = layer.arena.view(layer.cache + position * kvFloats * 4, count * kvFloats);
    const rows = layer.arena.view(projected, count * qkv);
    for (let t = 0; t < count; t++) {
      const angles = (position + t) * half * 4;
      kernels.rope(projected + t * qkv * 4, cos + angles, sin + angles, numHeads + numKvHeads, half * 4);
      cache.set(rows.subarray(t * qkv + queries, (t + 1) * qkv), t * kvFloats);
    }
    const scale = 1 / Math.sqrt(headDim);
    const stride = kvFloats * 4;
    for (let t = 0; t < count; t++) {
      const last = position + t;
      const first = slidingWindow === undefined ? 0 : Math.max(0, last - slidingWindow + 1);
      for (let h = 0; h < numHeads; h++) {
        const kv = this.#kvHeadOf(h);
        const keys = layer.cache + first * stride + kv * head * 4;
        kernels.attend(
          projected + (t * qkv + h * head) * 4,
          keys,
          keys + numKvHeads * head * 4,
          scores,
          attended + (t * queries + h * head) * 4,
          last - first + 1,
          stride,
          head * 4,
          scale,
        );
      }
    }
    kernels.matmul(attended, layer.output, partial, layer.outputBias, count, hidden, queries * 4);
    this.#addPartial(layer, count);
  }

  /** The place among this rank's KV heads of the one that its query head `h` uses. */
  #kvHeadOf(h: number): number {
    const { heads, kvHeads } = this.#shard;
    const { numHeads, numKvHeads } = this.#config;
    return Math.floor(((heads[0] + h) * numKvHeads) / numHeads) - kvHeads[0];
  }

  #mlp(layer: Layer, count: number): void {
    const { kernels } = layer.arena;
    const { hidden, intermediate } = this.#sizes;
    const { x, normed, gateUp, activated, partial } = this.#here;
    const { hiddenSize, rmsNormEps } = this.#config;
    kernels.rmsnorm(x, layer.postNorm, normed, count, hidden * 4, hiddenSize, rmsNormEps);
    kernels.matmul(normed, layer.gateUp, gateUp, layer.gateUpBias, count, 2 * intermediate, hidden * 4);
    kernels.siluMul(gateUp, activated, count, intermediate * 4);
    kernels.matmul(activated, layer.down, partial, layer.downBias, count, hidden, intermediate * 4);
    this.#addPartial(layer, count);
  }

  /** Adds this rank's partial result, and those of the other tp ranks, to the residual stream. */
  #addPartial({ arena }: Layer, count: number): void {
    const { x, partial } = this.#here;
    const floats = count * this.#sizes.hidden;
    if (this.#tp !== undefined) {
      const view = arena.view(partial, floats);
      view.set(this.#reduce(this.#tp, view));
    }
    arena.kernels.add(x, partial, floats * 4);
  }

  /** The sum of `values` over the tp ranks, in shared memory until the next collective. */
  #reduce(tp: Communicator, values: Float32Array): Float32Array {
    const tensor = this.#shared.slice(0, values.length);
    tensor.data.set(values);
    // No options: the short way. The ranks of a tp group are never far apart.
    tp.allReduce(tensor).wait();
    return tensor.data;
  }

  #scratchOf(arena: Arena): Scratch {
    return this.#scratch.get(arena) as Scratch;
  }

  #stream(count: number): Float32Array {
    return this.#here.arena.view(this.#here.x, count * this.#sizes.hidden);
  }

  /** Takes the residual stream to another arena. */
  #moveTo(arena: Arena, count: number): void {
    if (this.#here.arena === arena) return;
    const stream = this.#stream(count);
    this.#here = this.#scratchOf(arena);
    this.#stream(count).set(stream);
  }
}
