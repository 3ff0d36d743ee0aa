/**
 * Searches all layouts: tp x pp x ep x cp x dp (and ZeRO stage, and batch where it is free). Every legal combination is
 * a candidate; each gets a lower bound on its score that no placement, split or link can beat; candidates are judged
 * from the best bound up, and the search ends when the bound passes the best found. A test compares the result with
 * brute force.
 */
import { sendUs } from "../cost/collectives.ts";
import { gib } from "../gib.ts";
import { type BlockClass, carveBlocks, carveUnits, type DeviceKind, type UnitClass } from "../placement/blocks.ts";
import { axesKey, PLAN_AXES, type PlanAxis, type PlanAxisSizes, type Rejected } from "../plan.ts";
import { batchUs, type Context, type Evaluated, evaluate, replicaTimes, scoreOf } from "./evaluate.ts";
import { Infeasibles } from "./infeasibles.ts";
import { cpProblem, epProblem, ppProblem, splitsByLayers, tpProblem } from "./legality.ts";
import { type NearLayout, nearLayouts, remember } from "./near-layouts.ts";
import type { Candidate } from "./schedule.ts";
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

export interface SearchResult {
  /** Best first, distinct in their axes. */
  readonly best: readonly Evaluated[];
  /** Other axes whose score is near the best one's, best first. */
  readonly near: readonly NearLayout[];
  readonly rejected: readonly Rejected[];
  readonly numCandidates: number;
  readonly numJudged: number;
}

/** Context-parallel sizes that are considered unless one is asked for. */
const CP_SIZES = [1, 2, 4, 8, 16];
/** Shorter contexts are not spread over ranks unless asked for: the ring hides nothing behind so little attention. */
const MIN_FREE_CP_CONTEXT = { inference: 32_768, training: 8192 };
/** Sequences a replica may have at once when the batch is free: TensorRT-LLM's default max_batch_size. */
const MAX_FREE_BATCH = 2048;
const MAX_REJECTED = 64;

interface Bounded {
  readonly candidate: Candidate;
  readonly classes: readonly BlockClass[];
  readonly bound: number;
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

/** Micro-batches that are tried when none is asked for. */
const MICRO_BATCHES = [1, 2, 4, 8, 16];

/** Layers more than an even share that a stage must hold before slower variants are not looked at. */
const ROOMY_LAYERS = 2;

/** Whether some split of the layers fits: every stage in turn takes as many as it holds. */
function fitsEvenly(stage: StageModel, numLayers: number, pp: number): boolean {
  const available = stage.blockClass.kind.availableBytes;
  let first = 0;
  for (let at = 0; at < pp; at++) {
    if (at === pp - 1) return stage.memoryBytes(first, numLayers, at) <= available;
    const most = numLayers - (pp - at - 1);
    let [low, high] = [first, most + 1];
    // The most layers that fit: memory grows with them.
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (stage.memoryBytes(first, middle, at) <= available) low = middle;
      else high = middle;
    }
    if (low === first) return false;
    first = low;
  }
  return true;
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

class Enumeration {
  readonly bounded: Bounded[] = [];
  readonly rejected: Rejected[] = [];
  readonly #request: SearchRequest;
  readonly #numDevices: number;
  readonly #leastHopUs: number;

