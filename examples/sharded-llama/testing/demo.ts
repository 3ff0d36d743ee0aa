/** The demo model, what transformers computes for it, and plans for it. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const DEMO_MODEL = fileURLToPath(new URL("../model", import.meta.url));

interface Golden {
  readonly prompt: readonly number[];
  /** After the last position of the prompt. */
  readonly last_logits: readonly number[];
  /** 96 tokens. */
  readonly greedy: readonly number[];
}

export const GOLDEN = JSON.parse(readFileSync(`${DEMO_MODEL}/golden.json`, "utf8")) as readonly Golden[];

/** A sharding plan for the demo model, written out by hand. */
export function demoPlan({
  tp,
  stages,
}: {
  readonly tp: number;
  readonly stages: readonly (readonly [number, number])[];
}) {
  const pp = stages.length;
  const part = (total: number, t: number) => ({ first: (total * t) / tp, end: (total * (t + 1)) / tp });
  const memory = { items: { weights: 1000 }, totalBytes: 1000, availableBytes: 2000, headroomBytes: 1000 };
  const ranks = stages.flatMap(([first, end], p) =>
    Array.from({ length: tp }, (_, t) => ({
      rank: p * tp + t,
      coords: { dp: 0, pp: p, ep: 0, cp: 0, tp: t },
      deviceId: "cpu",
      layers: { first, end },
      embeddings: p === 0,
      head: p === pp - 1,
      shards: {
        heads: part(8, t),
        kvHeads: part(4, t),
        intermediate: part(512, t),
        vocab: part(256, t),
      },
      memory,
    })),
  );
  return {
    schemaVersion: 1,
    model: {
      name: "demo",
      architecture: "LlamaForCausalLM",
      numParameters: 1,
      numActiveParameters: 1,
      numLayers: 6,
      hiddenSize: 192,
      vocabSize: 256,
      numHeads: 8,
      numKvHeads: 4,
      assumptions: [],
    },
    workload: {
      mode: "inference",
      weightFormat: "f32",
      kvFormat: "f32",
      activationFormat: "f32",
      contextTokens: 512,
      promptTokens: 1,
      outputTokens: 1,
      batch: 1,
      batchPerReplica: 1,
    },
    objective: "latency",
    score: 1,
    mesh: {
      axes: { dp: 1, pp, ep: 1, cp: 1, tp },
      order: ["dp", "pp", "ep", "cp", "tp"],
      worldSize: pp * tp,
      ranksPerDevice: pp * tp,
    },
    ranks,
    memory: { peakRankBytes: 1000, totalBytes: 1000 * pp * tp, minHeadroomBytes: 1000, fullestRank: 0 },
    estimates: {
      kind: "inference",
      prefillMs: 1,
      ttftMs: 1,
      decodeStepMs: 1,
      decodeTokensPerSecondPerUser: 1,
      decodeTokensPerSecond: 1,
      requestMs: 1,
      bottleneck: "compute",
      breakdownMs: {},
      memoryBandwidthUtilization: 0.5,
      computeUtilization: 0.5,
      throughputCurve: [],
    },
    rejected: [],
    notes: [],
  };
}
