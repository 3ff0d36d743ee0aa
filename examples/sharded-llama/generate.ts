/**
 * Greedy generation by a Llama model that is sharded over a world: tensor, pipeline and data parallel. Every rank calls
 * `generate` with the same options; every rank gets the results of all prompts.
 */
import { performance } from "node:perf_hooks";
import { setImmediate } from "node:timers/promises";
import { type Communicator, type DType, InvalidArgumentError, type Tensor, tensor, type World } from "chorale";
import { type LlamaConfig, readLlamaConfig } from "chorale/formats";
import { deviceOf } from "chorale/world";
import { GpuModelPart } from "./gpu/model.ts";
import { type Layout, type LayoutRequest, layoutOf, shardOf, splitEvenly } from "./layout.ts";
import { checkFreeMemory, memoryNeed } from "./memory.ts";
import { ModelPart, planModel } from "./model.ts";
import type { Logits, Part } from "./part.ts";
import { encodePrompt, openTokenizer, type Prompt } from "./tokenizer.ts";

export interface GenerateOptions extends LayoutRequest {
  /** A Hugging Face folder: config.json, safetensors, and a tokenizer.json unless the vocabulary is that of bytes. */
  readonly model: string;
  /** With dp > 1 they are dealt to the replicas in order. */
  readonly prompts: readonly Prompt[];
  /** Fewer come out when the model ends its text. */
  readonly maxNewTokens: number;
  /** Deadline of a collective, ms: the time by which the slowest rank may be behind. 10 minutes by default. */
  readonly timeoutMs?: number;
  /** Largest WASM memory of a rank, bytes; a rank has as many as it needs. 4 GiB less a page by default. */
  readonly maxArenaBytes?: number;
  /** Most prompt tokens that pass the layers at once; 1024 by default. Fewer need less scratch memory. */
  readonly maxBatch?: number;
}

/** What became of one prompt. */
export interface Generated {
  /** The new tokens, with the end token when the model gave one. */
  readonly tokens: readonly number[];
  /** The new tokens as text; `null` when the folder has no tokenizer. */
  readonly text: string | null;
  /** Logits after the last position of the prompt, [vocabSize]. */
  readonly lastLogits: readonly number[];
  /** New tokens a second: prompt and decoding, without loading the model. */
  readonly tokensPerSecond: number;
}

const DEFAULT_TIMEOUT_MS = 600_000;
/** A replica that is done waits for the others, whose prompts may be longer. The death of a rank ends the wait anyway. */
const UNTIL_ALL_ARE_DONE_MS = 86_400_000;

/**
 * Checks, without a world, that a model can be laid out so: what `generate` checks first on every rank.
 * @throws InvalidArgumentError with the equation that does not hold
 * @throws FormatError naming the field of config.json
 */
export function checkLayout(model: string, request: LayoutRequest, numRanks: number): Layout {
  return layoutOf(readLlamaConfig(model), request, numRanks);
}

/**
 * Continues every prompt by its most likely tokens.
 * @returns the results in the order of the prompts, on every rank
 * @throws InvalidArgumentError with the equation when the model cannot be laid out so; nothing was sent
 * @throws FormatError when a file of the model breaks its format
 */