  constructor(request: SearchRequest) {
    this.#request = request;
    const shared = request.kinds.some((kind) => kind.ranksPerDevice > 1);
    this.#leastHopUs = sendUs(0, request.fabric.nearest(shared));
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
    const { model, cache } = this.#request;
    const roomy = new Map<string, number>();
    for (const batchPerReplica of batches) {
      for (const variant of this.#variants(axes, batchPerReplica)) {
        const candidate: Candidate = { axes, batchPerReplica, ...variant };
        if (this.#recomputesInVain(candidate, roomy)) continue;
        const stages = blocks.map((cls) => new StageModel(cache, model, workload, candidate, cls, undefined));
        this.#noteRoom(stages, roomy);
        this.bounded.push({ candidate, classes: blocks, bound: this.#bound(candidate, stages) });
      }
    }
  }

  /**
   * Whether less recomputation fits with room to spare: then more of it only costs time. `roomy` holds the least that
   * does, by ZeRO stage and micro-batch; variants come with the least first.
   */
  #recomputesInVain(candidate: Candidate, roomy: ReadonlyMap<string, number>): boolean {
    if (roomy.size === 0) return false;
    const least = roomy.get(roomName(candidate));
    return least !== undefined && this.#request.workload.checkpointing.indexOf(candidate.checkpointing) > least;
  }

  /** Notes in `roomy` a candidate whose stages all have room for more layers than their even share. */
  #noteRoom([stage, ...others]: readonly StageModel[], roomy: Map<string, number>): void {
    const { model, workload, objective } = this.#request;
    if (workload.mode !== "training" || workload.checkpointing.length < 2) return;
    if (objective === "memory" || stage === undefined || others.length > 0) return;
    const { pp } = stage.candidate.axes;
    const available = stage.blockClass.kind.availableBytes;
    const share = Math.min(model.numLayers, Math.ceil(model.numLayers / pp) + ROOMY_LAYERS);
    const fits = (index: number) => {
      const first = index === pp - 1 ? model.numLayers - share : Math.min(index * share, model.numLayers - share);
      return stage.memoryBytes(first, first + share, index) <= available;
    };
    if (!fits(0) || !fits(pp - 1)) return;
    // Where layers are alike, those between hold less than the first, which has the embedding and the most in flight.
    if (model.layerKinds.length > 1) for (let index = 1; index < pp - 1; index++) if (!fits(index)) return;
    roomy.set(roomName(stage.candidate), workload.checkpointing.indexOf(stage.candidate.checkpointing));
  }

  /** ZeRO stages, micro-batches and what to keep for the backward pass; one variant where nothing is trained. */
  #variants(axes: PlanAxisSizes, batch: number): Pick<Candidate, "zeroStage" | "microBatch" | "checkpointing">[] {
    const { workload } = this.#request;
    if (workload.mode !== "training") return [{ zeroStage: 0, microBatch: 1, checkpointing: "none" }];
    // Stage 1 takes as long as stage 2 and more memory: it is for those who ask for it.
    const stages = workload.zeroStages.filter(
      (stage) => stage === 0 || workload.zeroStages.length === 1 || (stage > 1 && axes.dp * axes.ep * axes.cp > 1),
    );
    const sizes =
      workload.microBatch === undefined
        ? MICRO_BATCHES.filter((size) => size === 1 || (batch % size === 0 && batch / size >= axes.pp))
        : [Math.min(workload.microBatch, batch)];
    return stages.flatMap((zeroStage) =>
      sizes.flatMap((microBatch) =>
        workload.checkpointing.map((checkpointing) => ({ zeroStage, microBatch, checkpointing })),
      ),
    );
  }

