/**
 * The forward pass of one rank on its GPU: weights as the file has them, activations and cache in f32, everything on
 * one stream. With tensor parallelism that is the stream of the group's communicator, so that kernels and NCCL's calls
 * follow each other without events; decoding runs as a CUDA graph that holds both. On the cuda backend a layer's all-reduces, the
 * residual stream and the norms are one kernel each.
 */
import { type Communicator, InvalidArgumentError, type Tensor, UnavailableError, type World } from "chorale";
import { type CudaGraph, type CudaStream, devicePtr, type PinnedBuffer, type RankDevice } from "chorale/device";
import { allReduceResidualRmsNorm } from "chorale/extensions";
import { type LlamaConfig, openWeights } from "chorale/formats";
import type { NcclCommunicator } from "chorale/nccl";
import { deviceOf } from "chorale/world";
import type { Shard } from "../layout.ts";
import type { Logits, Part } from "../part.ts";
import { fillRotations, inverseFrequencies } from "../rope.ts";
import { checkShapes } from "../weights.ts";
import { type AttentionShape, checkAttention, Launcher, WEIGHT_BYTES, type WeightType } from "./launcher.ts";
import {
  type Allocate,
  fromFolder,
  type GpuHead,
  type GpuLayer,
  loadEmbedding,
  loadHead,
  loadLayer,
  random,
  type WeightSource,
  weightTypeOf,
} from "./weights.ts";

/** Most prompt tokens that pass the layers at once. */
const MAX_BATCH = 512;

export interface GpuModelOptions {
  readonly config: LlamaConfig;
  readonly shard: Shard;
  /** Positions that the KV cache holds. */
  readonly positions: number;
  /** Tokens of the longest prompt. */
  readonly longestPrompt: number;
  readonly maxBatch?: number | undefined;
  /** A folder, or the dtype of random weights. */
  readonly weights: { readonly folder: string } | { readonly random: WeightType };
}

export interface GpuLinks {
  readonly world: World;
  /** The tensor-parallel group; used when it has more than one rank. */
  readonly tp: Communicator;
  readonly timeoutMs: number;
}

/** Addresses of the activations. */
interface Scratch {
  readonly x: bigint;
  readonly qkv: bigint;
  readonly attended: bigint;
  readonly gateUp: bigint;
  readonly activated: bigint;
  readonly cos: bigint;
  readonly sin: bigint;
  readonly tokens: bigint;
  /** The next token, and the position that the kernels work at. */
  readonly next: bigint;
  readonly position: bigint;
}

/** A communicator of the nccl backend, or of the cuda backend, which stands on it. @throws UnavailableError for another's */
function ncclOf(communicator: Communicator): NcclCommunicator {
  if (communicator.backend !== "nccl" && communicator.backend !== "cuda") {
    throw new UnavailableError(
      "the GPU model",
      `the backend is ${communicator.backend}`,
      "Launch with --backend nccl.",
    );
  }
  return communicator as NcclCommunicator;
}

export class GpuModelPart implements Part {
  readonly batch: number;
  /** False leaves the collectives of tensor parallelism out: wrong numbers, to measure what they cost. */
  collectives = true;
  /** False issues every decoding step call by call. */
  graphs = true;
  /** Whether the sum over the tp ranks waits for the norm behind it, and both are one call. */
  fuses: boolean;
  readonly #world: World;
  readonly #at: RankDevice;
  readonly #config: LlamaConfig;
  readonly #shard: Shard;
  readonly #tp: NcclCommunicator | undefined;
  readonly #timeoutMs: number;
  readonly #run: Launcher;
  readonly #stream: CudaStream;
  readonly #tensors: Tensor[] = [];
  readonly #layers: readonly GpuLayer[];
  readonly #head: GpuHead | undefined;
  readonly #embedding: bigint | undefined;
  readonly #attention: AttentionShape;
  readonly #buffers: Scratch;
  /** [batch][hidden]: the residual stream, and a layer's partial result, which the tp ranks add up. */
  readonly #stage: Tensor<"f32">;
  readonly #partial: Tensor<"f32">;
  readonly #normed: Tensor<"f32">;
  readonly #mine: Tensor<"f32">;
  readonly #all: Tensor<"f32">;
  readonly #pinned: PinnedBuffer;
  readonly #positions: number;
  /** What the device's position is once all that was issued is done. */
  #position = 0;
  #steps = 0;
  /** The partial result is still to be added to the residual stream, or to be summed before that: the next norm does it all. */
  #pending: "no" | "sum" | "part" = "no";
  #graph: CudaGraph | undefined;

