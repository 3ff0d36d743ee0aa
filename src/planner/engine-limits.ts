/**
 * What an engine leaves possible: devices that it runs on, formats that it serves there, axes that it splits by. A request that
 * names an engine is planned within these; one that names none is told where no engine serves what it asks for.
 */
import { UnsupportedError } from "../core/index.ts";
import type { Device } from "../machine/topology/index.ts";
import { defaultEngine } from "./cost/profiles.ts";
import { deviceText, runsEngine } from "./export/device-support.ts";
import { EXPORT_TARGETS, type ExportTarget, engineTitle } from "./export/engines.ts";
import { exportPlan, numHostsOf } from "./export/export.ts";
import { checkDevices, checkFormat } from "./export/exporter.ts";
import {
  expandsWeights,
  FP8_TRAINING_DEVICES,
  hasTables,
  isTiedToHardware,
  lacksBf16,
  servedOptions,
  servesFormat,
  trainsInFp8,
} from "./export/format-support.ts";
import { SERVED_IN_HALF } from "./export/serving.ts";
import { HALF_NOTE } from "./export/training-duties.ts";
import { inGgufFile } from "./memory/formats.ts";
import type { PlanAxisSizes, PlanDevices, ShardingPlan } from "./plan.ts";
import type { Workload } from "./search/workload.ts";

/** Engines that serve, of those whose speed is known. */
const SERVING_ENGINES = ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "pytorch"] as const;
/** Those with an export. PyTorch is what is left where none of them serves a format. */
export const SERVERS = SERVING_ENGINES.filter((engine) => engine !== "pytorch");

/** Axes that an export has no words for: a plan for it has them at 1. */
const AXIS_LIMITS: Readonly<Partial<Record<ExportTarget, Partial<PlanAxisSizes>>>> = {
  vllm: { cp: 1 },
  sglang: { cp: 1 },
  "tensorrt-llm": { cp: 1 },
  "llama.cpp": { ep: 1, cp: 1 },
  chorale: { ep: 1, cp: 1 },
  deepspeed: { pp: 1, ep: 1, cp: 1 },
};

/** Sizes of axes that a named engine leaves no choice of. */
export function axisLimits(engine: string | undefined): Partial<PlanAxisSizes> {
  const target = EXPORT_TARGETS.find((name) => name === engine);
  return target === undefined ? {} : (AXIS_LIMITS[target] ?? {});
}

const kindOf = ({ family, name, arch }: Device): PlanDevices => ({
  family,
  name,
  ...(arch === undefined ? {} : { arch }),
  count: 1,
});

/** Says whether an engine with an export serves a format on a device. MLX serves its own, and is no engine whose flags are known here. */
function isServed(format: string, device: PlanDevices | Device): boolean {
  return (
    format.startsWith("mlx") ||
    SERVERS.some((name) => runsEngine(name, device) && servesFormat(name, "weights", format, device))
  );
}

/** Refuses weights that need kernels which no engine has on the device; others, which PyTorch's libraries may load, get a note. */
function unservedProblem(device: Device, { name, gguf }: Workload["format"]): UnsupportedError | undefined {
  if (isServed(name, device) || !(gguf || isTiedToHardware(name, device))) return undefined;
  const here = SERVERS.filter((server) => runsEngine(server, device));
  const options = new Set(here.flatMap((server) => servedOptions(server, "weights", device)));
  return new UnsupportedError(
    `weights in ${name} on ${deviceText(device)} (no engine known here serves them there)`,
    `plan with ${[...options].join(", ")}; or with --engine pytorch, where kernels of your own do`,
  );
}

/** Servers that run on a device and serve both formats there. */
function serversOf(device: PlanDevices | Device, weights: string, kv: string): readonly (typeof SERVERS)[number][] {
  return SERVERS.filter(
    (name) =>
      runsEngine(name, device) &&
      servesFormat(name, "weights", weights, device) &&
      servesFormat(name, "kv", kv, device),
  );
}

/**
 * Refuses a KV cache that no engine has beside these weights on a device whose engines are known. Of NVFP4 the hardware alone
 * is asked: engines get it release by release.
 */
