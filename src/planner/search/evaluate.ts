/** Judges one candidate: picks blocks for every replica, splits the layers, and scores the result. */
import { sendUs } from "../cost/collectives.ts";
import { gib } from "../gib.ts";
import type { ModelSpec } from "../model/spec.ts";
import type { BlockClass } from "../placement/blocks.ts";
import type { Fabric, GroupLink } from "../placement/fabric.ts";
import { type Block, nextBlocks, pickBlocks } from "../placement/pick.ts";
import type { Objective } from "../plan.ts";
import { allowsLayers, evenStages } from "./chunks.ts";
import { fitsEvenly } from "./fits.ts";
import { hostProblem, hostUse } from "./host-memory.ts";
import type { Candidate, Schedule } from "./schedule.ts";
import { bestSplit, type Split, type StageChoice, type Totals } from "./split.ts";
import { StageModel, type StageTime } from "./stage.ts";
import type { TableCache } from "./stage-tables.ts";
import type { Workload } from "./workload.ts";

/** Times of a replica from its split's totals, in microseconds. */
export interface ReplicaTimes {
  /** Inference: between two tokens of a sequence. Training: the pipelined part of a step. */
  readonly stepUs: number;
  /** Inference: the whole batch's prefill. Training: what follows the last microbatch. */
  readonly fillUs: number;
}

/** Pipelining: microbatches follow each other, the slowest stage sets the pace. */
export function replicaTimes(workload: Workload, schedule: Schedule, totals: Totals): ReplicaTimes {
  if (workload.mode === "training") {
    const idle = schedule.idleShare * (totals.sumA - totals.maxA);
    return { stepUs: schedule.trainBatches * totals.maxA + idle, fillUs: totals.maxB };
  }
  return {
    stepUs: Math.max(totals.sumA, schedule.decodeBatches * totals.maxA),
    fillUs: totals.sumB + (schedule.prefillPasses - 1) * totals.maxB,
  };
}

/** Microseconds from the first prompt token to the last output token of a replica's batch; of a training step. */
export function batchUs(workload: Workload, times: ReplicaTimes): number {
  return workload.mode === "training"
    ? times.stepUs + times.fillUs
    : times.fillUs + (workload.outputTokens * times.stepUs) / workload.tokensPerStep;
}

/** Tokens that one sequence of the batch counts for in throughput: generated ones, or read ones where none are. */
function countedTokens(workload: Workload): number {
  return workload.outputTokens > 0 ? workload.outputTokens : workload.contextTokens;
}

/** Sequences that a candidate serves: the batch that was asked for, or what all replicas take together. */
export function totalBatch(workload: Workload, candidate: Candidate): number {
  return workload.batch ?? candidate.batchPerReplica * candidate.axes.dp * candidate.axes.ep;
}

/** The objective; lower is better. Latency: ms a request (a step, in training). Throughput: us a token. Memory: bytes. */
export function scoreOf(
  workload: Workload,
  objective: Objective,
  candidate: Candidate,
  slowestUs: number,
  maxMemory: number,
): number {
  if (objective === "memory") return maxMemory;
  if (objective === "latency") return slowestUs / 1e3;
  return slowestUs / (totalBatch(workload, candidate) * countedTokens(workload));
}

/** A replica: which class of block each stage runs on, and the split of the layers. */
export interface Replica {
  readonly classes: readonly number[];
  readonly blocks: readonly (readonly string[])[];
  readonly hops: readonly (GroupLink | undefined)[];
  readonly split: Split;
  readonly times: ReplicaTimes;
}

export interface Evaluated {
  readonly candidate: Candidate;
  readonly score: number;
  readonly replicas: readonly Replica[];
  readonly stageModels: readonly StageModel[];
  readonly schedule: Schedule;
}

/** Why a candidate cannot be. */
export interface Infeasible {
  readonly kind: "memory" | "topology" | "slower";
  readonly reason: () => string;
  /** Of the fullest rank, where memory is what is missing. */
  readonly neededBytes?: number;
  /** Only the hosts lack memory. */
  readonly fitsDevices?: boolean;
}

/** Up to this many orders of block classes along a pipeline are all tried; beyond, classes stay together. */
const MAX_ORDERS = 256;