export async function generate(world: World, options: GenerateOptions): Promise<Generated[]> {
  const { model: folder, maxNewTokens } = options;
  const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  if (!Number.isInteger(maxNewTokens) || maxNewTokens < 1) {
    throw new InvalidArgumentError("maxNewTokens", maxNewTokens, "an integer of at least 1");
  }
  if (options.maxBatch !== undefined && (!Number.isInteger(options.maxBatch) || options.maxBatch < 1)) {
    throw new InvalidArgumentError("maxBatch", options.maxBatch, "an integer of at least 1");
  }
  if (options.prompts.length === 0) throw new InvalidArgumentError("prompts", [], "at least one prompt");
  const config = readLlamaConfig(folder);
  const layout = layoutOf(config, options, world.size);

  // One rank reads the tokenizer; the others get ids.
  const codec = world.rank === 0 ? openTokenizer(folder, config.vocabSize) : undefined;
  const encoded =
    world.rank === 0 ? options.prompts.map((prompt) => encodePrompt(prompt, codec, config.vocabSize)) : undefined;
  const prompts = await world.comm.broadcastObject(encoded, { timeoutMs });
  const longestPrompt = prompts.reduce((most, { length }) => Math.max(most, length), 0);
  const positions = longestPrompt + maxNewTokens;
  if (positions > config.maxPositions) {
    throw new InvalidArgumentError(
      "maxNewTokens",
      maxNewTokens,
      `prompt + new tokens <= max_position_embeddings, but ${longestPrompt} + ${maxNewTokens} > ${config.maxPositions}`,
    );
  }

  const mesh = world.mesh({ dp: layout.dp, pp: layout.pp, tp: layout.tp });
  const at = mesh.coordsOf(world.rank);
  const tp = await world.communicator(mesh, "tp");
  const pp = await world.communicator(mesh, "pp");
  const { maxArenaBytes, maxBatch } = options;
  const shard = shardOf(config, layout, at);
  const links = { world, tp, timeoutMs };
  let part: Part;
  if (deviceOf(world) === undefined) {
    const plan = planModel({ folder, config, shard, positions, longestPrompt, maxArenaBytes, maxBatch });
    checkFreeMemory(await world.comm.gatherObjects(memoryNeed(plan.totalBytes), { timeoutMs }));
    part = new ModelPart(plan, links);
  } else {
    part = new GpuModelPart({ config, shard, positions, longestPrompt, maxBatch, weights: { folder } }, links);
  }
  const replica = new Replica(part, pp, world, config, timeoutMs);
  await world.comm.barrier({ timeoutMs });

  const [first, end] = splitEvenly(prompts.length, layout.dp, at.dp);
  const leads = at.pp === 0 && at.tp === 0;
  const mine: { tokens: number[]; tokensPerSecond: number }[] = [];
  const logits: Float32Array[] = [];
  for (const prompt of prompts.slice(first, end)) {
    const start = performance.now();
    const result = await replica.run(prompt, maxNewTokens);
    const seconds = (performance.now() - start) / 1000;
    if (!leads) continue;
    mine.push({ tokens: result.tokens, tokensPerSecond: result.tokens.length / seconds });
    logits.push(result.lastLogits);
  }
  replica.free();
  return gather(world, layout, prompts.length, mine, logits, { codec, timeoutMs, vocabSize: config.vocabSize });
}

/** A small tensor that the program reads and writes itself: in host memory, also where the world's tensors are not. */
function hostTensor<D extends DType>(world: World, dtype: D, shape: readonly number[]): Tensor<D> {
  return deviceOf(world) === undefined ? world.tensor(dtype, shape) : tensor(dtype, shape);
}

/** Gives it back; one that the world did not make is left to the garbage collector. */
function freeHostTensor(world: World, made: Tensor): void {
  if (deviceOf(world) === undefined) world.free(made);
}

/** One replica's pipeline, as one of its ranks sees it. */
class Replica {
  readonly #part: Part;
  readonly #pp: Communicator;
  readonly #config: LlamaConfig;
  readonly #timeoutMs: number;
  readonly #world: World;
  readonly #token: Tensor<"i32">;
  readonly #logits: Tensor<"f32">;

  constructor(part: Part, pp: Communicator, world: World, config: LlamaConfig, timeoutMs: number) {
    this.#part = part;
    this.#pp = pp;
    this.#config = config;
    this.#timeoutMs = timeoutMs;
    this.#world = world;
    this.#token = hostTensor(world, "i32", [1]);
    this.#logits = hostTensor(world, "f32", [config.vocabSize]);
  }

