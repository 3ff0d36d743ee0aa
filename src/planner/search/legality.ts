/** What divides what: the rules that a layout must keep, each with its equation in words. */
import type { Device } from "../../machine/topology/index.ts";
import { defaultEngine } from "../cost/profiles.ts";
import type { WeightFormat } from "../memory/formats.ts";
import { KV_PAGE_TOKENS } from "../memory/kv-cache.ts";
import type { LayerSpec, ModelSpec } from "../model/spec.ts";
import type { PlanAxisSizes } from "../plan.ts";
import type { Workload } from "./workload.ts";

/** Fewest tokens of a context-parallel shard: with less, its collectives cost more than they save anywhere. */
const MIN_CP_TOKENS = KV_PAGE_TOKENS;

function divides(what: string, value: number, axis: string, size: number): string | undefined {
  return value % size === 0 ? undefined : `${axis}=${size}: ${value} ${what} are not divisible by ${size}`;
}

function layerProblem(layer: LayerSpec, format: WeightFormat, tp: number): string | undefined {
  const { attention, mlp } = layer;
  const heads = divides("attention heads", attention.numHeads, "tp", tp);
  if (heads !== undefined) return heads;
  if (attention.kind === "gqa" && attention.numKvHeads % tp !== 0 && tp % attention.numKvHeads !== 0) {
    return `tp=${tp}: ${attention.numKvHeads} KV heads are neither divisible by ${tp} nor a divisor of it`;
  }
  const columns =
    mlp.kind === "dense"
      ? [["MLP columns", mlp.intermediateSize] as const]
      : [
          ["columns of an expert", mlp.expertIntermediateSize] as const,
          ["columns of the shared experts", mlp.sharedIntermediateSize] as const,
        ];
  for (const [what, value] of columns) {
    const problem = divides(what, value, "tp", tp);
    if (problem !== undefined) return problem;
  }
  // A row-parallel shard must hold whole quantization groups of its input dim.
  const group = Number.isFinite(format.group) ? format.group : 0;
  if (group <= 1 || tp === 1) return undefined;
  for (const weight of layer.weights) {
    if (!weight.isLinear || !weight.cutsInput || (format.scope === "experts" && !weight.perExpert)) continue;
    const input = (weight.shape[1] ?? 0) / tp;
    // A matrix whose whole rows are no multiple of the group pads its last group anyway.
    if ((weight.shape[1] ?? 0) % group === 0 && input % group !== 0) {
      return `tp=${tp}: ${weight.name} has ${input} inputs a rank, not a multiple of the ${format.name} group of ${group}`;
    }
  }
  return undefined;
}

/** Why this tp cannot be; undefined when it can. */
export function tpProblem(model: ModelSpec, format: WeightFormat, tp: number): string | undefined {
  if (tp === 1) return undefined;
  for (const layer of model.layerKinds) {
    const problem = layerProblem(layer, format, tp);
    if (problem !== undefined) return problem;
  }
  if (model.vocabSize < tp) return `tp=${tp}: the vocabulary has only ${model.vocabSize} tokens`;
  return undefined;
}

/** Why this ep cannot be; undefined when it can. */
export function epProblem(model: ModelSpec, ep: number): string | undefined {
  if (ep === 1) return undefined;
  const mixtures = model.layerKinds.map((layer) => layer.mlp).filter((mlp) => mlp.kind === "moe");
  if (mixtures.length === 0) return `ep=${ep}: the model has no experts`;
  for (const mlp of mixtures) {
    const problem = divides("experts", mlp.numExperts, "ep", ep);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Why this pp cannot be; undefined when it can. */
export function ppProblem(model: ModelSpec, pp: number): string | undefined {
  return pp <= model.numLayers ? undefined : `pp=${pp}: the model has only ${model.numLayers} layers`;
}

/** Why this cp cannot be; undefined when it can. */
export function cpProblem(workload: Workload, cp: number): string | undefined {
  if (cp === 1) return undefined;
  const share = workload.contextTokens / cp;
  return share >= MIN_CP_TOKENS
    ? undefined
    : `cp=${cp}: ${workload.contextTokens} tokens leave ${share} a rank, fewer than ${MIN_CP_TOKENS}`;
}

/**
 * Whether the engine gives each accelerator whole layers unless told otherwise: llama.cpp does (`--split-mode layer`; its
 * `row` mode is deprecated, and published measurements on several GPUs are of layers). It cuts neither experts nor sequences.
 */
export function splitsByLayers(device: Device, workload: Workload): boolean {
  if (workload.mode === "training" || device.family === "cpu") return false;
  return (workload.engine ?? defaultEngine(device, workload.format)) === "llama.cpp";
}

/** The first rule that these sizes break; undefined when all hold. */
export function axesProblem(model: ModelSpec, workload: Workload, axes: PlanAxisSizes): string | undefined {
  return (
    tpProblem(model, workload.format, axes.tp) ??
    epProblem(model, axes.ep) ??
    ppProblem(model, axes.pp) ??
    cpProblem(workload, axes.cp)
  );
}
