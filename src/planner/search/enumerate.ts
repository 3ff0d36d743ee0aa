/** Every legal combination of axes, and of sequences a replica where the batch is free. */
import { type BlockClass, carveBlocks, carveUnits, type DeviceKind, type UnitClass } from "../placement/blocks.ts";
import { PLAN_AXES, type PlanAxis, type PlanAxisSizes, type Rejected } from "../plan.ts";
import type { Context } from "./evaluate.ts";
import { fitsEvenly } from "./fits.ts";
import { cpProblem, epProblem, ppProblem, splitsByLayers, tpProblem } from "./legality.ts";
import { type Candidate, PLAIN } from "./schedule.ts";
import { StageModel } from "./stage.ts";

export type Constraints = Partial<Readonly<Record<PlanAxis, number>>>;

export interface SearchRequest extends Context {
  readonly kinds: readonly DeviceKind[];
  readonly constraints: Constraints;
  /** World size that is asked for exactly. */
  readonly ranks: number | undefined;
  readonly top: number;
  /** Any layout will do: stop at the first that fits. */
  readonly firstFit?: boolean;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

/** Most layouts of which a result says why they lost. */
export const MAX_REJECTED = 64;
/** Context-parallel sizes that are considered unless one is asked for. */
const CP_SIZES = [1, 2, 4, 8, 16];
/** Shorter contexts are not spread over ranks unless asked for: the ring hides nothing behind so little attention. */
const MIN_FREE_CP_CONTEXT = { inference: 32_768, training: 8192 };
/** Sequences a replica may have at once when the batch is free: TensorRT-LLM's default max_batch_size. */
const MAX_FREE_BATCH = 2048;

/** What candidates of the same axes and batch share; those of training differ in ZeRO stage, micro-batch, recomputation and chunks. */
export interface AxesGroup {
  readonly axes: PlanAxisSizes;
  readonly batchPerReplica: number;
  readonly classes: readonly BlockClass[];
}

/** Replica counts that differ in what they do to a batch: the fewest for each share, or as many as there are. */
function replicaCounts(batch: number | undefined, most: number, ep: number): number[] {
  if (batch === undefined) return most >= 1 ? [most] : [];
  const counts: number[] = [];
  for (let dp = 1, last = Number.POSITIVE_INFINITY; dp <= most; dp++) {
    const share = Math.ceil(batch / (dp * ep));
    if (share === last) continue;
    counts.push(dp);
    last = share;
    if (share === 1) break;
  }
  return counts;
}

/** Block classes without those that straddle islands, where the others are enough. */
function nearestClasses(classes: readonly BlockClass[], needed: number): readonly BlockClass[] {
  const isNear = ({ links }: BlockClass) =>
    [links.ep, links.cp].every((link) => link === undefined || link.scope === "island" || link.scope === "device");
  const near = classes.filter(isNear);
  return near.length < classes.length && near.reduce((sum, { blocks }) => sum + blocks.length, 0) >= needed
    ? near
    : classes;
}

/** Every legal combination of axes and batch. */
export class Enumeration {
  readonly groups: AxesGroup[] = [];
  readonly rejected: Rejected[] = [];
  readonly #request: SearchRequest;
  readonly #numDevices: number;

  constructor(request: SearchRequest) {
    this.#request = request;
    this.#numDevices = request.kinds.reduce((sum, kind) => sum + kind.ids.length, 0);
  }

  run(): void {
    const { model, workload, kinds, fabric, constraints, ranks } = this.#request;
    const room = kinds.reduce((sum, { ids, ranksPerDevice }) => sum + ids.length * ranksPerDevice, 0);
    if (ranks !== undefined && ranks > room) {
      this.#reject({ dp: ranks }, "topology", `needs ${ranks} devices; ${this.#numDevices} can be used`);
      return;
    }
    const most = Math.max(...kinds.map((kind) => largestDomain(kind, fabric)), 1);
    const byLayers = kinds.filter((kind) => constraints.tp === undefined && splitsByLayers(kind.device, workload));
    if (byLayers.length > 0 && most > 1) {
      const reason = "llama.cpp splits by layers unless told otherwise: --constrain tp=2 plans its row mode";
      this.#reject({ tp: 2 }, "constraint", reason);
    }
    for (const tp of sizes(constraints.tp, byLayers.length === kinds.length ? 1 : most)) {
      const problem = tpProblem(model, workload.format, tp);
      if (problem !== undefined) {
        this.#reject({ tp }, "divisibility", problem);
        continue;
      }
      const usable = tp === 1 ? kinds : kinds.filter((kind) => !byLayers.includes(kind));
      const units = usable.flatMap((kind) => carveUnits(kind, fabric, tp));
      if (units.length === 0) {
        this.#reject({ tp }, "topology", `tp=${tp}: no island or host has ${tp} devices of one kind (at most ${most})`);
        continue;
      }
      this.#withTp(tp, units);
    }
  }