  /** Allocates everything and loads this rank's weights. @throws FormatError, OutOfMemoryError, UnavailableError */
  constructor(options: GpuModelOptions, links: GpuLinks) {
    const { config, shard, positions } = options;
    const at = deviceOf(links.world);
    if (at === undefined) throw new UnavailableError("a GPU", "this world has none", "Launch with --backend nccl.");
    this.#world = links.world;
    this.#at = at;
    this.#config = config;
    this.#shard = shard;
    this.#timeoutMs = links.timeoutMs;
    this.#positions = positions;
    this.#tp = links.tp.size > 1 ? ncclOf(links.tp) : undefined;
    this.#stream = this.#tp?.stream ?? at.main;
    this.fuses = this.#tp?.backend === "cuda";
    this.batch = Math.min(options.longestPrompt, options.maxBatch ?? MAX_BATCH);
    const [heads, kvHeads] = [shard.heads[1] - shard.heads[0], shard.kvHeads[1] - shard.kvHeads[0]];
    this.#attention = { heads, kvHeads, headDim: config.headDim, context: positions, window: config.slidingWindow };
    checkAttention(this.#attention);

    const allocate: Allocate = (dtype, shape) => {
      const tensor = links.world.tensor(dtype, shape);
      this.#tensors.push(tensor);
      return { tensor, address: devicePtr(tensor, at.device) };
    };
    const { hiddenSize, headDim } = config;
    const inner = shard.intermediate[1] - shard.intermediate[0];
    const rows = (width: number) => allocate("f32", [this.batch * width]);
    const stage = rows(hiddenSize);
    const partial = rows(hiddenSize);
    this.#stage = stage.tensor;
    this.#partial = partial.tensor;
    this.#normed = rows(hiddenSize).tensor;
    this.#mine = allocate("f32", [shard.vocabRows]).tensor;
    this.#all = this.#tp === undefined ? this.#mine : allocate("f32", [shard.tp * shard.vocabRows]).tensor;
    const angles = [0, 1].map(() => allocate("f32", [positions, headDim / 2]));
    this.#buffers = {
      x: stage.address,
      qkv: rows((heads + 2 * kvHeads) * headDim).address,
      attended: rows(heads * headDim).address,
      gateUp: rows(2 * inner).address,
      activated: rows(inner).address,
      cos: angles[0]?.address ?? 0n,
      sin: angles[1]?.address ?? 0n,
      tokens: allocate("i32", [this.batch]).address,
      next: allocate("i32", [1]).address,
      position: allocate("i32", [1]).address,
    };
    const values = [0, 1].map(() => new Float32Array((positions * headDim) / 2));
    const [cos, sin] = values as [Float32Array<ArrayBuffer>, Float32Array<ArrayBuffer>];
    fillRotations(inverseFrequencies(config), cos, sin, headDim / 2);
    angles.forEach(({ tensor }, i) => {
      links.world.upload(tensor as Tensor<"f32">, i === 0 ? cos : sin);
    });
    this.#pinned = at.pinned.take(Math.max(4096, 4 * this.batch));

    const folder = "folder" in options.weights ? openWeights(options.weights.folder) : undefined;
    try {
      if (folder !== undefined) checkShapes(config, shard, folder);
      const dtype = folder === undefined ? (options.weights as { random: WeightType }).random : weightTypeOf(folder);
      this.#run = new Launcher(at, this.#stream, dtype);
      // Random weights are made on the stream that zeroes the tensors.
      const filler = folder === undefined ? new Launcher(at, at.main, dtype) : undefined;
      const source: WeightSource =
        folder === undefined ? random(at, filler as Launcher, dtype) : fromFolder(links.world, folder);
      const layers: GpuLayer[] = [];
      for (let i = shard.layers[0]; i < shard.layers[1]; i++) {
        layers.push(loadLayer(config, shard, source, allocate, i, positions));
      }
      this.#layers = layers;
      this.#embedding = shard.first ? loadEmbedding(config, shard, source, allocate) : undefined;
      this.#head = shard.last ? loadHead(config, shard, source, allocate, this.#embedding) : undefined;
      // Zeros and weights are there before another stream looks.
      at.main.synchronize("loading");
      filler?.close();
    } finally {
      folder?.close();
    }
  }

