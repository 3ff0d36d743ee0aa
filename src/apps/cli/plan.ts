/** `chorale plan`: a model and hardware in, the best sharding plan out, and why the others lost. */
import { existsSync } from "node:fs";
import type { Command } from "commander";
import { InvalidArgumentError, show } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { resolveHardware } from "../../machine/hardware/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import {
  addDevices,
  axesText,
  axisLimits,
  changeLinks,
  cheapestPlan,
  compareHardware,
  DEFAULT_PRICES,
  disaggregate,
  ENGINES,
  EXPORT_TARGETS,
  type Exported,
  exportedModel,
  exportPlan,
  findWeightFormat,
  type KvFormatName,
  loadModel,
  memoryShortfall,
  nearestChanges,
  nearLines,
  numHostsOf,
  OBJECTIVES,
  PLAN_AXES,
  type PlanAxis,
  type PlanOutcome,
  type PlanRequest,
  planModel,
  rangeOf,
  readPrices,
  renderExport,
  renderNothing,
  renderPlan,
  SERVING_TARGETS,
  type ShardingPlan,
  TRAINING_TARGETS,
  visibleDevices,
  withoutDevices,
  withPrice,
  type ZeroStage,
} from "../../planner/index.ts";

import { EXIT } from "./exit-codes.ts";
import { collect, sized, whole } from "./option-readers.ts";

import { print, printJson, showProgress } from "./output.ts";
import { readServiceLevel, renderComparison, renderDisaggregated, renderList, renderWayOut } from "./plan-decisions.ts";
import { asksForLoad, checkServes, printComparedLoads, printLoad } from "./plan-loads.ts";
import { addModelOfTimeOptions, type ModelOfTimeFlags, modelOfTimeRequest } from "./plan-options.ts";
import { writeOutput } from "./write-output.ts";

/** Formats of weights that are not quantized. */
const DTYPES: readonly string[] = ["f32", "f16", "bf16", "fp8"];
/** The planner's own objectives, and what is answered by comparing its plans. */
const CLI_OBJECTIVES = [...OBJECTIVES, "cost"] as const;

interface Flags extends ModelOfTimeFlags {
  readonly list?: string;
  readonly users?: number;
  readonly slo?: string;
  readonly disaggregate?: boolean;
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
  readonly constrain?: readonly string[];
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
  const links = flags.link ?? [];
  const kindOf = (text: string) => text.split("=")[0]?.trim();
  for (const [at, text] of links.entries()) {
    const before = links.slice(0, at).find((one) => kindOf(one) === kindOf(text));
    if (before !== undefined && before.trim() !== text.trim()) {
      throw new InvalidArgumentError("--link", text, `one change of ${kindOf(text)}: ${show(before)} was given before`);
    }
  }
  return [...new Set(links.map((text) => text.trim()))].reduce(changeLinks, fewer);
}

const hasAccelerator = (inventory: Inventory | undefined) =>
  inventory?.devices.some(({ family }) => family !== "cpu") === true;

function exportOf(plan: ShardingPlan, target: string, modelPath: string, inventory: Inventory): Exported {
  const numHosts = numHostsOf(plan, inventory);
  return exportPlan(plan, target, {
    // A folder or file is what the user has; a name is what the engine is to download.
    ...exportedModel(plan, target, { text: modelPath, isPath: existsSync(modelPath) }),
    numHosts,
    ...(numHosts === 1 ? { env: visibleDevices(plan, inventory) } : {}),
  });
}

/** Reads `tp=2,pp=2`, once or again. */
function parseConstraints(words: readonly string[]): Partial<Record<PlanAxis, number>> {
  const accepted = `AXIS=SIZE,… with axes ${PLAN_AXES.join(", ")}, such as tp=2,pp=2`;
  const constraints: Partial<Record<PlanAxis, number>> = {};
  for (const part of words.flatMap((word) => word.split(","))) {
    const match = /^\s*([a-z]+)\s*=\s*(\d{1,7})\s*$/.exec(part);
    const axis = PLAN_AXES.find((name) => name === match?.[1]);
    if (match === null || axis === undefined) throw new InvalidArgumentError("--constrain", words.join(","), accepted);
    const [size, before] = [Number(match[2]), constraints[axis]];
    if (before !== undefined && before !== size) {
      throw new InvalidArgumentError(
        "--constrain",
        part.trim(),
        `one size of ${axis}: ${axis}=${before} was given before`,
      );
    }
    constraints[axis] = size;
  }
  return constraints;
}