  #withTp(tp: number, units: readonly UnitClass[]): void {
    const { model, workload, fabric, constraints } = this.#request;
    const numUnits = units.reduce((sum, unit) => sum + unit.units.length, 0);
    const byLayers = units.some(({ kind }) => splitsByLayers(kind.device, workload));
    const experts = model.layerKinds.some((kind) => kind.mlp.kind === "moe") && !byLayers;
    for (const ep of sizes(constraints.ep, experts ? numUnits : 1)) {
      const epReason = epProblem(model, ep);
      if (epReason !== undefined) {
        if (constraints.ep !== undefined) this.#reject({ tp, ep }, "divisibility", epReason);
        continue;
      }
      const isLong = workload.contextTokens >= MIN_FREE_CP_CONTEXT[workload.mode];
      const free = isLong && !byLayers ? CP_SIZES : [1];
      for (const cp of constraints.cp === undefined ? free : [constraints.cp]) {
        const cpReason = cpProblem(workload, cp);
        if (cpReason !== undefined) {
          if (constraints.cp !== undefined) this.#reject({ tp, ep, cp }, "divisibility", cpReason);
          continue;
        }
        const blocks = units.flatMap((unit) => carveBlocks(unit, fabric, ep, cp));
        const numBlocks = blocks.reduce((sum, cls) => sum + cls.blocks.length, 0);
        if (numBlocks > 0) this.#withBlocks({ tp, ep, cp }, blocks, numBlocks);
        else if (constraints.ep !== undefined || constraints.cp !== undefined || constraints.tp !== undefined) {
          this.#reject({ tp, ep, cp }, "topology", `needs ${tp * ep * cp} devices of one kind that reach each other`);
        }
      }
    }
  }

  #withBlocks(near: { tp: number; ep: number; cp: number }, blocks: readonly BlockClass[], numBlocks: number): void {
    const { model, workload, constraints, ranks } = this.#request;
    for (const pp of sizes(constraints.pp, Math.min(numBlocks, model.numLayers))) {
      const problem = ppProblem(model, pp);
      if (problem !== undefined) {
        this.#reject({ ...near, pp }, "divisibility", problem);
        continue;
      }
      const most = Math.floor(numBlocks / pp);
      const exact = constraints.dp ?? (ranks === undefined ? undefined : ranks / (near.tp * near.ep * near.cp * pp));
      const counts =
        exact === undefined
          ? replicaCounts(workload.batch, most, near.ep)
          : Number.isInteger(exact) && exact <= most
            ? [exact]
            : [];
      if (counts.length === 0 && constraints.dp !== undefined && most < constraints.dp) {
        const need = pp * near.tp * near.ep * near.cp * constraints.dp;
        this.#reject(
          { ...near, pp, dp: constraints.dp },
          "topology",
          `needs ${need} devices; ${this.#numDevices} can be used`,
        );
      }
      for (const dp of counts) this.#withAxes({ dp, pp, ...near }, nearestClasses(blocks, dp * pp));
    }
  }

  #withAxes(axes: PlanAxisSizes, blocks: readonly BlockClass[]): void {
    const { workload, ranks } = this.#request;
    const world = PLAN_AXES.reduce((product, axis) => product * axes[axis], 1);
    if (ranks !== undefined && world !== ranks) return;
    const batches =
      workload.batch === undefined
        ? this.#freeBatches(axes, blocks)
        : [Math.ceil(workload.batch / (axes.dp * axes.ep))];
    for (const batchPerReplica of batches) this.groups.push({ axes, batchPerReplica, classes: blocks });
  }

  /**
   * Sequences of a replica when the batch is free: as many as memory holds, by bisection, and powers of two below, since
   * more sequences are not always more tokens a second.
   */
  #freeBatches(axes: PlanAxisSizes, blocks: readonly BlockClass[]): number[] {
    const { model, workload, cache } = this.#request;
    const fits = (batchPerReplica: number): boolean => {
      const candidate: Candidate = { axes, batchPerReplica, ...PLAIN };
      return blocks.some((blockClass) => {
        const stage = new StageModel(cache, model, workload, candidate, blockClass, undefined);
        return fitsEvenly(stage);
      });
    };
    const sizes = new Set<number>();
    if (blocks.length === 1) {
      let [least, beyond] = [0, MAX_FREE_BATCH + 1];
      if (fits(MAX_FREE_BATCH)) least = MAX_FREE_BATCH;
      while (beyond - least > 1 && least < MAX_FREE_BATCH) {
        const middle = Math.floor((least + beyond) / 2);
        if (fits(middle)) least = middle;
        else beyond = middle;
      }
      // A pipeline decodes in as many microbatches as it has stages: alike, they waste nothing.
      const whole = least > axes.pp ? least - (least % axes.pp) : least;
      if (whole > 0) sizes.add(whole);
      for (let size = 1; size < whole; size *= 2) sizes.add(size);
      if (sizes.size === 0) sizes.add(1);
      return [...sizes];
    }
    for (let size = 1; size <= MAX_FREE_BATCH; size *= 2) sizes.add(size);
    return [...sizes];
  }

  #reject(axes: Partial<PlanAxisSizes>, kind: Rejected["kind"], reason: string): void {
    if (this.rejected.length < MAX_REJECTED)
      this.rejected.push({ axes: { dp: 1, pp: 1, ep: 1, cp: 1, tp: 1, ...axes }, kind, reason });
  }
}

/** Sizes to consider: the one that is asked for, or 1 to `most`. */
function sizes(wanted: number | undefined, most: number): number[] {
  return wanted === undefined ? Array.from({ length: Math.max(1, most) }, (_, index) => index + 1) : [wanted];
}

/** The most devices of a kind that one island or one host holds. */
function largestDomain(kind: DeviceKind, fabric: Context["fabric"]): number {
  const count = new Map<string, number>();
  for (const id of kind.ids) {
    const { host, island } = fabric.place(id);
    for (const domain of [`host ${host}`, `island ${island}`]) count.set(domain, (count.get(domain) ?? 0) + 1);
  }
  return Math.max(...count.values(), 1);
}
