/** What training keeps in the memory of its hosts: offloaded states, gradients and weights, and a paged optimizer's states. */
import { gib } from "../gib.ts";
import type { Fabric } from "../placement/fabric.ts";
import type { Candidate } from "./schedule.ts";
import type { Split } from "./split.ts";
import type { StageModel } from "./stage.ts";
import type { Workload } from "./workload.ts";

/** Replicas on devices: what of a judged candidate counts here. */
interface Placed {
  readonly candidate: Candidate;
  readonly replicas: readonly {
    readonly classes: readonly number[];
    readonly blocks: readonly (readonly string[])[];
    readonly split: Split;
  }[];
  readonly stageModels: readonly StageModel[];
}

/** Why a candidate cannot be, though its devices hold it. */
interface HostProblem {
  readonly kind: "memory" | "topology";
  readonly reason: () => string;
  readonly neededBytes?: number;
  readonly fitsDevices?: boolean;
}

/** What a host's memory holds for its ranks, and what it has where the inventory says so. */
export interface HostUse {
  readonly host: number;
  readonly bytes: number;
  readonly availableBytes: number | undefined;
  /** Its accelerators have no other memory. */
  readonly isShared: boolean;
}

/** Host memory that training keeps states, gradients or weights in, fullest first; empty where it keeps none. */
export function hostUse({ replicas, stageModels, candidate }: Placed, fabric: Fabric): readonly HostUse[] {
  const bytesOf = new Map<number, { bytes: number; isShared: boolean }>();
  for (const { blocks, classes, split } of replicas) {
    for (let stage = 0; stage < candidate.axes.pp; stage++) {
      const stageModel = stageModels[classes[stage] ?? 0];
      const bytes = stageModel?.hostBytes(split.bounds[stage] ?? 0, split.bounds[stage + 1] ?? 0, stage) ?? 0;
      if (stageModel === undefined || bytes === 0) continue;
      const isShared = stageModel.blockClass.kind.device.unifiedMemory === true;
      for (const id of blocks[stage] ?? []) {
        const { host } = fabric.place(id);
        const known = bytesOf.get(host);
        bytesOf.set(host, { bytes: (known?.bytes ?? 0) + bytes, isShared: isShared || known?.isShared === true });
      }
    }
  }
  return [...bytesOf]
    .map(([host, use]) => ({ host, ...use, availableBytes: fabric.hostMemoryBytes(host) }))
    .sort((a, b) => b.bytes - a.bytes);
}

/** Why the hosts cannot hold what is offloaded to them; undefined when they can. */
export function hostProblem(uses: readonly HostUse[], workload: Workload): HostProblem | undefined {
  const what = workload.offload === "none" ? `states of ${workload.optimizer.name}` : "what is offloaded";
  for (const { host, bytes, availableBytes, isShared } of uses) {
    if (isShared) {
      const reason = () => `${what} cannot wait in the memory of host ${host}: its accelerators have no other`;
      return { kind: "topology", reason };
    }
    if (availableBytes === undefined || bytes <= availableBytes) continue;
    const reason = () => `host ${host} needs ${gib(bytes)} of host memory for ${what}; it has ${gib(availableBytes)}`;
    return { kind: "memory", reason, neededBytes: bytes, fitsDevices: true };
  }
  return undefined;
}
