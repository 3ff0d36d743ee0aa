/** One rank of bench/gpu-llama.mjs: decodes with a model of random weights and times it. */
import { performance } from "node:perf_hooks";
import type { World } from "chorale";
import type { LlamaConfig } from "chorale/formats";
import { deviceOf } from "chorale/world";
import type { WeightType } from "../../examples/sharded-llama/gpu/launcher.ts";
import { GpuModelPart } from "../../examples/sharded-llama/gpu/model.ts";
import { layoutOf, shardOf } from "../../examples/sharded-llama/layout.ts";

export interface GpuBenchOptions {
  readonly config: LlamaConfig;
  readonly dtype: WeightType;
  /** Tokens of the prompt, decoded steps of one measurement, and how often it is repeated; medians are given. */
  readonly promptTokens: number;
  /** Position of the first step, at least the prompt's length: what lies between is zeros in the cache. */
  readonly context: number;
  readonly steps: number;
  readonly repeats: number;
}

export interface GpuBenchRow {
  readonly tp: number;
  readonly context: number;
  readonly device: string;
  readonly loadSeconds: number;
  readonly weightGB: number;
  readonly prefillTokensPerSecond: number;
  /** Decoding steps as a graph, issued without waiting: ms a token. */
  readonly graphMs: number;
  /** The same, each token read before the next step is issued. */
  readonly graphAwaitedMs: number;
  /** As graphMs, but with all-reduce and norm apart: on the cuda backend they are one call. */
  readonly apartMs: number;
  /** Without a graph: every kernel and collective issued from JavaScript. */
  readonly eagerMs: number;
  /** The graph without its collectives; the share of time in collectives is 1 - this / graphMs. */
  readonly silentMs: number;
  readonly collectiveShare: number;
  readonly tokensPerSecond: number;
  /** Weight bytes that a rank reads a token, over graphMs. */
  readonly weightGBPerSecond: number;
  readonly tokens: readonly number[];
}

const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

export default async function run(world: World, options: GpuBenchOptions): Promise<GpuBenchRow> {
  const { config, dtype, promptTokens, steps, repeats } = options;
  const context = Math.max(promptTokens, options.context);
  const tpSize = world.size;
  const layout = layoutOf(config, { tp: tpSize }, tpSize);
  const mesh = world.mesh({ dp: 1, pp: 1, tp: tpSize });
  const tp = await world.communicator(mesh, "tp");
  const timeoutMs = 60_000;
  const begun = performance.now();
  const part = new GpuModelPart(
    {
      config,
      shard: shardOf(config, layout, { pp: 0, tp: world.rank }),
      positions: context + steps + 8,
      longestPrompt: promptTokens,
      weights: { random: dtype },
    },
    { world, tp, timeoutMs },
  );
  const loadSeconds = (performance.now() - begun) / 1000;
  await world.comm.barrier({ timeoutMs });

  const prompt = Array.from({ length: promptTokens }, (_, i) => (i * 7919 + 13) % config.vocabSize);
  const prefill = () => {
    part.embed(prompt);
    part.forward(prompt.length, 0);
    return part.logits(prompt.length).mostLikely();
  };
  const first = prefill();
  const timed = async (body: () => void): Promise<number> => {
    const times: number[] = [];
    for (let repeat = 0; repeat <= repeats; repeat++) {
      part.settle();
      await world.comm.barrier({ timeoutMs });
      const start = performance.now();
      body();
      part.settle();
      // The first one warms up.
      if (repeat > 0) times.push(performance.now() - start);
    }
    return median(times);
  };
  const prefillMs = await timed(() => void prefill());
  const pipelined = () => part.decodeSteps(context, steps);

  const tokens = [first];
  prefill();
  for (let i = 0; i < 8; i++) tokens.push(part.decode(promptTokens + i));
  const graphMs = (await timed(pipelined)) / steps;
  const awaited = () => {
    for (let i = 0; i < steps; i++) part.decode(context + i);
  };
  const graphAwaitedMs = (await timed(awaited)) / steps;
  const { fuses } = part;
  let apartMs = graphMs;
  if (fuses) {
    part.fuses = false;
    part.forgetGraph();
    apartMs = (await timed(pipelined)) / steps;
    part.fuses = true;
  }
  part.graphs = false;
  part.forgetGraph();
  const eagerMs = (await timed(pipelined)) / steps;
  part.graphs = true;
  part.collectives = false;
  part.forgetGraph();
  const silentMs = (await timed(pipelined)) / steps;
  const { weightBytes } = part;
  part.free();
  await world.comm.barrier({ timeoutMs });
  return {
    tp: tpSize,
    context,
    device: deviceOf(world)?.device.info.name ?? "none",
    loadSeconds,
    weightGB: weightBytes / 1e9,
    prefillTokensPerSecond: (promptTokens / prefillMs) * 1000,
    graphMs,
    graphAwaitedMs,
    apartMs,
    eagerMs,
    silentMs,
    collectiveShare: tpSize === 1 ? 0 : Math.max(0, 1 - silentMs / graphMs),
    tokensPerSecond: 1000 / graphMs,
    weightGBPerSecond: weightBytes / graphMs / 1e6,
    tokens,
  };
}
