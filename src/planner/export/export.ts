/**
 * A plan in the words of other engines: command lines and config files, for one named version of each, with only the
 * flags that this version has (`FLAGS`, checked by a test). What an engine cannot do is an error, not a wrong flag.
 */
import { wordTable } from "../../core/index.ts";
import { oneOf } from "../../core/internal.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { MODEL_PRESETS, modelPreset } from "../model/presets.ts";
import type { PlanDevices, ShardingPlan } from "../plan.ts";
import { choraleLaunch } from "./chorale-launch.ts";
import { deepspeed } from "./deepspeed.ts";
import { EXPORT_TARGETS, EXPORT_VERSIONS, type ExportTarget, SERVING_TARGETS, TRAINING_TARGETS } from "./engines.ts";
import { checkDevices, type Exported, type Exporter } from "./exporter.ts";
import { hubId, isHubId, quantizedHubId } from "./hub-ids.ts";
import { llamaCpp } from "./llama-cpp.ts";
import { megatron } from "./megatron-lm.ts";
import { sglang } from "./sglang.ts";
import { tensorrt } from "./tensorrt-llm.ts";
import { torchrun } from "./torchrun.ts";
import { vllm } from "./vllm.ts";

export { EXPORT_TARGETS, EXPORT_VERSIONS, type ExportTarget, FLAGS } from "./engines.ts";
export type { Exported } from "./exporter.ts";

