/** What all exports share: their result, refusals in words, and how a plan's stages and devices are written. */
import { UnsupportedError } from "../../core/index.ts";
import type { PlanAxis, ShardingPlan } from "../plan.ts";
import { devicesOf, deviceText, enginesFor, foreignDevice, installNotes } from "./device-support.ts";
import { type EngineName, EXPORT_VERSIONS, type ExportTarget, engineTitle } from "./engines.ts";
import { type FormatUse, formatProblem } from "./format-support.ts";

/** What comes out: the command, environment variables that it needs, and files to write beside it. */
export interface Exported {
  readonly target: ExportTarget;
  readonly version: string;
  readonly command: string;
  readonly env: Readonly<Record<string, string>>;
  readonly files: Readonly<Record<string, string>>;
  readonly notes: readonly string[];
}

/** What an exporter is given beside the plan. */
export interface ExportPlace {
  /** Folder or name of the model. */
  readonly model: string;
  /** Whether that folder's or repository's weights are in the plan's format; undefined: not known. */
  readonly isQuantized: boolean | undefined;
  readonly numHosts: number;
}

export type Exporter = (plan: ShardingPlan, place: ExportPlace) => Omit<Exported, "target" | "version">;

/** Quotes a word for a POSIX shell where it needs it. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:@%+,=-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

/** The error of something that an engine has no words for. */
export function refusal(what: string, target: ExportTarget, accepted: string): UnsupportedError {
  return new UnsupportedError(`${what} in ${EXPORT_VERSIONS[target]}`, accepted);
}

export function refuseAxes(plan: ShardingPlan, target: ExportTarget, axes: readonly PlanAxis[], why: string): void {
  for (const axis of axes) {
    if (plan.mesh.axes[axis] > 1) {
      throw refusal(`${axis}=${plan.mesh.axes[axis]}`, target, `${why}: plan with --constrain ${axis}=1`);
    }
  }
}

export function needsMode(plan: ShardingPlan, target: ExportTarget, mode: "inference" | "training"): void {
  if (plan.workload.mode !== mode) throw refusal(`a plan for ${plan.workload.mode}`, target, `it is for ${mode}`);
}

/**
 * Checks that an engine runs on devices.
 * @throws UnsupportedError naming what it runs on, and which engines of its kind run here
 */
export function checkDevices(
  engine: EngineName,
  hardware: NonNullable<ShardingPlan["hardware"]>,
  among: readonly EngineName[],
): void {
  const foreign = foreignDevice(engine, hardware);
  if (foreign === undefined) return;
  const others = enginesFor(foreign, among);
  const here = others.length === 0 ? "no engine known here runs on this device" : `here run ${others.join(", ")}`;
  throw new UnsupportedError(
    `${deviceText(foreign)} in ${engineTitle(engine)}`,
    `it runs on ${devicesOf(engine)}; ${here}`,
  );
}

/** @throws UnsupportedError when an engine cannot serve a format on devices */
export function checkFormat(
  engine: EngineName,
  use: FormatUse,
  format: string,
  hardware: NonNullable<ShardingPlan["hardware"]>,
): void {
  // Of a plan without its devices the formats alone are checked: as if on the newest.
  const devices = hardware.length > 0 ? hardware : [{ family: "nvidia-gpu" as const, name: "any GPU" }];
  for (const device of devices) {
    const problem = formatProblem(engine, use, format, device);
    if (problem !== undefined) throw new UnsupportedError(...problem);
  }
}

/** A plan for serving, on devices and in formats that the engine has. */
export function checkServing(plan: ShardingPlan, target: ExportTarget): void {
  needsMode(plan, target, "inference");
  const { weightFormat } = plan.workload;
  checkFormat(target, "weights", weightFormat, plan.hardware ?? []);
  // AMD's Quark has checkpoints of dense models in it, too.
  const isDense = plan.ranks.every(({ shards }) => shards.experts === undefined);
  const isAmd = plan.hardware?.[0]?.family === "amd-gpu";
  if (weightFormat === "mxfp4" && isDense && !isAmd) {
    throw refusal(
      "mxfp4 of a dense model",
      target,
      "its kernels are those of experts (gpt-oss): plan with another --quant",
    );
  }
  checkFormat(target, "kv", plan.workload.kvFormat, plan.hardware ?? []);
}

/** Numbers of layers in each stage of the first replica. */
export function stageLayers(plan: ShardingPlan): number[] {
  const { pp } = plan.mesh.axes;
  return Array.from({ length: pp }, (_, stage) => {
    const rank = plan.ranks.find(({ coords }) => coords.dp === 0 && coords.pp === stage);
    return rank === undefined ? 0 : rank.layers.end - rank.layers.first;
  });
}

export function isEven(counts: readonly number[]): boolean {
  return Math.max(...counts) - Math.min(...counts) <= 0;
}

export function unevenNote(plan: ShardingPlan): string[] {
  const counts = stageLayers(plan);
  return isEven(counts) ? [] : [`splits layers evenly; the plan has ${counts.join(", ")}`];
}

/** A start of every rank by PyTorch's launcher, with a meeting place where there are several hosts. */
export function torchrunWords(plan: ShardingPlan, numHosts: number, script: string): string[] {
  const perHost = Math.ceil(plan.mesh.worldSize / numHosts);
  const rendezvous =
    numHosts > 1 ? ["--rdzv-backend", "c10d", "--rdzv-endpoint", "$HEAD_ADDRESS:29500", "--rdzv-id", "chorale"] : [];
  return ["torchrun", "--nnodes", String(numHosts), "--nproc-per-node", String(perHost), ...rendezvous, script];
}

/** Flags of sizes above 1. */
export function sizes(pairs: readonly (readonly [string, number])[]): string[] {
  return pairs.flatMap(([flag, size]) => (size > 1 ? [flag, String(size)] : []));
}

/** A flag with its value, where there is one. */
export function option(flag: string, value: string | number | undefined): string[] {
  return value === undefined ? [] : [flag, String(value)];
}

export { installNotes };