/** Every order of `length` stages over classes of which `counts` blocks are there. */
function classOrders(counts: readonly number[], length: number): readonly (readonly number[])[] {
  const present = counts.flatMap((count, index) => (count > 0 ? [index] : []));
  const [only] = present;
  if (only === undefined) return [];
  if (present.length === 1) return (counts[only] ?? 0) >= length ? [Array.from({ length }, () => only)] : [];
  if (present.length ** length <= MAX_ORDERS) {
    const orders: number[][] = [];
    const left = [...counts];
    const extend = (order: readonly number[]): void => {
      if (order.length === length) {
        orders.push([...order]);
        return;
      }
      for (const index of present) {
        if ((left[index] ?? 0) === 0) continue;
        left[index] = (left[index] ?? 0) - 1;
        extend([...order, index]);
        left[index] = (left[index] ?? 0) + 1;
      }
    };
    extend([]);
    return orders;
  }
  // Classes in any order, each in one run: as much of the first as there is, then of the next.
  const orders = new Map<string, number[]>();
  const permute = (rest: readonly number[], done: readonly number[]): void => {
    for (const index of rest) {
      const sequence = [...done, index];
      const order = sequence.flatMap((cls) => Array.from({ length: counts[cls] ?? 0 }, () => cls)).slice(0, length);
      if (order.length === length) orders.set(order.join(), order);
      if (sequence.length < 4)
        permute(
          rest.filter((other) => other !== index),
          sequence,
        );
    }
  };
  permute(present, []);
  return [...orders.values()];
}

export interface Context {
  readonly model: ModelSpec;
  readonly workload: Workload;
  readonly objective: Objective;
  readonly fabric: Fabric;
  readonly cache: TableCache;
  /** Scores above it are of no interest. */
  readonly limit?: number;
}

/** Splits the model over one pipeline of blocks; says why when there is no split that fits and is fast enough. */
function splitReplica(
  context: Context,
  models: readonly StageModel[],
  classes: readonly number[],
  hops: readonly (GroupLink | undefined)[],
  candidate: Candidate,
): Split | "memory" | "slower" {
  const { model, workload, objective } = context;
  const numStages = candidate.axes.pp;
  const { chunks } = candidate;
  const size = model.numLayers + 1;
  // Times depend on the class, on being first or last and on how many layers of which kind; memory on the stage too
  // (microbatches in flight).
  const times = new Map<number, StageTime>();
  const [firstKind] = context.cache.counts;
  const isFewKinds = model.layerKinds.length <= 2;
  const timeOf = (stage: number, stageModel: StageModel, first: number, end: number): StageTime => {
    const [isFirst, isLast] = [stage === 0, stage === numStages - 1];
    const role = (classes[stage] ?? 0) * 4 + (isFirst ? 1 : 0) + (isLast ? 2 : 0);
    const ofFirstKind = (firstKind?.[end] ?? 0) - (firstKind?.[first] ?? 0);
    const at = isFewKinds ? (role * size + ofFirstKind) * size + (end - first) : (role * size + first) * size + end;
    const known = times.get(at);
    if (known !== undefined) return known;
    const time = stageModel.time(first, end, isFirst, isLast);
    times.set(at, time);
    return time;
  };
  const hopOf = hops.map((hop, stage) => {
    const stageModel = models[classes[stage] ?? 0];
    return (stageModel === undefined ? undefined : hopTimes(stageModel, hop)) ?? { a: 0, b: 0 };
  });
  const memoryOf = (stage: number, first: number, end: number): number => {
    const stageModel = models[classes[stage] ?? 0];
    if (stageModel === undefined) return Number.POSITIVE_INFINITY;
    const bytes = stageModel.memoryBytes(first, end, stage);
    return bytes > stageModel.blockClass.kind.availableBytes ? Number.POSITIVE_INFINITY : bytes;
  };
  const cost = (stage: number, first: number, end: number): StageChoice | undefined => {
    const stageModel = models[classes[stage] ?? 0];
    const memoryBytes = memoryOf(stage, first, end);
    if (stageModel === undefined || memoryBytes === Number.POSITIVE_INFINITY) return undefined;
    const time = timeOf(stage, stageModel, first, end);
    const hop = hopOf[stage];
    return { a: time.a + (hop?.a ?? 0), b: time.b + (hop?.b ?? 0), memoryBytes };
  };
  const schedule = models[classes[0] ?? 0]?.schedule;
  if (schedule === undefined) return "memory";
  const split = bestSplit(
    model.numLayers,
    numStages,
    cost,
    (totals) =>
      scoreOf(
        workload,
        objective,
        candidate,
        batchUs(workload, replicaTimes(workload, schedule, totals)),
        totals.maxMemory,
      ),
    {
      withMemory: objective === "memory",
      limit: context.limit ?? Number.POSITIVE_INFINITY,
      even: evenStages(model.numLayers, numStages, chunks),
      allows: (stage, numLayers) => chunks === 1 || allowsLayers(chunks, stage, numStages, numLayers),
    },
  );
  if (split !== undefined) return split;
  return fitsSomehow(model.numLayers, numStages, memoryOf) ? "slower" : "memory";
}