  /** Bytes of weights that one token reads on this rank: the embedding's row aside, all of them. */
  get weightBytes(): number {
    const { hiddenSize, headDim } = this.#config;
    const { heads, kvHeads } = this.#attention;
    const inner = this.#shard.intermediate[1] - this.#shard.intermediate[0];
    const columns = (2 * heads + 2 * kvHeads) * headDim + 3 * inner;
    const vocab = this.#head === undefined ? 0 : this.#shard.vocab[1] - this.#shard.vocab[0];
    return (columns * this.#layers.length + vocab) * hiddenSize * WEIGHT_BYTES[this.#run.dtype];
  }

  free(): void {
    this.#settle();
    this.#graph?.close();
    this.#run.close();
    this.#at.pinned.giveBack(this.#pinned);
    for (const tensor of this.#tensors) this.#world.free(tensor);
  }

  embed(tokens: readonly number[]): void {
    this.#settle();
    new Int32Array(this.#pinned.buffer).set(tokens);
    const { device } = this.#at;
    const sizeBytes = 4 * tokens.length;
    const { tokens: to } = this.#buffers;
    device.call("cuMemcpyHtoDAsync_v2", "tokens", to, this.#pinned.address, sizeBytes, this.#stream.handle);
    this.#stream.touched = true;
    this.#embed(to, tokens.length);
  }

  send(to: Communicator, count: number): void {
    const pp = ncclOf(to);
    const wait = { timeoutMs: this.#timeoutMs };
    pp.orderAfter(this.#stream);
    pp.send(this.#stage.slice(0, count * this.#config.hiddenSize), pp.rank + 1, wait).wait(wait);
    pp.orderBefore(this.#stream);
  }

  receive(from: Communicator, count: number): void {
    this.#pending = "no";
    const pp = ncclOf(from);
    const wait = { timeoutMs: this.#timeoutMs };
    pp.orderAfter(this.#stream);
    pp.recv(this.#stage.slice(0, count * this.#config.hiddenSize), pp.rank - 1, wait).wait(wait);
    pp.orderBefore(this.#stream);
  }

  forward(count: number, position: number): void {
    if (count > this.batch || position + count > this.#positions) {
      throw new InvalidArgumentError(
        "tokens",
        `${count} at position ${position}`,
        `at most ${this.batch} at once, and ${this.#positions} in all`,
      );
    }
    if (position !== this.#position) this.#run.advance(this.#buffers.position, position - this.#position);
    this.#position = position;
    this.#passLayers(count);
  }

  logits(count: number): Logits {
    this.#passHead(count);
    const { vocabSize } = this.#config;
    return {
      values: () => {
        this.#settle();
        return this.#world.download(this.#all).slice(0, vocabSize);
      },
      mostLikely: () => {
        this.#run.argmax(this.#buffers.next, devicePtr(this.#all, this.#at.device), vocabSize, 0n);
        return this.#readNext();
      },
    };
  }

  /** One token through all layers: issued the first time, recorded the second, replayed from then on. */
  readonly decode = (position: number): number => {
    this.decodeSteps(position, 1);
    return this.#readNext();
  };

  /** Issues `count` decoding steps, each on the token that the one before gave, without waiting for any. */
  decodeSteps(position: number, count: number): void {
    if (position + count > this.#positions) {
      throw new InvalidArgumentError("position", position + count, `at most ${this.#positions} in all`);
    }
    if (position !== this.#position) this.#run.advance(this.#buffers.position, position - this.#position);
    for (let i = 0; i < count; i++) this.#decodeStep();
    this.#position = position + count;
  }

  /** Waits for everything issued; a failure of the tp group ends the wait. */
  settle(): void {
    this.#settle();
  }

  /** Has the next decoding step issued call by call, and the one after it recorded anew. */
  forgetGraph(): void {
    this.#settle();
    this.#graph?.close();
    this.#graph = undefined;
    this.#steps = 0;
  }

  #decodeStep(): void {
    // NCCL connects peers in the first call of a kind, which no graph can hold: one step goes without.
    if (this.#steps++ === 0 || !this.graphs) {
      this.#decodeOnce();
      return;
    }
    if (this.#graph === undefined) {
      this.#settle();
      this.#graph =
        this.#tp === undefined
          ? this.#stream.capture(() => this.#decodeOnce())
          : this.#tp.capture(() => this.#decodeOnce());
    }
    if (this.#tp === undefined) this.#graph.launch(this.#stream);
    else this.#tp.replay(this.#graph, { timeoutMs: this.#timeoutMs });
  }

  #decodeOnce(): void {
    this.#embed(this.#buffers.next, 1);
    this.#passLayers(1);
    this.#passHead(1);
    const logits = devicePtr(this.#all, this.#at.device);
    this.#run.argmax(this.#buffers.next, logits, this.#config.vocabSize, this.#buffers.position);
  }

  #embed(tokens: bigint, count: number): void {
    this.#pending = "no";
    const [start, end] = this.#shard.vocab;
    const { hiddenSize } = this.#config;
    this.#run.embed(this.#buffers.x, this.#embedding ?? 0n, tokens, count, hiddenSize, start, end - start);
    this.#sum(this.#stage, count * hiddenSize);
  }

  #passLayers(count: number): void {
    for (const layer of this.#layers) {
      this.#passAttention(layer, count);
      this.#passMlp(layer, count);
    }
    // With one token, the head's norm adds it.
    if (this.#pending === "no" || (count === 1 && this.#head !== undefined)) return;
    if (this.#pending === "part") this.#sum(this.#partial, count * this.#config.hiddenSize);
    this.#run.add(this.#buffers.x, devicePtr(this.#partial, this.#at.device), count * this.#config.hiddenSize);
    this.#pending = "no";
  }

  #passAttention(layer: GpuLayer, count: number): void {
    const run = this.#run;
    const { hiddenSize } = this.#config;
    const { heads, kvHeads, headDim } = this.#attention;
    const { x, qkv, attended, position } = this.#buffers;
    const rows = (heads + 2 * kvHeads) * headDim;
    const normed = this.#norm(x, layer.inputNorm, count);
    run.matmul(qkv, layer.qkv, normed, layer.qkvBias, count, rows, hiddenSize, false);
    const buffers = { qkv, keys: layer.keys, values: layer.values };
    run.ropeAndCache(buffers, this.#buffers, position, count, this.#attention);
    run.attention(attended, buffers, position, count, this.#attention);
    this.#project(layer.output, attended, layer.outputBias, count, heads * headDim);
  }

  #passMlp(layer: GpuLayer, count: number): void {
    const run = this.#run;
    const { hiddenSize } = this.#config;
    const { x, gateUp, activated } = this.#buffers;
    const inner = this.#shard.intermediate[1] - this.#shard.intermediate[0];
    const normed = this.#norm(x, layer.postNorm, count);
    run.matmul(gateUp, layer.gateUp, normed, layer.gateUpBias, count, 2 * inner, hiddenSize, false);
    run.siluMul(activated, gateUp, count, inner);
    this.#project(layer.down, activated, layer.downBias, count, inner);
  }

  /** Adds W input, and what the other tp ranks have of it, to the residual stream. */
  #project(weight: bigint, input: bigint, bias: bigint, count: number, columns: number): void {
    const { hiddenSize } = this.#config;
    const { x } = this.#buffers;
    if (this.#tp === undefined) {
      this.#run.matmul(x, weight, input, bias, count, hiddenSize, columns, true);
      return;
    }
    const partial = devicePtr(this.#partial, this.#at.device);
    this.#run.matmul(partial, weight, input, bias, count, hiddenSize, columns, false);
    if (this.fuses && this.collectives) {
      this.#pending = "part";
      return;
    }
    this.#sum(this.#partial, count * hiddenSize);
    this.#pending = "sum";
  }

  /** The norm of the residual stream at `from`, after adding what is still to be added to it. @returns where it is */
  #norm(from: bigint, weight: Tensor, count: number): bigint {
    const { hiddenSize, rmsNormEps: eps } = this.#config;
    const { device } = this.#at;
    const [normed, weights] = [devicePtr(this.#normed, device), devicePtr(weight, device)];
    const [pending, tp] = [this.#pending, this.#tp];
    this.#pending = "no";
    if (pending === "no") this.#run.rmsNorm(normed, from, weights, count, hiddenSize, eps);
    else if (pending === "part" && tp !== undefined) {
      const [input, residual, output] = [this.#partial, this.#stage, this.#normed].map((tensor) =>
        tensor.slice(0, count * hiddenSize),
      ) as [Tensor, Tensor, Tensor];
      allReduceResidualRmsNorm(tp, { input, residual, weight, eps, output, timeoutMs: this.#timeoutMs });
      tp.orderBefore();
    } else {
      const partial = devicePtr(this.#partial, device);
      this.#run.addRmsNorm(normed, from, partial, weights, count, hiddenSize, eps);
    }
    return normed;
  }

  #passHead(count: number): void {
    const head = this.#head as GpuHead;
    const { hiddenSize } = this.#config;
    const [start, end] = this.#shard.vocab;
    const last = this.#buffers.x + BigInt((count - 1) * hiddenSize * 4);
    const mine = devicePtr(this.#mine, this.#at.device);
    const normed = this.#norm(last, head.norm, 1);
    this.#run.matmul(mine, head.weight, normed, 0n, 1, end - start, hiddenSize, false);
    if (this.#tp === undefined || !this.collectives) return;
    this.#tp.allGather(this.#mine, { output: this.#all, timeoutMs: this.#timeoutMs });
    this.#tp.orderBefore();
  }

  /** Adds up the first `floats` over the tp ranks, in place. */
  #sum(tensor: Tensor<"f32">, floats: number): void {
    if (this.#tp === undefined || !this.collectives) return;
    this.#tp.allReduce(floats === tensor.size ? tensor : tensor.slice(0, floats), { timeoutMs: this.#timeoutMs });
    this.#tp.orderBefore();
  }

  #readNext(): number {
    const { device } = this.#at;
    const { handle } = this.#stream;
    device.call("cuMemcpyDtoHAsync_v2", "token", this.#pinned.address, this.#buffers.next, 4, handle);
    this.#settle();
    return new Int32Array(this.#pinned.buffer)[0] ?? 0;
  }

  #settle(): void {
    if (this.#tp === undefined) this.#stream.synchronize("the model");
    else this.#tp.synchronize({ timeoutMs: this.#timeoutMs });
  }
}