function unservedKvProblem(device: Device, { name }: Workload["format"], kv: string): UnsupportedError | undefined {
  const here = SERVERS.filter((server) => runsEngine(server, device) && servesFormat(server, "weights", name, device));
  const hasUnits = kv === "nvfp4" && device.family === "nvidia-gpu" && !(Number(device.arch) < 10);
  if (here.length === 0 || !hasTables(device) || hasUnits || serversOf(device, name, kv).length > 0) return undefined;
  const options = new Set(here.flatMap((server) => servedOptions(server, "kv", device)));
  return new UnsupportedError(
    `a KV cache in ${kv} beside weights in ${name} on ${deviceText(device)} (no engine known here serves them together there)`,
    `plan with ${[...options].join(", ")}; or with --engine pytorch, where kernels of your own do`,
  );
}

/** Why a request cannot be planned on a device: the engine or the hardware lacks what it asks for; undefined where it can. */
function problemOn(device: Device, workload: Workload): UnsupportedError | undefined {
  const { method, engine, format, kvName, trainPrecision } = workload;
  const hardware = [kindOf(device)];
  if (method !== undefined) {
    return trainPrecision === "fp8" && !trainsInFp8(device)
      ? new UnsupportedError(
          `training in fp8 on ${deviceText(device)}`,
          `${FP8_TRAINING_DEVICES}: plan with --train-precision bf16`,
        )
      : undefined;
  }
  if (engine === undefined) return unservedProblem(device, format) ?? unservedKvProblem(device, format, kvName);
  try {
    checkDevices(engine, hardware, SERVING_ENGINES);
    checkFormat(engine, "weights", format.name, hardware);
    checkFormat(engine, "kv", kvName, hardware);
    return undefined;
  } catch (error) {
    if (error instanceof UnsupportedError) return error;
    throw error;
  }
}

export interface UsableDevices {
  readonly devices: readonly Device[];
  /** Of each kind that is left out, why. */
  readonly problems: readonly UnsupportedError[];
}

/** The devices on which a request can be planned. */
export function devicesFor(devices: readonly Device[], workload: Workload): UsableDevices {
  const problems = new Map<string, UnsupportedError>();
  const usable = devices.filter((device) => {
    const problem = problemOn(device, workload);
    if (problem !== undefined) problems.set(problem.message, problem);
    return problem === undefined;
  });
  return { devices: usable, problems: [...problems.values()] };
}

/** The request as the engine of these devices serves it: its weights as that engine's files hold them. */
export function workloadOn(devices: readonly Device[], workload: Workload): Workload {
  const isLlamaCpp = (device: Device) => (workload.engine ?? defaultEngine(device, workload.format)) === "llama.cpp";
  if (workload.mode === "training" || !devices.every(isLlamaCpp)) return workload;
  return { ...workload, format: inGgufFile(workload.format) };
}

/** Why an export would refuse a plan; undefined where it would not. */
export function exportProblem(
  plan: ShardingPlan,
  target: string,
  inventory: Parameters<typeof numHostsOf>[1],
): string | undefined {
  try {
    exportPlan(plan, target, { numHosts: numHostsOf(plan, inventory) });
    return undefined;
  } catch (error) {
    if (error instanceof UnsupportedError) return error.message;
    throw error;
  }
}

/** What a plan says of its engine: that its devices lack its format, that none serves it here, or that its export is refused. */
export function engineNotes(plan: ShardingPlan, inventory: Parameters<typeof numHostsOf>[1]): readonly string[] {
  const { mode, engine = "", weightFormat, activationFormat } = plan.workload;
  const [first] = plan.hardware ?? [];
  const isHalf = activationFormat === "bf16" && (plan.hardware ?? []).some(lacksBf16);
  if (mode === "training") return isHalf ? [HALF_NOTE] : [];
  const notes = isHalf ? [SERVED_IN_HALF] : [];
  if (first !== undefined && !isServed(weightFormat, first)) {
    return [...notes, `no engine known here serves weights in ${weightFormat} on ${deviceText(first)}`];
  }
  if (first !== undefined && expandsWeights(weightFormat, first)) {
    notes.push(
      `${deviceText(first)} does not multiply in ${weightFormat}: its weights are expanded to 16 bits as they are read, which saves memory and no arithmetic`,
    );
  }
  const target = EXPORT_TARGETS.find((name) => name === engine);
  const problem = target === undefined ? undefined : exportProblem(plan, target, inventory);
  if (target === undefined || problem === undefined) return notes;
  const others = SERVERS.filter((name) => name !== target && exportProblem(plan, name, inventory) === undefined);
  const elsewhere =
    others.length === 0 ? "" : `; another engine can: ${others.map((name) => `--engine ${name}`).join(", ")}`;
  return [...notes, `cannot be exported to ${engineTitle(target)}: ${problem}${elsewhere}`];
}