/** Whether any split fits: giving each stage in turn as much as it holds leaves the least to the rest. */
function fitsSomehow(
  numLayers: number,
  numStages: number,
  memoryOf: (stage: number, first: number, end: number) => number,
): boolean {
  let first = 0;
  for (let stage = 0; stage < numStages; stage++) {
    const most = numLayers - (numStages - stage - 1);
    let end = stage === numStages - 1 ? numLayers : first + 1;
    if (memoryOf(stage, first, end) === Number.POSITIVE_INFINITY) return false;
    while (end < most && memoryOf(stage, first, end + 1) !== Number.POSITIVE_INFINITY) end++;
    first = end;
  }
  return first === numLayers;
}

/** Sending hidden states to the next stage; forward and back in training. */
export function hopTimes(stage: StageModel, link: GroupLink | undefined): { a: number; b: number } | undefined {
  if (link === undefined) return undefined;
  const { model, workload, schedule, candidate } = stage;
  const bytes = (tokens: number) => (tokens * model.hiddenSize * workload.activationBytes) / candidate.axes.cp;
  if (workload.mode === "training")
    return {
      a: 2 * sendUs(bytes(workload.contextTokens * candidate.microBatch), link),
      b: 0,
    };
  const decode = schedule.decodeSequences * model.hiddenSize * workload.activationBytes;
  return { a: workload.outputTokens > 0 ? sendUs(decode, link) : 0, b: sendUs(bytes(schedule.prefillTokens), link) };
}

const signature = (hops: readonly (GroupLink | undefined)[]) =>
  hops.map((hop) => (hop === undefined ? "-" : `${hop.scope}${hop.effectiveGBps.toPrecision(3)}`)).join();

/** Most pipelines that are tried, over all combinations of replicas, when devices differ. */
const MAX_COMBINATIONS = 2000;

/**
 * Judges a candidate on the given block classes. In training, replicas exchange gradients and stages hand activations
 * on: both ways round are tried, a pipeline's stages next to each other, and a stage's replicas next to each other, so
 * that the axis that talks more gets the faster links.
 */
export function evaluate(
  context: Context,
  candidate: Candidate,
  classes: readonly BlockClass[],
): Evaluated | Infeasible {
  const { pp, dp } = candidate.axes;
  const [only] = classes;
  if (classes.length === 1 && only !== undefined && only.blocks.length >= pp * dp) {
    const stage = new StageModel(context.cache, context.model, context.workload, candidate, only, undefined);
    if (!fitsEvenly(stage)) return tooFull([stage], candidate);
  }
  const near = evaluateArranged(context, candidate, classes, "replicas");
  if (context.workload.mode !== "training" || pp === 1 || dp === 1 || only === undefined || classes.length > 1)
    return near;
  const limit = Math.min(
    context.limit ?? Number.POSITIVE_INFINITY,
    "reason" in near ? Number.POSITIVE_INFINITY : near.score,
  );
  const other = evaluateArranged({ ...context, limit }, candidate, [replicasTogether(only, pp, dp)], "stages");
  if ("reason" in other) return near;
  return "reason" in near || other.score < near.score ? other : near;
}

/** Puts the same stage of all replicas next to each other: block s * dp + r serves stage s of replica r. */
function replicasTogether(blockClass: BlockClass, pp: number, dp: number): BlockClass {
  const blocks = Array.from({ length: pp * dp }, (_, at) => {
    const [replica, stage] = [Math.floor(at / pp), at % pp];
    return blockClass.blocks[stage * dp + replica] ?? [];
  });
  return { ...blockClass, blocks };
}