function parseObjective(text: string): (typeof CLI_OBJECTIVES)[number] {
  const objective = CLI_OBJECTIVES.find((name) => name === text);
  if (objective === undefined) {
    throw new InvalidArgumentError("--objective", text, `one of ${CLI_OBJECTIVES.join(", ")}`);
  }
  return objective;
}

/** `A,B,C` names several machines; a file whose name has commas names one. */
function machinesOf(text: string): readonly string[] {
  if (!text.includes(",") || existsSync(text)) return [text];
  const names = text.split(",").map((name) => name.trim());
  if (names.includes("")) throw new InvalidArgumentError("--hardware", text, "names with commas between them");
  return names;
}

/** The machine that a name gives; `A + B` is machine A with devices B added to it. */
async function machineOf(name: string): Promise<Inventory> {
  const [base = name, ...added] = existsSync(name) ? [name] : name.split(/\s+\+\s+/);
  return added.reduce(addDevices, await resolveHardware(base));
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument(
      "[model]",
      "a folder, config.json, safetensors or GGUF file, a preset such as llama-3.1-70b, or a count such as 70B",
    )
    .option(
      "--hardware <what>",
      "a preset, accelerators by name (8x h100, rtx 4090 + rtx 3090), an inventory file, a recorded root, N x any of them, or detect; with commas: compared",
      "detect",
    )
    .option("--list <what>", "list the names of models or hardware, or the engines with the devices that each runs on")
    .option(
      "--users <n>",
      "whether that many users at once are served, with --slo whether it is kept, and what stands in the way",
      sized(1),
    )
    .option("--slo <level>", "the largest load that keeps ttft=SECONDS,tpot=SECONDS, and what bounds it")
    .option(
      "--disaggregate",
      "prefill and decoding on workers of their own: how many of which size, with --slo what they keep",
    )
    .option("--dtype <dtype>", `weights in this dtype: ${DTYPES.join(", ")}`)
    .option(
      "--quant <format>",
      "weights in this format: int8, int4, gptq-4-g128, awq-4-g128, nf4, mxfp4, nvfp4, q4_k_m, …",
    )
    .option("--kv <format>", "KV cache in bf16, f16, f32, fp8, int8, int4, q8_0, q4_0 or nvfp4")
    .option("--context <tokens>", "tokens of a sequence, prompt and output together, such as 32K", sized(1))
    .option("--output <tokens>", "tokens that are generated", sized(0))
    .option("--batch <n>", "sequences in flight, all replicas together; a training step's batch", sized(1))
    .option("--objective <what>", CLI_OBJECTIVES.join(", "), "latency")
    .option("--train <method>", "train: full, lora, lora-RANK, qlora, prefix, dpo, rlhf (ppo), grpo, distillation")
    .option("--zero <stage>", "ZeRO stage 0 to 3 (default: the best)", whole(0))
    .option("--constrain <axes>", "fix axes: tp=2,pp=2 (repeatable)", collect)
    .option("--ranks <n>", "fix the number of ranks; a CPU hosts several", whole(1))
    .option("--add <devices>", "what if there were more: 4xH200 (repeatable)", collect)
    .option("--without <devices>", "what if these were gone: gpu3, or a family (repeatable)", collect)
    .option("--link <change>", "what if links were others: nvlink=off, pcie=64, nvlink=x0.5 (repeatable)", collect)
    .option("--export <engine>", `a command line for it, with what it cannot do refused: ${EXPORT_TARGETS.join(", ")}`)
    .option("--prices <file>", "a price catalogue of your own, in place of the built-in one")
    .option("--top <k>", "show the K best", whole(1), 1)
    .option("--total-memory", "plan with total memory rather than what is free now")
    .option("--explain", "say why each other layout lost")
    .option("-o, --output-file <file>", "write the best plan there, for a script: launch SCRIPT -- --plan FILE")
    .option("--json", "print one JSON document")
    .action(async (model: string | undefined, flags: Flags) => {
      exit(await run(model, flags));
    });
  addModelOfTimeOptions(command);
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
  if (flags.engine !== undefined && flags.engine !== "pytorch" && flags.rollout === undefined) {
    throw new InvalidArgumentError("--engine", flags.engine, "no --train but with --rollout: these engines serve");
  }
}

