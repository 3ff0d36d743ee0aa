import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { RankFailedError } from "chorale";
import { closeRankPool, runRanks } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import { isFull, spread } from "../../test/support/spread.ts";
import type { Generated, GenerateOptions } from "./generate.ts";
import { DEMO_MODEL, demoPlan, GOLDEN } from "./testing/demo.ts";
import { MODELS } from "./testing/models.ts";
import { oracleGenerate } from "./testing/oracle.ts";
import { writeRandomModel } from "./testing/random-model.ts";

/** Eight ranks on two busy cores take their time. */
const PATIENT = { timeout: 120_000 };

const module = new URL("./generate.ts", import.meta.url);
const folder = mkdtempSync(join(tmpdir(), "chorale-llama-"));
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await closeRankPool();
});

/** What rank 0 of a world of `ranks` ranks generates. */
async function generate(ranks: number, data: GenerateOptions): Promise<Generated[]> {
  const results = await runRanks<Generated[], GenerateOptions>(ranks, { module }, { data });
  return results[0] as Generated[];
}

const furthest = (actual: readonly number[], expected: readonly number[]) => {
  expect(actual).toHaveLength(expected.length);
  return Math.max(...expected.map((value, i) => Math.abs(value - actual[i]!)));
};

/** Ranks by tensors, by stages and by replicas: what the suite has of the demo model, and what CHORALE_FULL=1 adds. */
const LAYOUTS = [
  [2, 1, 1],
  [8, 1, 1],
  [1, 6, 1],
  [2, 1, 2],
  [2, 2, 2],
] as const;
const MORE_LAYOUTS = [
  [4, 1, 1],
  [1, 2, 1],
  [1, 3, 1],
  [2, 2, 1],
  [4, 2, 1],
] as const;

describe("the demo model", PATIENT, () => {
  const prompts = GOLDEN.map(({ prompt }) => ({ tokens: prompt }));
  // CHORALE_FULL=1 generates all tokens in every layout; otherwise one rank does, and the others the first of them.
  it.each([
    [1, 1, 1, 96] as const,
    ...[...spread(LAYOUTS, 5), ...(isFull ? MORE_LAYOUTS : [])].map((layout) => [...layout, 12] as const),
  ])("gives the tokens of transformers with tp %i, pp %i, dp %i", async (tp, pp, dp, some) => {
    const maxNewTokens = isFull ? 96 : some;
    const results = await generate(tp * pp * dp, { model: DEMO_MODEL, tp, pp, dp, prompts, maxNewTokens });
    expect(results.map(({ tokens }) => tokens)).toEqual(GOLDEN.map(({ greedy }) => greedy.slice(0, maxNewTokens)));
    if (maxNewTokens < 96) return;
    for (const [i, golden] of GOLDEN.entries()) {
      expect(furthest(results[i]!.lastLogits, golden.last_logits)).toBeLessThan(1e-3);
      expect(results[i]!.text).toBe(Buffer.from(golden.greedy as number[]).toString());
      expect(results[i]!.tokensPerSecond).toBeGreaterThan(0);
    }
  });

  it("follows the layers of a plan", async () => {
    const plan = demoPlan({
      tp: 2,
      stages: [
        [0, 1],
        [1, 6],
      ],
    });
    const options = { model: DEMO_MODEL, plan, prompts: prompts.slice(0, 1), maxNewTokens: 24 };
    const [result] = await generate(4, options as unknown as GenerateOptions);
    expect(result?.tokens).toEqual(GOLDEN[0]?.greedy.slice(0, 24));
  });

  it("takes a long prompt in parts", async () => {
    const options = { model: DEMO_MODEL, tp: 2, pp: 2, prompts: prompts.slice(1, 2), maxNewTokens: 10, maxBatch: 7 };
    const [result] = await generate(4, options);
    expect(result?.tokens).toEqual(GOLDEN[1]!.greedy.slice(0, 10));
    expect(furthest(result!.lastLogits, GOLDEN[1]!.last_logits)).toBeLessThan(1e-3);
  });

  it("leaves replicas without a prompt idle", async () => {
    const results = await generate(3, { model: DEMO_MODEL, dp: 3, prompts: prompts.slice(0, 2), maxNewTokens: 5 });
    expect(results.map(({ tokens }) => tokens)).toEqual(GOLDEN.slice(0, 2).map(({ greedy }) => greedy.slice(0, 5)));
  });

  const refused = [
    [3, { tp: 3 }, /8 heads % tp 3 = 2/],
    [2, { tp: 2, prompts: [{ tokens: [256] }] }, /0 to 255/],
    [7, { pp: 7 }, /7 > 6 layers/],
    [2, { tp: 2, maxNewTokens: 510 }, /510 > 512/],
  ] as const;
  it.each(spread(refused, 2))("is refused on %i ranks with %j", async (ranks, options, message) => {
    const given = { model: DEMO_MODEL, prompts: prompts.slice(0, 1), maxNewTokens: 4, ...options };
    const failure = await generate(ranks, given).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RankFailedError);
    expect(String((failure as Error).message)).toMatch(message);
  });
});