/** One device of each rank that exchanges gradients with a rank of the first stage; of all stages where kinds differ. */
function peersOf(classes: readonly BlockClass[], candidate: Candidate): readonly string[] {
  const { pp, dp, cp, tp } = candidate.axes;
  const [only] = classes;
  const blocks =
    classes.length === 1 && only !== undefined
      ? Array.from({ length: dp }, (_, replica) => only.blocks[replica * pp] ?? [])
      : classes.flatMap((blockClass) => blockClass.blocks);
  return blocks.flatMap((block) => block.filter((_, at) => at % (cp * tp) === 0));
}

/**
 * Judges a candidate on the given block classes: every order of classes along the pipeline, every combination of such
 * pipelines over the replicas (within bounds), the exact split for each. Better orders win by the objective.
 */
function evaluateArranged(
  context: Context,
  candidate: Candidate,
  classes: readonly BlockClass[],
  inRows: "replicas" | "stages",
): Evaluated | Infeasible {
  const { model, workload, objective, fabric, cache } = context;
  const { pp, dp, ep } = candidate.axes;
  const counts = classes.map((blockClass) => blockClass.blocks.length);
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total < pp * dp) {
    return {
      kind: "topology",
      reason: () =>
        `needs ${pp * dp} groups of ${candidate.axes.tp * candidate.axes.cp * ep} near devices; there are ${total}`,
    };
  }
  const exchanges = dp * ep > 1 && workload.mode === "training";
  const [first] = classes;
  const { cp, tp } = candidate.axes;
  const ownGroup = () => fabric.group(peersOf(classes, candidate));
  const isOne = classes.length === 1 && first !== undefined;
  const name = `${inRows} ${[dp, pp, ep, cp, tp].join()}`;
  const dpGroup = !exchanges ? undefined : isOne ? cache.groupLink(first.links, name, ownGroup) : ownGroup();
  if (exchanges && dpGroup === undefined) {
    return { kind: "topology", reason: () => "no network joins the hosts of its replicas" };
  }
  const models = classes.map((blockClass) => new StageModel(cache, model, workload, candidate, blockClass, dpGroup));
  const schedule = models[0]?.schedule;
  if (schedule === undefined) return { kind: "topology", reason: () => "there are no devices" };
  const mostMemory = Math.max(...classes.map((blockClass) => blockClass.kind.availableBytes));
  if (models.every((stage) => stage.leastMemoryBytes() > mostMemory)) {
    return tooFull(models, candidate);
  }
  const orders = classOrders(counts, pp);
  // What a hop adds where its stage does not set the pace.
  const [stage] = models;
  const hopUs = (hop: GroupLink | undefined): number => {
    const { a, b } = (stage === undefined ? undefined : hopTimes(stage, hop)) ?? { a: 0, b: 0 };
    return batchUs(workload, replicaTimes(workload, schedule, { sumA: a, maxA: 0, sumB: b, maxB: 0, maxMemory: 0 }));
  };
  const splits = new Map<string, Split | "memory" | "slower">();
  let unreachable = false;
  let slower = false;
  const judge = (order: readonly number[], taken: Set<Block>): Replica | undefined => {
    // Gradients are exchanged between the blocks in their order, so it stands.
    const picked = exchanges
      ? nextBlocks(order, classes, taken, fabric)
      : pickBlocks(order, classes, taken, fabric, hopUs);
    if (picked === undefined) {
      unreachable = true;
      return undefined;
    }
    const { blocks, hops } = picked;
    for (const block of blocks) taken.add(block);
    const key = `${order.join()} ${signature(hops)}`;
    if (!splits.has(key)) splits.set(key, splitReplica(context, models, order, hops, candidate));
    const split = splits.get(key);
    if (split === "slower") slower = true;
    if (split === undefined || split === "slower" || split === "memory") return undefined;
    return { classes: order, blocks, hops, split, times: replicaTimes(workload, schedule, split) };
  };
  const chosen = chooseReplicas(orders, counts, dp, judge, (replicas) => replicasScore(context, candidate, replicas));
  if (chosen === undefined) {
    if (unreachable) return { kind: "topology", reason: () => "no network joins the hosts of its stages" };
    if (slower) return { kind: "slower", reason: () => "no split of its layers is as fast" };
    return tooFull(models, candidate);
  }
  const evaluated: Evaluated = {
    candidate,
    score: replicasScore(context, candidate, chosen),
    replicas: chosen,
    stageModels: models,
    schedule,
  };
  return hostProblem(hostUse(evaluated, fabric), workload) ?? evaluated;

  function replicasScore(ctx: Context, of: Candidate, replicas: readonly Replica[]): number {
    const slowest = Math.max(...replicas.map((replica) => batchUs(ctx.workload, replica.times)));
    const fullest = Math.max(...replicas.map((replica) => replica.split.maxMemory));
    return scoreOf(ctx.workload, objective, of, slowest, fullest);
  }
}