async function run(modelText: string | undefined, flags: Flags): Promise<number> {
  if (flags.list !== undefined) {
    print(`${renderList(flags.list)}\n`);
    return EXIT.done;
  }
  if (modelText === undefined) {
    throw new InvalidArgumentError(
      "<model>",
      described("missing"),
      "a model's name, folder or file (missing required argument)",
    );
  }
  if (flags.dtype !== undefined && flags.quant !== undefined) {
    throw new InvalidArgumentError("--quant", flags.quant, "either --dtype or --quant, not both");
  }
  if (flags.dtype !== undefined && !DTYPES.includes(findWeightFormat(flags.dtype)?.name ?? "")) {
    throw new InvalidArgumentError("--dtype", flags.dtype, `one of ${DTYPES.join(", ")}; --quant takes other formats`);
  }
  checkMode(flags);
  const objective = parseObjective(flags.objective);
  checkExport(flags);
  const constrain = {
    ...axisLimits(flags.export),
    ...(flags.constrain === undefined ? {} : parseConstraints(flags.constrain)),
  };
  const prices = flags.prices === undefined ? DEFAULT_PRICES : readPrices(flags.prices);
  const names = machinesOf(flags.hardware);
  const [model, ...machines] = await Promise.all([loadModel(modelText), ...names.map(machineOf)]);
  const quant = flags.quant ?? flags.dtype;
  const train = trainingMethodOf(flags);
  const asked: Omit<PlanRequest, "inventory"> & { allowCpu?: boolean } = {
    model,
    objective: objective === "cost" ? ("throughput" as const) : objective,
    constrain,
    top: flags.top,
    useTotalMemory: flags.totalMemory === true,
    ...(quant === undefined ? {} : { quant }),
    ...(flags.kv === undefined ? {} : { kv: flags.kv as KvFormatName }),
    ...(flags.context === undefined ? {} : { contextTokens: flags.context }),
    ...(flags.output === undefined ? {} : { outputTokens: flags.output }),
    ...(flags.batch === undefined ? {} : { batch: flags.batch }),
    ...(train === undefined ? {} : { train }),
    ...engineOf(flags),
    ...modelOfTimeRequest(flags, flags.train),
    ...zeroStageOf(flags),
    ...(flags.ranks === undefined ? {} : { ranks: flags.ranks }),
    onProgress: progress(),
  };
  const inventories = machines.map((hardware) => whatIf(hardware, flags));
  // Who takes the accelerators away asks what is left of them, not for a plan on the CPU.
  const isBared = inventories.some((own, at) => !hasAccelerator(own) && hasAccelerator(machines[at]));
  if (isBared && flags.allowCpu !== true) asked.allowCpu = false;
  const [inventory] = inventories;
  if (inventory === undefined) throw new InvalidArgumentError("--hardware", flags.hardware, "a machine");
  if (inventories.length > 1) {
    refuseWith(flags, "--hardware A,B", ["export", "outputFile", "disaggregate"]);
    const named = inventories.map((own, at) => ({ name: names[at] ?? "", inventory: own }));
    if (asksForLoad(flags)) {
      checkLoadFlags(flags);
      return printComparedLoads(asked, named, flags, prices);
    }
    const rows = compareHardware(asked, named, prices);
    if (flags.json === true) printJson({ schemaVersion: 1, hardware: rows });
    else print(`${renderComparison(rows)}\n`);
    return rows.some((row) => row.plan !== undefined) ? EXIT.done : EXIT.checkFailed;
  }
  if (flags.disaggregate === true) return answerDisaggregated({ ...asked, inventory }, flags);
  if (asksForLoad(flags)) {
    checkLoadFlags(flags);
    return printLoad({ ...asked, inventory }, flags, prices);
  }
  const request = { ...asked, inventory };
  const cheapest = objective === "cost" ? cheapestPlan(request, prices) : undefined;
  const found = cheapest === undefined ? planModel(request) : { ...planModel(request), plans: [cheapest], near: [] };
  const outcome = {
    ...found,
    plans: found.plans.map((plan) => (plan === cheapest ? plan : withPrice(plan, inventory, prices))),
  };
  if (outcome.plans.length === 0) return answerNothing(outcome, request, model.name, flags);
  const exported =
    outcome.plans[0] === undefined || flags.export === undefined
      ? undefined
      : exportOf(outcome.plans[0], flags.export, modelText, inventory);
  if (flags.outputFile !== undefined && outcome.plans[0] !== undefined) {
    writeOutput("--output-file", flags.outputFile, `${JSON.stringify(outcome.plans[0], null, 2)}\n`);
  }
  if (flags.json === true)
    printJson({ ...documentOf(outcome), ...(exported === undefined ? {} : { export: exported }) });
  else print(`${exported === undefined ? render(outcome, model.name, flags) : renderExport(exported)}\n`);
  return outcome.plans.length > 0 ? EXIT.done : EXIT.checkFailed;
}

