/** The words after `--` on the command line of this example. */
import { parseArgs } from "node:util";
import { InvalidArgumentError } from "chorale";
import { readJsonFile } from "chorale/formats";
import { parsePlan } from "chorale/planner";
import type { GenerateOptions } from "./generate.ts";
import type { Prompt } from "./tokenizer.ts";

export const USAGE = `chorale launch -n N main.ts -- --model DIR [--tp T] [--pp P] [--dp [D]] [--plan plan.json]
    (--prompt TEXT | --prompt-bytes 72,105 | --prompt-tokens 1,2)... [--max-new-tokens N] [--json]
  N = dp x pp x tp. --dp alone: as many replicas as the ranks make; prompts are dealt to them in order.`;

export interface Arguments extends GenerateOptions {
  readonly json: boolean;
}

const OPTIONS = {
  model: { type: "string" },
  tp: { type: "string" },
  pp: { type: "string" },
  dp: { type: "string" },
  plan: { type: "string" },
  prompt: { type: "string", multiple: true },
  "prompt-bytes": { type: "string", multiple: true },
  "prompt-tokens": { type: "string", multiple: true },
  "max-new-tokens": { type: "string" },
  json: { type: "boolean" },
} as const;

function integer(flag: string, text: string): number {
  if (!/^\d{1,9}$/.test(text) || Number(text) < 1)
    throw new InvalidArgumentError(flag, text, "an integer of at least 1");
  return Number(text);
}

function integers(flag: string, text: string): number[] {
  if (!/^\s*\d{1,9}(\s*,\s*\d{1,9})*\s*$/.test(text)) {
    throw new InvalidArgumentError(flag, text, "integers with commas between, such as 72,105");
  }
  return text.split(",").map(Number);
}

/**
 * Reads the arguments, and the plan file when one is named.
 * @throws InvalidArgumentError with the usage
 */
export function parseArguments(args: readonly string[]): Arguments {
  // `--dp` may stand alone, which parseArgs knows no word for.
  const words = args.map((word, i) => (word === "--dp" && !/^\d/.test(args[i + 1] ?? "-") ? "--dp=auto" : word));
  let parsed: ReturnType<typeof parse>;
  const parse = () => parseArgs({ args: words, options: OPTIONS, allowPositionals: false, tokens: true });
  try {
    parsed = parse();
  } catch (cause) {
    const problem = cause instanceof Error ? cause.message : String(cause);
    throw new InvalidArgumentError("arguments", args, `${USAGE}\n${problem}`, { cause });
  }
  const { values, tokens } = parsed;
  const prompts: Prompt[] = tokens.flatMap((token): Prompt[] => {
    if (token.kind !== "option" || token.value === undefined) return [];
    const { name, value } = token;
    if (name === "prompt") return [{ text: value }];
    if (name === "prompt-bytes") return [{ bytes: integers("--prompt-bytes", value) }];
    return name === "prompt-tokens" ? [{ tokens: integers("--prompt-tokens", value) }] : [];
  });
  if (values.model === undefined) throw new InvalidArgumentError("--model", undefined, `a model folder\n${USAGE}`);
  if (prompts.length === 0) throw new InvalidArgumentError("--prompt", undefined, `at least one prompt\n${USAGE}`);
  const { dp, plan } = values;
  return {
    model: values.model,
    prompts,
    maxNewTokens: integer("--max-new-tokens", values["max-new-tokens"] ?? "96"),
    json: values.json ?? false,
    ...(values.tp === undefined ? {} : { tp: integer("--tp", values.tp) }),
    ...(values.pp === undefined ? {} : { pp: integer("--pp", values.pp) }),
    ...(dp === undefined ? {} : { dp: dp === "auto" ? "auto" : integer("--dp", dp) }),
    ...(plan === undefined ? {} : { plan: parsePlan(readJsonFile(plan), plan) }),
  };
}