describe("odd models agree with a float64 reference", PATIENT, () => {
  const prompts = [
    [1, 5, 2, 3, 0, 6],
    [7, 8],
    [3, 3, 3, 4, 1, 2, 0, 8, 8],
  ];
  const layouts: Record<string, readonly (readonly [number, number, number])[]> = {
    tied: [
      [1, 1, 1],
      [6, 1, 1],
      [1, 3, 2],
    ],
    untied: [
      [1, 1, 1],
      [4, 1, 1],
      [1, 4, 1],
    ],
    qwen: [
      [1, 1, 1],
      [2, 3, 1],
    ],
    mistral: [
      [1, 1, 1],
      [2, 2, 2],
    ],
  };
  const more: typeof layouts = {
    tied: [
      [2, 1, 1],
      [2, 2, 1],
    ],
    untied: [[2, 2, 1]],
    qwen: [[4, 1, 1]],
    mistral: [[8, 1, 1]],
  };
  /** Of a model, as above. */
  const layoutsOf = (key: string) => {
    const [single, ...split] = layouts[key] ?? [];
    return [...(single === undefined ? [] : [single]), ...spread(split, 2), ...(isFull ? (more[key] ?? []) : [])];
  };
  for (const [key, { config, files, name }] of spread(Object.entries(MODELS), 2)) {
    it(name, async () => {
      const model = join(folder, key);
      const tensors = writeRandomModel(model, config, files);
      const expected = prompts.map((prompt) => oracleGenerate(config, tensors, prompt, 12));
      // The comparison of tokens means something: no two logits are as close as f32 rounds.
      expect(Math.min(...expected.map(({ smallestGap }) => smallestGap))).toBeGreaterThan(1e-4);
      for (const [tp, pp, dp] of layoutsOf(key)) {
        const options = { model, tp, pp, dp, prompts: prompts.map((tokens) => ({ tokens })), maxNewTokens: 12 };
        // Once in memories that hold a layer or two each.
        for (const maxArenaBytes of tp === 1 && pp === 1 ? [undefined, 200_000] : [undefined]) {
          const limit = maxArenaBytes === undefined ? {} : { maxArenaBytes };
          const results = await generate(tp * pp * dp, { ...options, ...limit });
          for (const [i, { tokens, lastLogits }] of expected.entries()) {
            const where = `${name}, tp ${tp} pp ${pp} dp ${dp}, prompt ${i}`;
            expect(results[i]!.tokens, where).toEqual(tokens);
            expect(furthest(results[i]!.lastLogits, lastLogits), where).toBeLessThan(2e-5);
            expect(results[i]!.text).toBeNull();
          }
        }
      }
    });
  }

  it("stops at an end token, given as a list", async () => {
    const { config, files } = MODELS["mistral"]!;
    const model = join(folder, "eos");
    const tensors = writeRandomModel(model, config, files);
    const free = oracleGenerate(config, tensors, prompts[0]!, 12).tokens;
    const ended = { ...config, eos_token_id: [63, free[3]!] };
    writeRandomModel(model, ended, files);
    const [result] = await generate(2, { model, tp: 2, prompts: [{ tokens: prompts[0]! }], maxNewTokens: 12 });
    expect(result?.tokens).toEqual(free.slice(0, free.indexOf(free[3]!) + 1));
  });
});
