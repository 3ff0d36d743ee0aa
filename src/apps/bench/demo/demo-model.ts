/** The demo's model: where it lies, what it must write, and running it sharded by a plan or on one rank. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { FormatError } from "../../../core/index.ts";
import type { ShardingPlan } from "../../../planner/index.ts";
import { type BackendName, DEFAULT_BACKEND, launch, packageRoot } from "../../../runtime/world/index.ts";
import type { GenerationSummary } from "./demo-report.ts";

const EXAMPLE = new URL("examples/sharded-llama/", packageRoot);

/** Folder of the model that ships with the package. */
export const DEMO_MODEL = fileURLToPath(new URL("model", EXAMPLE));

/** A prompt, and what Hugging Face transformers makes of it in f32. */
export interface Golden {
  readonly prompt: readonly number[];
  readonly lastLogits: readonly number[];
  readonly tokens: readonly number[];
}

/** Reads the reference results beside the model. @throws FormatError when the file is not what it should be */
export function readGolden(folder = DEMO_MODEL): readonly Golden[] {
  const path = `${folder}/golden.json`;
  const values = JSON.parse(readFileSync(path, "utf8")) as unknown;
  const numbers = (value: unknown): value is number[] =>
    Array.isArray(value) && value.every((item) => typeof item === "number");
  if (!Array.isArray(values)) throw new FormatError(path, "is not a list");
  return values.map((entry: unknown, i) => {
    const { prompt, last_logits: lastLogits, greedy: tokens } = (entry ?? {}) as Record<string, unknown>;
    if (!numbers(prompt) || !numbers(lastLogits) || !numbers(tokens)) {
      throw new FormatError(path, "has no lists of numbers prompt, last_logits and greedy", { field: String(i) });
    }
    return { prompt, lastLogits, tokens };
  });
}

/** What the example gives back for a prompt. */
interface Generated {
  readonly tokens: readonly number[];
  readonly text: string | null;
  readonly lastLogits: readonly number[];
  readonly tokensPerSecond: number;
}

export interface GenerationRequest {
  readonly golden: Golden;
  readonly maxNewTokens: number;
  /** Runs this plan; one rank without. */
  readonly plan?: ShardingPlan;
  readonly backend?: BackendName;
}

/** Runs the sharded example through `launch`, on the ranks that the plan asks for. */
export async function runGeneration(
  request: GenerationRequest,
): Promise<GenerationSummary & { lastLogits: readonly number[] }> {
  const { plan, golden, maxNewTokens, backend = DEFAULT_BACKEND } = request;
  const ranks = plan?.mesh.worldSize ?? 1;
  const results = await launch<Generated[], object>({
    ranks,
    backend,
    module: new URL("generate.ts", EXAMPLE),
    data: {
      model: DEMO_MODEL,
      prompts: [{ tokens: golden.prompt }],
      maxNewTokens,
      ...(plan === undefined ? {} : { plan }),
    },
    timeoutMs: 120_000,
  });
  const result = results[0]?.[0];
  if (result === undefined) throw new FormatError("sharded-llama", "gave no result");
  const axes = plan?.mesh.axes;
  return {
    backend,
    ranks,
    mesh: { dp: axes?.dp ?? 1, pp: axes?.pp ?? 1, tp: axes?.tp ?? 1 },
    tokens: result.tokens,
    text: result.text,
    tokensPerSecond: result.tokensPerSecond,
    lastLogits: result.lastLogits,
  };
}

/** Largest absolute difference of two lists of logits. */
export function maxDifference(a: readonly number[], b: readonly number[]): number {
  let most = a.length === b.length ? 0 : Number.POSITIVE_INFINITY;
  for (let i = 0; i < a.length; i++) most = Math.max(most, Math.abs((a[i] ?? Number.NaN) - (b[i] ?? Number.NaN)));
  return most;
}