/** Tries combinations of pipelines for the replicas; with one class of blocks there is only one. */
function chooseReplicas(
  orders: readonly (readonly number[])[],
  counts: readonly number[],
  dp: number,
  judge: (order: readonly number[], taken: Set<Block>) => Replica | undefined,
  score: (replicas: readonly Replica[]) => number,
): readonly Replica[] | undefined {
  let best: readonly Replica[] | undefined;
  let bestScore = Number.POSITIVE_INFINITY;
  let tried = 0;
  const fits = (order: readonly number[], used: readonly number[]) =>
    counts.every((count, cls) => (used[cls] ?? 0) + order.filter((own) => own === cls).length <= count);
  const add = (used: readonly number[], order: readonly number[]) =>
    counts.map((_, cls) => (used[cls] ?? 0) + order.filter((own) => own === cls).length);
  const extend = (
    from: number,
    replicas: readonly Replica[],
    used: readonly number[],
    taken: ReadonlySet<Block>,
  ): void => {
    if (replicas.length === dp) {
      const value = score(replicas);
      if (value < bestScore) {
        best = replicas;
        bestScore = value;
      }
      return;
    }
    for (let index = from; index < orders.length && tried < MAX_COMBINATIONS; index++) {
      const order = orders[index] ?? [];
      if (!fits(order, used)) continue;
      tried++;
      const nowTaken = new Set(taken);
      const replica = judge(order, nowTaken);
      if (replica === undefined || score([...replicas, replica]) >= bestScore) continue;
      extend(
        index,
        [...replicas, replica],
        counts.map((_, cls) => (used[cls] ?? 0) + order.filter((own) => own === cls).length),
        nowTaken,
      );
    }
  };
  // The same order for all replicas first (a thousand of them would be too deep to recurse): a good bound for the rest.
  for (const order of orders) {
    const taken = new Set<Block>();
    const replicas: Replica[] = [];
    for (let used = counts.map(() => 0); replicas.length < dp && fits(order, used); used = add(used, order)) {
      const replica = judge(order, taken);
      if (replica === undefined) break;
      replicas.push(replica);
    }
    const value = replicas.length === dp ? score(replicas) : Number.POSITIVE_INFINITY;
    if (value < bestScore) {
      best = replicas;
      bestScore = value;
    }
  }
  if (orders.length > 1 && dp > 1) {
    extend(
      0,
      [],
      counts.map(() => 0),
      new Set(),
    );
  }
  return best;
}

/** Which rank is too full when the layers are spread evenly, and what fills it. */
function tooFull(models: readonly StageModel[], candidate: Candidate): Infeasible {
  const { pp } = candidate.axes;
  let worst: { stage: number; bytes: number; items: readonly (readonly [string, number])[] } | undefined;
  const largest = models.reduce((a, b) =>
    b.blockClass.kind.availableBytes > a.blockClass.kind.availableBytes ? b : a,
  );
  for (let stage = 0; stage < pp; stage++) {
    const numLayers = largest.model.numLayers;
    const first = Math.floor((stage * numLayers) / pp);
    const end = Math.floor(((stage + 1) * numLayers) / pp);
    const items = largest.memory(first, end, stage);
    const bytes = Object.values(items).reduce((sum, item) => sum + item, 0);
    if (worst === undefined || bytes > worst.bytes) worst = { stage, bytes, items: Object.entries(items) };
  }
  const reason = () => {
    if (worst === undefined) return "does not fit";
    const fullest = [...worst.items].sort((a, b) => b[1] - a[1]).slice(0, 2);
    const { device, availableBytes } = largest.blockClass.kind;
    const filled = fullest.map(([name, size]) => `${name} ${gib(size)}`).join(", ");
    return `stage ${worst.stage} needs ${gib(worst.bytes)} a rank (${filled}); ${device.name} has ${gib(availableBytes)} free`;
  };
  return { kind: "memory", reason, neededBytes: worst?.bytes ?? 0 };
}