export interface ExportOptions {
  /** Folder or name of the model for the command line. Default: the plan's model name. */
  readonly modelPath?: string;
  /** Whether the weights there are in the plan's format. Default: not known, and taken for granted. */
  readonly isQuantized?: boolean;
  /** `modelPath` is neither a folder nor an id of the Hub: a note asks for one. */
  readonly isUnknown?: boolean;
  /** Hosts that the plan's devices are on, in order; from `numHostsOf`. Default 1. */
  readonly numHosts?: number;
  /** Environment that shows the engine the plan's devices only, in rank order; from `visibleDevices`. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Hosts that the plan's devices are on. */
export function numHostsOf(plan: ShardingPlan, inventory: Pick<Inventory, "topology">): number {
  const used = new Set(plan.ranks.map((rank) => rank.deviceId));
  const hosts = inventory.topology.nodes.filter((node) => used.has(node.id)).map((node) => node.host ?? 0);
  return Math.max(1, new Set(hosts).size);
}

const servesModelOpt = ({ family, arch }: PlanDevices): boolean => family === "nvidia-gpu" && !(Number(arch) < 8.9);

/**
 * The model of an export's command line, and whether its weights are in the plan's format: the user's own id or path, else the
 * repository that is known to hold the preset in that format, else the preset's own.
 * @param text what the user called the model
 */
export function exportedModel(
  plan: ShardingPlan,
  target: string,
  { text, isPath }: { readonly text: string; readonly isPath: boolean },
): Pick<ExportOptions, "modelPath" | "isQuantized" | "isUnknown"> {
  const { weightFormat, checkpointFormat } = plan.workload;
  const isQuantized = checkpointFormat === undefined || checkpointFormat === weightFormat;
  const { name } = plan.model;
  const isGguf = target === "llama.cpp";
  const known = quantizedHubId(name, isGguf ? `gguf:${weightFormat}` : weightFormat);
  // An id of the user's own stays, unless llama.cpp wants the same model in GGUF files.
  const isPresets = isGguf && known !== undefined && text === hubId(name, name);
  if (isPath || (isHubId(text) && !isPresets)) return { modelPath: text, isQuantized };
  // ModelOpt's FP8 checkpoints are read where there are NVIDIA's units for it; elsewhere engines convert the base.
  const isFor = !known?.startsWith("nvidia/") || (plan.hardware ?? []).every((device) => servesModelOpt(device));
  if (known !== undefined && isFor) return { modelPath: known, isQuantized: true };
  // A preset's repository holds the preset's own format, whatever the name's suffix asked for.
  const own = MODEL_PRESETS.includes(name) ? modelPreset(name).weightFormat : checkpointFormat;
  const id = hubId(text, name);
  return { modelPath: id ?? text, isQuantized: own === weightFormat, isUnknown: id === undefined };
}

/** What limits a driver to some of its devices. */
const VISIBLE: Readonly<Record<string, string>> = wordTable({
  "nvidia-gpu": "CUDA_VISIBLE_DEVICES",
  "amd-gpu": "HIP_VISIBLE_DEVICES",
});

/**
 * The environment variable without which an engine would take the first devices of the host in place of the plan's;
 * empty where these are the plan's, in that order, and for plans over several hosts.
 */
export function visibleDevices(
  plan: ShardingPlan,
  inventory: Pick<Inventory, "devices">,
): Readonly<Record<string, string>> {
  const devices = new Map(inventory.devices.map((device) => [device.id, device]));
  const used = [...new Set(plan.ranks.map((rank) => rank.deviceId))].map((id) => devices.get(id));
  const name = VISIBLE[used[0]?.family ?? ""];
  const indexes = used.map((device) => device?.index ?? 0);
  return name === undefined || indexes.every((value, at) => value === at) ? {} : { [name]: indexes.join(",") };
}

const EXPORTERS: Readonly<Record<ExportTarget, Exporter>> = {
  vllm,
  sglang,
  "tensorrt-llm": tensorrt,
  deepspeed,
  "megatron-lm": megatron,
  torchrun,
  "llama.cpp": llamaCpp,
  chorale: choraleLaunch,
};

/**
 * Writes a plan as another engine's command line and files.
 * @throws InvalidArgumentError for an unknown target; UnsupportedError when the engine cannot do what the plan says
 * @example
 * import { exportPlan, modelPreset, planModel } from "chorale/planner";
 * import { presetInventory } from "chorale/topology";
 * const [plan] = planModel({ model: modelPreset("llama-3.1-70b"), inventory: presetInventory("hgx-h100-8") }).plans;
 * if (plan !== undefined) exportPlan(plan, "vllm").command; // vllm serve llama-3.1-70b --tensor-parallel-size 8 ...
 */
export function exportPlan(plan: ShardingPlan, target: string, options: ExportOptions = {}): Exported {
  const name = oneOf(target, "--export", EXPORT_TARGETS);
  const among = plan.workload.mode === "training" ? TRAINING_TARGETS : SERVING_TARGETS;
  checkDevices(name, plan.hardware ?? [], among);
  const exported = EXPORTERS[name](plan, {
    model: options.modelPath ?? plan.model.name,
    isQuantized: options.isQuantized,
    numHosts: options.numHosts ?? 1,
  });
  const notes = [...exported.notes];
  if (options.isUnknown === true) {
    notes.push(`no Hub id is known here for ${options.modelPath}: put a folder or an id in its place`);
  }
  const env = { ...(name === "chorale" ? {} : options.env), ...exported.env };
  if (name === "deepspeed" && options.env !== undefined && Object.keys(options.env).length > 0) {
    notes.push("its launcher ignores visible devices beside --num_gpus: pass --include localhost:INDEXES in its place");
  }
  return { target: name, version: EXPORT_VERSIONS[name], ...exported, env, notes };
}

/** An export as text: files first, then the command with its environment. */
export function renderExport(exported: Exported): string {
  const env = Object.entries(exported.env).map(([name, value]) => `${name}=${value} `);
  return [
    `# ${exported.version}`,
    ...Object.entries(exported.files).flatMap(([file, text]) =>
      file === "plan.json"
        ? [`# plan.json: written by --output-file plan.json`]
        : [
            `# ${file}:`,
            ...text
              .trimEnd()
              .split("\n")
              .map((line) => `#   ${line}`),
          ],
    ),
    ...exported.notes.map((text) => `# ${text}`),
    `${env.join("")}${exported.command}`,
  ].join("\n");
}