  /**
   * Sequences of a replica when the batch is free: as many as memory holds, by bisection, and powers of two below, since
   * more sequences are not always more tokens a second.
   */
  #freeBatches(axes: PlanAxisSizes, blocks: readonly BlockClass[]): number[] {
    const { model, workload, cache } = this.#request;
    const fits = (batchPerReplica: number): boolean => {
      const candidate: Candidate = { axes, batchPerReplica, zeroStage: 0, microBatch: 1, checkpointing: "none" };
      return blocks.some((blockClass) => {
        const stage = new StageModel(cache, model, workload, candidate, blockClass, undefined);
        return fitsEvenly(stage, model.numLayers, axes.pp);
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

  /** What no placement or split can beat: the fastest class throughout, no hops, perfect balance. */
  #bound(candidate: Candidate, stages: readonly StageModel[]): number {
    const { model, workload, objective } = this.#request;
    const { pp } = candidate.axes;
    let a = Number.POSITIVE_INFINITY;
    let b = Number.POSITIVE_INFINITY;
    let memory = Number.POSITIVE_INFINITY;
    let schedule: StageModel["schedule"] | undefined;
    for (const stage of stages) {
      const whole = stage.time(0, model.numLayers, true, true);
      a = Math.min(a, whole.a);
      b = Math.min(b, whole.b);
      schedule = stage.schedule;
      if (objective === "memory") {
        memory = Math.min(memory, stage.leastMemoryBytes());
      }
    }
    if (schedule === undefined) return Number.POSITIVE_INFINITY;
    // What follows the last microbatch of a training step falls on the stages in parallel.
    const training = workload.mode === "training";
    // A split chooses the class per layer, so per-class sums are only a bound when there is one class.
    const mixed = stages.length > 1;
    const least = mixed ? this.#leastPerLayer(stages) : { a, b };
    const hops = (pp - 1) * this.#leastHopUs;
    const totals = {
      sumA: least.a + (training ? 2 : workload.outputTokens > 0 ? 1 : 0) * hops,
      maxA: least.a / pp,
      sumB: training ? least.b / pp : least.b + hops,
      maxB: least.b / pp,
      maxMemory: memory,
    };
    const us = batchUs(workload, replicaTimes(workload, schedule, totals));
    // A hair below, so that rounding never makes a bound exceed what it bounds.
    return scoreOf(workload, objective, candidate, us, memory) * (1 - 1e-9);
  }

  #leastPerLayer(stages: readonly StageModel[]): { a: number; b: number } {
    const { model } = this.#request;
    let a = 0;
    let b = 0;
    for (let layer = 0; layer < model.numLayers; layer++) {
      const times = stages.map((stage) => stage.time(layer, layer + 1, false, false));
      a += Math.min(...times.map((time) => time.a));
      b += Math.min(...times.map((time) => time.b));
    }
    return { a, b };
  }

  #reject(axes: Partial<PlanAxisSizes>, kind: Rejected["kind"], reason: string): void {
    if (this.rejected.length < MAX_REJECTED)
      this.rejected.push({ axes: { dp: 1, pp: 1, ep: 1, cp: 1, tp: 1, ...axes }, kind, reason });
  }
}

const roomName = ({ zeroStage, microBatch }: Candidate) => `${zeroStage} ${microBatch}`;

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

/** Runs the search. */
export function search(request: SearchRequest): SearchResult {
  const { workload, objective, top, onProgress } = request;
  const enumeration = new Enumeration(request);
  enumeration.run();
  const candidates = enumeration.bounded.sort((x, y) => x.bound - y.bound);
  const rejected: Rejected[] = [...enumeration.rejected];
  const best: Evaluated[] = [];
  const scores = new Map<string, Evaluated>();
  const tooLarge = new Infeasibles();
  let numJudged = 0;
  let judgedAll = candidates.length;
  for (const [index, { candidate, classes, bound }] of candidates.entries()) {
    onProgress?.(index, candidates.length);
    if (request.firstFit === true && best.length > 0) break;
    const worst = best.length < top ? Number.POSITIVE_INFINITY : (best.at(-1)?.score ?? Number.POSITIVE_INFINITY);
    if (bound > worst) {
      rejectSlower(rejected, candidates.slice(index), best[0]?.score ?? worst, objective);
      judgedAll = index;
      break;
    }
    const judged = evaluate({ ...request, limit: worst }, candidate, classes);
    numJudged++;
    if ("reason" in judged) {
      if (workload.batch !== undefined || candidate.batchPerReplica === 1) tooLarge.note(candidate.axes, judged, bound);
      continue;
    }
    remember(scores, judged);
    keep(best, judged, top, (loser) =>
      push(rejected, {
        axes: loser.candidate.axes,
        kind: "slower",
        reason: `${scoreText(objective, loser.score)}, against ${scoreText(objective, best[0]?.score ?? 0)}`,
        score: loser.score,
      }),
    );
  }
  onProgress?.(candidates.length, candidates.length);
  rejected.push(...tooLarge.rejected(MAX_REJECTED - rejected.length));
  const winner = best[0]?.candidate;
  const others = rejected.filter(
    (item) => winner === undefined || axesKey(item.axes) !== axesKey(winner.axes) || item.kind !== "slower",
  );
  const numDevices = request.kinds.reduce((sum, kind) => sum + kind.ids.length, 0);
  const next = request.firstFit === true ? [] : candidates.slice(judgedAll);
  const near = nearLayouts(request, { best, judged: scores, next, numDevices });
  return { best, near, rejected: others, numCandidates: candidates.length, numJudged };
}

function push(rejected: Rejected[], item: Rejected): void {
  if (rejected.length < MAX_REJECTED) rejected.push(item);
}

function rejectSlower(
  rejected: Rejected[],
  rest: readonly Bounded[],
  best: number,
  objective: Context["objective"],
): void {
  const seen = new Set<string>();
  for (const { candidate, bound } of rest) {
    if (seen.size >= 8) return;
    const name = axesKey(candidate.axes);
    if (seen.has(name)) continue;
    seen.add(name);
    push(rejected, {
      axes: candidate.axes,
      kind: "slower",
      reason: `at least ${scoreText(objective, bound)} even with perfect balance and free links, against ${scoreText(objective, best)}`,
      score: bound,
    });
  }
}

/** Inserts into the sorted best; equal scores prefer fewer devices, then less memory. One entry for the same axes. */
function keep(best: Evaluated[], item: Evaluated, top: number, lost: (loser: Evaluated) => void): void {
  const same = best.findIndex((known) => axesKey(known.candidate.axes) === axesKey(item.candidate.axes));
  if (same >= 0) {
    const known = best[same];
    if (known !== undefined && !better(item, known)) return;
    best.splice(same, 1);
  }
  const at = best.findIndex((known) => better(item, known));
  best.splice(at < 0 ? best.length : at, 0, item);
  while (best.length > top) {
    const loser = best.pop();
    if (loser !== undefined) lost(loser);
  }
}

function better(x: Evaluated, y: Evaluated): boolean {
  const scale = Math.max(Math.abs(x.score), Math.abs(y.score)) * 1e-9;
  if (Math.abs(x.score - y.score) > scale) return x.score < y.score;
  const world = (item: Evaluated) => PLAN_AXES.reduce((product, axis) => product * item.candidate.axes[axis], 1);
  if (world(x) !== world(y)) return world(x) < world(y);
  const peak = (item: Evaluated) => Math.max(...item.replicas.map((replica) => replica.split.maxMemory));
  return peak(x) < peak(y);
}

/** A score in words. */
function scoreText(objective: Context["objective"], score: number): string {
  if (objective === "memory") return `${gib(score)} on the fullest rank`;
  if (objective === "latency") return `${Number(score.toPrecision(4))} ms a request`;
  return `${Number((1e6 / score).toPrecision(4))} tokens/s`;
}