/** A target that is known and does what is asked for, and no other engine's times beside it. */
function checkExport({ export: target, engine, train }: Flags): void {
  if (target === undefined) return;
  if (!EXPORT_TARGETS.some((name) => name === target)) {
    throw new InvalidArgumentError("--export", target, `one of ${EXPORT_TARGETS.join(", ")}`);
  }
  if (train !== undefined && SERVING_TARGETS.some((name) => name === target)) {
    throw new InvalidArgumentError("--export", target, `${TRAINING_TARGETS.join(", ")} beside --train`);
  }
  if (engine !== undefined && ENGINES.some((name) => name === target) && engine !== target) {
    throw new InvalidArgumentError("--export", target, `${engine}, as --engine says, or no --engine`);
  }
}

/** Share of memory that a server's pools may take: what is left holds what other processes and fragments take. */
const EXPORTED_MEMORY_SHARE = 0.95;

/** A plan that is exported is timed for the engine that it goes to, and leaves memory that its pools cannot have. */
function engineOf({ export: target, train }: Flags): Pick<PlanRequest, "engine" | "gpuMemoryUtilization"> {
  const engine = ENGINES.find((name) => name === target);
  if (engine === undefined || train !== undefined) return {};
  return engine === "llama.cpp" ? { engine } : { engine, gpuMemoryUtilization: EXPORTED_MEMORY_SHARE };
}

/** The ZeRO stage that is asked for, or the one that the trainer of the export leaves no choice of. */
function zeroStageOf({ zero, export: target, train, offload }: Flags): Pick<PlanRequest, "zeroStage"> {
  if (zero !== undefined) return { zeroStage: zero as ZeroStage };
  if (train === undefined) return {};
  if (target === "megatron-lm") return { zeroStage: 1 };
  if (target !== "deepspeed" || offload === undefined || offload === "none") return {};
  return { zeroStage: offload === "all" ? 3 : 2 };
}

/** `--lora-rank 8` beside `--train lora` is `lora-8`. */
function trainingMethodOf(flags: Flags): string | undefined {
  return flags.train !== undefined && flags.loraRank !== undefined ? `${flags.train}-${flags.loraRank}` : flags.train;
}

/** Flags that another one leaves without a meaning. */
function refuseWith(flags: Flags, what: string, names: readonly (keyof Flags)[]): void {
  for (const name of names) {
    if (flags[name] !== undefined) {
      const option = `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
      const value = flags[name] === true ? "set" : String(flags[name]);
      throw new InvalidArgumentError(option, value, `no ${what} beside it`);
    }
  }
}

function checkLoadFlags(flags: Flags): void {
  checkServes(flags, flags.train);
  refuseWith(flags, "--slo or --users", ["batch", "export", "outputFile"]);
}

/** `--disaggregate`: how many workers read prompts, and how many generate. */
function answerDisaggregated(request: PlanRequest, flags: Flags): number {
  if (flags.train !== undefined)
    throw new InvalidArgumentError("--disaggregate", described("set"), "no --train: only serving has prompts to read");
  refuseWith(flags, "--disaggregate", ["batch", "export", "outputFile", "ranks", "users", "explain"]);
  const level = flags.slo === undefined ? {} : readServiceLevel(flags.slo);
  const divided = disaggregate(request, level);
  if (flags.json === true) printJson({ schemaVersion: 1, disaggregated: divided ?? null });
  else print(`${renderDisaggregated(divided, flags.slo)}\n`);
  return divided === undefined ? EXIT.checkFailed : EXIT.done;
}

/** Nothing fits the accelerators: what is missing, and what would fit. */
function answerNothing(outcome: PlanOutcome, request: PlanRequest, name: string, flags: Flags): number {
  const lacksMemory = outcome.rejected.some((item) => item.kind === "memory");
  const shortfall = memoryShortfall(request);
  const changes = lacksMemory ? nearestChanges({ ...request, onProgress: () => {} }, undefined, flags.export) : [];
  if (flags.json === true) {
    const fits = changes.map(({ change, plan }) => ({ change, axes: plan.mesh.axes, memory: plan.memory }));
    printJson({ ...documentOf(outcome), shortfall, changes: fits });
  } else {
    const way = lacksMemory ? renderWayOut(shortfall, changes) : [];
    print(`${[renderNothing(outcome, name), ...way].join("\n")}\n`);
  }
  return EXIT.checkFailed;
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
    ...(first === undefined ? {} : { range: rangeOf(first) }),
    near: outcome.near,
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
  const text = [plans.join("\n\n"), ...nearLines(outcome.near)].join("\n");
  return suggestion === undefined
    ? text
    : `${text}\nthe smallest preset whose accelerators would do: --hardware ${suggestion}`;
}
