/** `chorale plan`: a model and hardware in, the best sharding plan out, and why the others lost. */
import { writeFile } from "node:fs/promises";
import type { Command } from "commander";
import { InvalidArgumentError } from "../../core/index.ts";
import { resolveHardware } from "../../machine/hardware/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import {
  addDevices,
  axesText,
  changeLinks,
  DEFAULT_PRICES,
  EXPORT_TARGETS,
  type Exported,
  exportPlan,
  type KvFormatName,
  loadModel,
  OBJECTIVES,
  type Objective,
  PLAN_AXES,
  type PlanAxis,
  type PlanOutcome,
  planModel,
  readPrices,
  renderExport,
  renderNothing,
  renderPlan,
  type ShardingPlan,
  visibleDevices,
  withoutDevices,
  withPrice,
} from "../../planner/index.ts";

import { EXIT } from "./exit-codes.ts";
import { collect, sized, whole } from "./option-readers.ts";

import { print, printJson, showProgress } from "./output.ts";

interface Flags {
  readonly hardware: string;
  readonly dtype?: string;
  readonly quant?: string;
  readonly kv?: string;
  readonly context?: number;
  readonly output?: number;
  readonly batch?: number;
  readonly objective: string;
  readonly train?: string;
  readonly zero?: number;
  readonly constrain?: string;
  readonly ranks?: number;
  readonly top: number;
  readonly totalMemory?: boolean;
  readonly explain?: boolean;
  readonly outputFile?: string;
  readonly add?: readonly string[];
  readonly without?: readonly string[];
  readonly link?: readonly string[];
  readonly export?: string;
  readonly prices?: string;
  readonly json?: boolean;
}

/** The hardware after all what-ifs. */
function whatIf(inventory: Inventory, flags: Flags): Inventory {
  const added = (flags.add ?? []).reduce(addDevices, inventory);
  const fewer = (flags.without ?? []).reduce<Inventory>(withoutDevices, added);
  return (flags.link ?? []).reduce(changeLinks, fewer);
}

/** Hosts that the plan's devices are on. */
function hostsOf(plan: ShardingPlan, inventory: Inventory): number {
  const used = new Set(plan.ranks.map((rank) => rank.deviceId));
  const hosts = inventory.topology.nodes.filter((node) => used.has(node.id)).map((node) => node.host ?? 0);
  return Math.max(1, new Set(hosts).size);
}

function exportOf(plan: ShardingPlan, target: string, modelPath: string, inventory: Inventory): Exported {
  const numHosts = hostsOf(plan, inventory);
  return exportPlan(plan, target, {
    modelPath,
    numHosts,
    ...(numHosts === 1 ? { env: visibleDevices(plan, inventory) } : {}),
  });
}

/** Reads `tp=2,pp=2`. */
function parseConstraints(text: string): Partial<Record<PlanAxis, number>> {
  const accepted = `AXIS=SIZE,… with axes ${PLAN_AXES.join(", ")}, such as tp=2,pp=2`;
  const constraints: Partial<Record<PlanAxis, number>> = {};
  for (const part of text.split(",")) {
    const match = /^\s*([a-z]+)\s*=\s*(\d{1,7})\s*$/.exec(part);
    const axis = PLAN_AXES.find((name) => name === match?.[1]);
    if (match === null || axis === undefined || constraints[axis] !== undefined) {
      throw new InvalidArgumentError("--constrain", text, accepted);
    }
    constraints[axis] = Number(match[2]);
  }
  return constraints;
}

function parseObjective(text: string): Objective {
  const objective = OBJECTIVES.find((name) => name === text);
  if (objective === undefined) throw new InvalidArgumentError("--objective", text, `one of ${OBJECTIVES.join(", ")}`);
  return objective;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument(
      "<model>",
      "a folder, config.json, safetensors or GGUF file, a preset such as llama-3.1-70b, or a count such as 70B",
    )
    .option("--hardware <what>", "an inventory file, a recorded root, a preset, N x PRESET, or detect", "detect")
    .option("--dtype <dtype>", "weights in this dtype: f32, f16, bf16, fp8")
    .option(
      "--quant <format>",
      "weights in this format: int8, int4, gptq-4-g128, awq-4-g128, nf4, mxfp4, nvfp4, q4_k_m, …",
    )
    .option("--kv <format>", "KV cache in bf16, f16, f32, fp8, int8 or int4")
    .option("--context <tokens>", "tokens of a sequence, prompt and output together, such as 32K", sized(1))
    .option("--output <tokens>", "tokens that are generated", sized(0))
    .option("--batch <n>", "sequences in flight, all replicas together; a training step's batch", whole(1))
    .option("--objective <what>", OBJECTIVES.join(", "), "latency")
    .option("--train <method>", "train: full, lora, lora-RANK, qlora, prefix, dpo, rlhf, distillation")
    .option("--zero <stage>", "ZeRO stage 0 to 3 (default: the best)", whole(0))
    .option("--constrain <axes>", "fix axes: tp=2,pp=2")
    .option("--ranks <n>", "fix the number of ranks; a CPU hosts several", whole(1))
    .option("--add <devices>", "what if there were more: 4xH200 (repeatable)", collect)
    .option("--without <devices>", "what if these were gone: gpu3, or a family (repeatable)", collect)
    .option("--link <change>", "what if links were others: nvlink=off, pcie=64, nvlink=x0.5 (repeatable)", collect)
    .option("--export <engine>", EXPORT_TARGETS.join(", "))
    .option("--prices <file>", "a price catalogue of your own, in place of the built-in one")
    .option("--top <k>", "show the K best", whole(1), 1)
    .option("--total-memory", "plan with total memory rather than what is free now")
    .option("--explain", "say why each other layout lost")
    .option("-o, --output-file <file>", "write the best plan there, for launch … --plan FILE")
    .option("--json", "print one JSON document")
    .action(async (model: string, flags: Flags) => {
      exit(await run(model, flags));
    });
}