  /** Runs a prompt; `lastLogits` is filled on the first stage. */
  async run(prompt: readonly number[], maxNewTokens: number): Promise<{ tokens: number[]; lastLogits: Float32Array }> {
    const { batch, decode } = this.#part;
    const tokens: number[] = [];
    let lastLogits = new Float32Array(0);
    let position = 0;
    let input: readonly number[] = prompt;
    while (tokens.length < maxNewTokens) {
      if (tokens.length > 0 && decode !== undefined && this.#pp.size === 1) {
        tokens.push(decode(position++));
        await setImmediate();
        if (this.#config.eosTokenIds.includes(tokens.at(-1) as number)) break;
        continue;
      }
      let logits: Logits | undefined;
      for (let at = 0; at < input.length; at += batch) {
        const part = input.slice(at, at + batch);
        logits = this.#step(part, position, at + batch >= input.length);
        position += part.length;
      }
      if (tokens.length === 0) lastLogits = await this.#logitsToFirst(logits);
      const token = await this.#next(logits);
      tokens.push(token);
      if (this.#config.eosTokenIds.includes(token)) break;
      input = [token];
    }
    return { tokens, lastLogits };
  }

  /** Gives the communication memory back. The weights go with the garbage collector. */
  free(): void {
    this.#part.free();
    freeHostTensor(this.#world, this.#token);
    freeHostTensor(this.#world, this.#logits);
  }

  /** One pass through this rank's stage; gives the logits on the last stage, when they are `wanted`. */
  #step(tokens: readonly number[], position: number, wanted: boolean): Logits | undefined {
    const count = tokens.length;
    const { rank, size } = this.#pp;
    if (rank === 0) this.#part.embed(tokens);
    else this.#part.receive(this.#pp, count);
    this.#part.forward(count, position);
    if (rank < size - 1) this.#part.send(this.#pp, count);
    else if (wanted) return this.#part.logits(count);
    return undefined;
  }

  /** The most likely token, from the last stage to all. */
  async #next(logits: Logits | undefined): Promise<number> {
    if (logits !== undefined) this.#token.data[0] = logits.mostLikely();
    if (this.#pp.size > 1) {
      const options = { root: this.#pp.size - 1, timeoutMs: this.#timeoutMs };
      this.#pp.broadcast(this.#token, options).wait({ timeoutMs: this.#timeoutMs });
    }
    // One turn of the event loop a token: messages of the launcher get their chance.
    await setImmediate();
    return this.#token.data[0] as number;
  }

  async #logitsToFirst(logits: Logits | undefined): Promise<Float32Array<ArrayBuffer>> {
    const { rank, size } = this.#pp;
    const options = { timeoutMs: this.#timeoutMs };
    if (logits !== undefined) this.#logits.data.set(logits.values());
    if (size > 1 && rank === size - 1) await this.#pp.send(this.#logits, 0, options);
    if (size > 1 && rank === 0) await this.#pp.recv(this.#logits, size - 1, options);
    return Float32Array.from(this.#logits.data);
  }
}

interface Gathering {
  readonly codec: ReturnType<typeof openTokenizer>;
  readonly timeoutMs: number;
  readonly vocabSize: number;
}

/** Brings the replicas' results to every rank, in the order of the prompts. */
async function gather(
  world: World,
  layout: Layout,
  numPrompts: number,
  mine: readonly { readonly tokens: readonly number[]; readonly tokensPerSecond: number }[],
  logits: readonly Float32Array[],
  { codec, timeoutMs, vocabSize }: Gathering,
): Promise<Generated[]> {
  const found = (await world.comm.gatherObjects(mine, { timeoutMs: UNTIL_ALL_ARE_DONE_MS })).flat();
  const texts = await world.comm.broadcastObject(
    world.rank === 0 ? found.map(({ tokens }) => codec?.decode(tokens) ?? null) : undefined,
    { timeoutMs },
  );
  const results: Generated[] = [];
  const row = hostTensor(world, "f32", [vocabSize]);
  for (let replica = 0; replica < layout.dp; replica++) {
    const [first, end] = splitEvenly(numPrompts, layout.dp, replica);
    const root = replica * layout.pp * layout.tp;
    for (let i = first; i < end; i++) {
      if (world.rank === root) row.data.set(logits[i - first] as Float32Array);
      if (world.size > 1) await world.comm.broadcast(row, { root, timeoutMs });
      const { tokens, tokensPerSecond } = found[i] as { tokens: number[]; tokensPerSecond: number };
      results.push({ tokens, text: texts[i] ?? null, lastLogits: [...row.data], tokensPerSecond });
    }
  }
  freeHostTensor(world, row);
  return results;
}

/** For `launch({ ranks, module: "…/generate.ts", data: options })`: every rank's result is the same. */
export default async function run(world: World, options: GenerateOptions): Promise<Generated[]> {
  const results = await generate(world, options);
  return world.rank === 0 ? results : [];
}
