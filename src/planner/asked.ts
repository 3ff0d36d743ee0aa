/** What a plan keeps of its request and of its devices, so that an export of the plan alone can say or refuse all of it. */
import type { Device } from "../machine/topology/index.ts";
import type { ModelSpec } from "./model/spec.ts";
import type { PlanDevices, PlannedRank, ShardingPlan } from "./plan.ts";
import type { Workload, WorkloadRequest } from "./search/workload.ts";

/** Fields of a request that a plan carries for its export. */
export interface Asked extends WorkloadRequest {
  readonly gpuMemoryUtilization?: number;
}

const present = <T extends object>(fields: T): Partial<T> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;

/** The part of a plan's workload that says what was asked for beyond sizes and formats. */
export function askedOf(model: ModelSpec, request: Asked, { method, contextTokens, loraTargets }: Workload) {
  const { contextLength } = model;
  const adapter =
    method?.adapter?.kind === "lora" ? { ...method.adapter, targets: loraTargets as string } : method?.adapter;
  return present({
    ...(method === undefined ? {} : { gradients: request.gradients ?? "bf16", adapter }),
    pipelineSchedule: request.pipelineSchedule,
    offload: request.offload === "none" ? undefined : request.offload,
    gpuMemoryUtilization: request.gpuMemoryUtilization,
    prefixHits: request.prefixHits,
    prefillChunkTokens: request.prefillChunkTokens,
    expertOverlap: request.expertOverlap,
    speculation: request.speculation,
    modelContextTokens: contextLength !== undefined && contextTokens > contextLength ? contextLength : undefined,
    checkpointFormat: model.weightFormat,
  }) satisfies Partial<ShardingPlan["workload"]>;
}

/** The cache as the engine that times the plan keeps it where none is asked for: llama.cpp's is f16, also beside bf16 weights. */
export function cacheOf(request: Asked, { engine, kvFormat }: ShardingPlan["workload"]): { kvFormat: string } {
  const isOwn = request.kv === undefined && engine === "llama.cpp" && kvFormat === "bf16";
  return { kvFormat: isOwn ? "f16" : kvFormat };
}

/** The devices of ranks by kind, in the order of the first rank of each. */
export function hardwareOf(ranks: readonly PlannedRank[], devices: readonly Device[]): PlanDevices[] {
  const byId = new Map(devices.map((device) => [device.id, device]));
  const kinds = new Map<string, PlanDevices>();
  for (const id of new Set(ranks.map(({ deviceId }) => deviceId))) {
    const device = byId.get(id);
    if (device === undefined) continue;
    const { family, name, arch } = device;
    const key = [family, name, arch].join("|");
    const count = (kinds.get(key)?.count ?? 0) + 1;
    kinds.set(key, { family, name, ...(arch === undefined ? {} : { arch }), count });
  }
  return [...kinds.values()];
}