/** Flags that mean nothing in the mode asked for are refused: a plan that ignored one would look as if it heeded it. */
function checkMode(flags: Flags): void {
  if (flags.train === undefined) {
    if (flags.zero !== undefined) throw new InvalidArgumentError("--zero", flags.zero, "--train METHOD beside it");
    return;
  }
  if (flags.kv !== undefined) throw new InvalidArgumentError("--kv", flags.kv, "no --train: training has no KV cache");
  if (flags.output !== undefined) {
    throw new InvalidArgumentError("--output", flags.output, "no --train: training generates no tokens");
  }
}

async function writePlan(file: string, plan: ShardingPlan): Promise<void> {
  try {
    await writeFile(file, `${JSON.stringify(plan, null, 2)}\n`);
  } catch (cause) {
    throw new InvalidArgumentError("--output-file", file, `a file that can be written: ${(cause as Error).message}`);
  }
}

async function run(modelText: string, flags: Flags): Promise<number> {
  if (flags.dtype !== undefined && flags.quant !== undefined) {
    throw new InvalidArgumentError("--quant", flags.quant, "either --dtype or --quant, not both");
  }
  checkMode(flags);
  const objective = parseObjective(flags.objective);
  const constrain = flags.constrain === undefined ? {} : parseConstraints(flags.constrain);
  if (flags.export !== undefined && !EXPORT_TARGETS.some((name) => name === flags.export)) {
    throw new InvalidArgumentError("--export", flags.export, `one of ${EXPORT_TARGETS.join(", ")}`);
  }
  const prices = flags.prices === undefined ? DEFAULT_PRICES : readPrices(flags.prices);
  const [model, hardware] = await Promise.all([loadModel(modelText), resolveHardware(flags.hardware)]);
  const inventory = whatIf(hardware, flags);
  const quant = flags.quant ?? flags.dtype;
  const found = planModel({
    model,
    inventory,
    objective,
    constrain,
    top: flags.top,
    useTotalMemory: flags.totalMemory === true,
    ...(quant === undefined ? {} : { quant }),
    ...(flags.kv === undefined ? {} : { kv: flags.kv as KvFormatName }),
    ...(flags.context === undefined ? {} : { contextTokens: flags.context }),
    ...(flags.output === undefined ? {} : { outputTokens: flags.output }),
    ...(flags.batch === undefined ? {} : { batch: flags.batch }),
    ...(flags.train === undefined ? {} : { train: flags.train }),
    ...(flags.zero === undefined ? {} : { zeroStage: flags.zero as 0 | 1 | 2 | 3 }),
    ...(flags.ranks === undefined ? {} : { ranks: flags.ranks }),
    onProgress: progress(),
  });
  const outcome = { ...found, plans: found.plans.map((plan) => withPrice(plan, inventory, prices)) };
  const exported =
    outcome.plans[0] === undefined || flags.export === undefined
      ? undefined
      : exportOf(outcome.plans[0], flags.export, modelText, inventory);
  if (flags.outputFile !== undefined && outcome.plans[0] !== undefined) {
    await writePlan(flags.outputFile, outcome.plans[0]);
  }
  if (flags.json === true)
    printJson({ ...documentOf(outcome), ...(exported === undefined ? {} : { export: exported }) });
  else print(`${exported === undefined ? render(outcome, model.name, flags) : renderExport(exported)}\n`);
  return outcome.plans.length > 0 ? EXIT.done : EXIT.checkFailed;
}

/** On a terminal, how far a long search is: at most ten times a second, erased at the end. */
function progress(): (done: number, total: number) => void {
  let last = Date.now();
  let shown = false;
  return (done, total) => {
    if (!process.stderr.isTTY) return;
    const finished = done >= total;
    if (finished ? shown : Date.now() - last > 100) {
      last = Date.now();
      shown = !finished;
      showProgress(finished ? "" : `judged ${done} of ${total} layouts`);
    }
  };
}

function documentOf(outcome: PlanOutcome): object {
  const [first] = outcome.plans;
  return {
    schemaVersion: 1,
    model: first?.model ?? outcome.model,
    plans: outcome.plans,
    rejected: outcome.rejected,
    ...(outcome.suggestion === undefined ? {} : { suggestion: outcome.suggestion }),
    notes: outcome.notes,
    search: { candidates: outcome.numCandidates, judged: outcome.numJudged },
  };
}

function render(outcome: PlanOutcome, name: string, flags: Flags): string {
  if (outcome.plans.length === 0) return renderNothing(outcome, name);
  const plans = outcome.plans.map((plan, index) => {
    const title = outcome.plans.length === 1 ? "" : `# ${index + 1}: ${axesText(plan.mesh.axes)}\n`;
    return title + renderPlan(plan, { explain: flags.explain === true });
  });
  const { suggestion } = outcome;
  return suggestion === undefined
    ? plans.join("\n\n")
    : `${plans.join("\n\n")}\nthe smallest preset whose accelerators would do: --hardware ${suggestion}`;
}
