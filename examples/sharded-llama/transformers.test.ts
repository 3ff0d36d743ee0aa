import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { closeRankPool, runRanks } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import type { Generated, GenerateOptions } from "./generate.ts";

/** Eight ranks on two busy cores take their time. */
const PATIENT = { timeout: 120_000 };

/** What `testing/transformers/make.py` wrote: folders that transformers saved, and what it computes for them. */
interface Golden {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly newText: string;
  readonly lastLogits: readonly number[];
  readonly smallestGap: number;
}

const module = new URL("./generate.ts", import.meta.url);
afterAll(closeRankPool);

describe("folders that Hugging Face transformers saved: text in, text out", PATIENT, () => {
  it.each([
    ["llama", "tied, llama3 scaling, bf16 in 4 files, heads of 14, two end tokens", 1, 1],
    ["llama", "KV heads on several ranks, vocabulary of 301 on 6", 6, 1],
    ["llama", "a stage of one layer each", 2, 3],
    ["llama-biases", "all biases, linear scaling, one KV head", 1, 1],
    ["llama-biases", "the same", 8, 1],
    ["qwen2", "biases, f16 in 3 files", 4, 1],
    ["qwen2", "the same", 1, 2],
    ["mistral", "a sliding window of 8", 1, 1],
    ["mistral", "the same", 4, 2],
  ])("%s: %s (tp %i, pp %i)", async (name, _, tp, pp) => {
    const model = fileURLToPath(new URL(`./testing/transformers/${name}`, import.meta.url));
    const golden = JSON.parse(readFileSync(`${model}/golden.json`, "utf8")) as Golden;
    expect(golden.smallestGap).toBeGreaterThan(1e-4);
    const data = { model, tp, pp, prompts: [{ text: golden.text }], maxNewTokens: golden.tokens.length };
    const [[result]] = (await runRanks<Generated[], GenerateOptions>(tp * pp, { module }, { data })) as [[Generated]];
    expect(result.tokens).toEqual(golden.tokens);
    expect(result.text).toBe(golden.newText);
    expect(result.lastLogits).toHaveLength(golden.lastLogits.length);
    const furthest = Math.max(...golden.lastLogits.map((value, i) => Math.abs(value - result.lastLogits[i]!)));
    expect(furthest).toBeLessThan(5e-5);
  });
});
