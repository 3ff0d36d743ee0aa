/**
 * The GPU model over the stand-in of a GPU whose kernels are those of kernels.ts, run on the host: everything but the
 * device's own arithmetic. On a host with GPUs bench/gpu-llama.mjs checks the same tokens on them.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ChoiceDocument } from "chorale/executor";
import { launch } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import { isFull, spread } from "../../../test/support/spread.ts";
import type { Generated, GenerateOptions } from "../generate.ts";
import { DEMO_MODEL, GOLDEN } from "../testing/demo.ts";
import { useEmulatedGpu } from "../testing/emulated-gpu.ts";
import { MODELS, type OddModel } from "../testing/models.ts";
import { oracleGenerate } from "../testing/oracle.ts";
import { writeRandomModel } from "../testing/random-model.ts";
import { encode } from "./weights.ts";

const available = useEmulatedGpu();
const module = new URL("../generate.ts", import.meta.url);
const folder = mkdtempSync(join(tmpdir(), "chorale-gpu-llama-"));
// Where kernels of plans are kept: those of the stand-in are no real ones.
process.env["XDG_CACHE_HOME"] = join(folder, "cache");
afterAll(() => rmSync(folder, { recursive: true }));

/** Plans that serve every all-reduce, by small blocks: threads are fibers here. */
const choices: ChoiceDocument = {
  schemaVersion: 1,
  source: "test",
  date: "2026-11-29",
  tables: [
    {
      backend: "cuda",
      collective: "all_reduce",
      ranks: [2, 8],
      rows: [{ fromBytes: 0, use: "one-shot-packet-all-reduce@32.lines" }],
    },
  ],
};

async function generate(ranks: number, data: GenerateOptions, backend: "nccl" | "cuda" = "nccl"): Promise<Generated[]> {
  const [results] = await launch<Generated[], GenerateOptions>({
    ranks,
    module,
    data,
    backend,
    ...(backend === "cuda" && { backendOptions: { choices } }),
    timeoutMs: 120_000,
  });
  return results as Generated[];
}

const furthest = (actual: readonly number[], expected: readonly number[]) =>
  Math.max(...expected.map((value, i) => Math.abs(value - (actual[i] ?? Number.NaN))));

describe.skipIf(!available)("the GPU model on emulated kernels (needs a C++ compiler)", { timeout: 180_000 }, () => {
  const prompts = [
    [1, 5, 2, 3, 0, 6, 1, 1, 4, 2, 8],
    [7, 8],
  ];
  // Emulated kernels are slow: CHORALE_FULL=1 runs every layout.
  const maxNewTokens = isFull ? 4 : 2;
  const layouts: Record<string, readonly (readonly [number, number])[]> = {
    tied: isFull
      ? [
          [1, 1],
          [2, 1],
        ]
      : [[1, 1]],
    untied: isFull
      ? [
          [4, 1],
          [2, 2],
        ]
      : [[2, 2]],
    qwen: [[2, 1]],
    mistral: isFull
      ? [
          [2, 1],
          [1, 2],
        ]
      : [[1, 2]],
  };
  for (const [key, { config, files, name }] of spread(Object.entries(MODELS), 4)) {
    it(`agrees with a float64 reference: ${name}`, async () => {
      const model = join(folder, key);
      const tensors = writeRandomModel(model, config, files);
      const expected = prompts.map((prompt) => oracleGenerate(config, tensors, prompt, maxNewTokens));
      for (const [tp, pp] of layouts[key] ?? []) {
        const options = { model, tp, pp, prompts: prompts.map((tokens) => ({ tokens })), maxNewTokens };
        const results = await generate(tp * pp, { ...options, maxBatch: key === "mistral" ? 1 : 9 });
        for (const [i, { tokens, lastLogits }] of expected.entries()) {
          const where = `tp ${tp} pp ${pp}, prompt ${i}`;
          expect(results[i]?.tokens, where).toEqual(tokens);
          expect(furthest(results[i]?.lastLogits ?? [], lastLogits), where).toBeLessThan(5e-5);
        }
      }
    });
  }

  it("gives the same on the cuda backend, where sums and norms are one kernel", async () => {
    const model = join(folder, "one-kernel");
    const { config, files } = MODELS["qwen"] as OddModel;
    const tensors = writeRandomModel(model, config, files);
    const expected = prompts.map((prompt) => oracleGenerate(config, tensors, prompt, 3));
    const data = { model, tp: 2, prompts: prompts.map((tokens) => ({ tokens })), maxNewTokens: 3, maxBatch: 9 };
    const results = await generate(2, data, "cuda");
    for (const [i, { tokens, lastLogits }] of expected.entries()) {
      expect(results[i]?.tokens).toEqual(tokens);
      expect(furthest(results[i]?.lastLogits ?? [], lastLogits)).toBeLessThan(5e-5);
    }
  });

  // As `chorale demo` does, whose test compares them with the reference in every run.
  it.runIf(isFull)("gives the demo model's first tokens on two GPUs (CHORALE_FULL=1)", async () => {
    const [golden] = GOLDEN;
    const tokens = (golden?.prompt ?? []).slice(0, 4096);
    const [result] = await generate(2, { model: DEMO_MODEL, tp: 2, prompts: [{ tokens }], maxNewTokens });
    expect(result?.tokens).toEqual(golden?.greedy.slice(0, maxNewTokens));
    expect(furthest(result?.lastLogits ?? [], golden?.last_logits ?? [])).toBeLessThan(1e-3);
  });
});

describe("weights on their way to the device", () => {
  it("come out as the file has them", () => {
    const bits = Uint16Array.of(0x3f80, 0xbf80, 0x0001, 0x7f80, 0x4049, 0x8000);
    const values = new Float32Array(Uint32Array.from(bits, (b) => b << 16).buffer);
    expect(encode("bf16", values)).toEqual(bits);
    expect(encode("f16", Float32Array.of(1, -2, 2 ** -24, 65504))).toEqual(Uint16Array.of(0x3c00, 0xc000, 1, 0x7bff));
  });
});
