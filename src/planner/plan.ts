/**
 * The sharding plan: a model laid out on devices. Frozen plain JSON with a zod schema, so that it can be written to a
 * file, read by `chorale launch … --plan plan.json`, and shown. It holds every rank's place in the mesh, its layers and
 * shards, its memory item by item, what the plan is expected to do, and why other layouts lost.
 *
 * Rank numbering: axes in `mesh.order`, the last contiguous; with `ep` = `cp` = 1 that is
 * rank = (dp_i * pp + pp_i) * tp + tp_i. World size = dp * pp * ep * cp * tp.
 * Axes: `dp` independent replicas; `pp` pipeline stages; `ep` batch-parallel for attention, expert-parallel for experts;
 * `cp` shards the sequence (and the KV cache); `tp` shards every matrix.
 */
import { z } from "zod";
import { deepFreeze, FormatError } from "../core/index.ts";
import { FAMILIES } from "../machine/topology/index.ts";

export const SHARDING_PLAN_SCHEMA_VERSION = 1;

/** Mesh axes, outermost first. */
export const PLAN_AXES = ["dp", "pp", "ep", "cp", "tp"] as const;
export type PlanAxis = (typeof PLAN_AXES)[number];

export const OBJECTIVES = ["latency", "throughput", "memory"] as const;
export type Objective = (typeof OBJECTIVES)[number];

const count = z.number().int().nonnegative();
const positive = z.number().int().positive();
const time = z.number().nonnegative();

export const axisSizesSchema = z.object({ dp: positive, pp: positive, ep: positive, cp: positive, tp: positive });
export type PlanAxisSizes = z.infer<typeof axisSizesSchema>;

/** The sizes as a key of maps: equal for equal sizes. */
export const axesKey = (axes: PlanAxisSizes): string => PLAN_AXES.map((axis) => axes[axis]).join();

const coordsSchema = z.object({ dp: count, pp: count, ep: count, cp: count, tp: count });

/** Half-open: [first, end). */
const rangeSchema = z.object({ first: count, end: count });
export type LayerRange = z.infer<typeof rangeSchema>;

export const MEMORY_ITEMS = [
  "weights",
  "kvCache",
  "activations",
  "logits",
  "communicationBuffers",
  "frameworkReserve",
  "fragmentation",
  "gradients",
  "optimizerStates",
  "masterWeights",
  "adapters",
  "referenceModels",
] as const;
export type MemoryItem = (typeof MEMORY_ITEMS)[number];

export const rankMemorySchema = z.object({
  /** Bytes by item; items that are zero are absent. */
  items: z.partialRecord(z.enum(MEMORY_ITEMS), count),
  totalBytes: count,
  /** What the device has for this rank: its free memory (or total, if asked), divided by the ranks it hosts. */
  availableBytes: count,
  headroomBytes: z.number().int(),
});
export type RankMemory = z.infer<typeof rankMemorySchema>;

export const rankPlanSchema = z.object({
  rank: count,
  coords: coordsSchema,
  /** Id of the inventory's device. Several ranks may share one (a CPU). */
  deviceId: z.string().min(1),
  /** Transformer layers [first, end) of the model. */
  layers: rangeSchema,
  /** Holds the token embeddings (first stage; also the last when they are tied to the head). */
  embeddings: z.boolean(),
  /** Holds the final norm and the head. */
  head: z.boolean(),
  /** What of each sharded dimension this rank holds. */
  shards: z.object({
    heads: rangeSchema,
    /** Several ranks hold the same KV heads when tp exceeds their number. */
    kvHeads: rangeSchema,
    /** Columns of the MLP; of each expert in a mixture. */
    intermediate: rangeSchema,
    vocab: rangeSchema,
    experts: rangeSchema.optional(),
  }),
  memory: rankMemorySchema,
});
export type PlannedRank = z.infer<typeof rankPlanSchema>;

export const BOTTLENECKS = ["memory-bandwidth", "compute", "communication", "overhead", "pipeline-bubble"] as const;
export type Bottleneck = (typeof BOTTLENECKS)[number];

export const inferenceEstimatesSchema = z.object({
  kind: z.literal("inference"),
  /** One prompt batch through the model. */
  prefillMs: time,
  /** Time to first token: prefill, head and one hop through the pipeline. */
  ttftMs: time,
  /** Between two tokens of one sequence. */
  decodeStepMs: time,
  decodeTokensPerSecondPerUser: time,
  decodeTokensPerSecond: time,
  /** Time to first token + outputTokens decode steps. */
  requestMs: time,
  bottleneck: z.enum(BOTTLENECKS),
  /** Where a decode step's time goes, in ms (the prefill's, where nothing is generated); they sum to it. */
  breakdownMs: z.record(z.string(), time),
  /** Fraction of the devices' peak memory bandwidth and FLOP rate that decoding uses. */
  memoryBandwidthUtilization: z.number().min(0).max(1),
  computeUtilization: z.number().min(0).max(1),
  /** Decode at other batch sizes, as far as memory allows. */
  throughputCurve: z.array(z.object({ batch: positive, decodeStepMs: time, tokensPerSecond: time })),
  /** Of generated tokens, the prefill of their prompts included; of read ones where none are generated. */
  costPerMillionTokens: z.number().nonnegative().optional(),
  pricePerHour: z.number().nonnegative().optional(),
});
export type InferenceEstimates = z.infer<typeof inferenceEstimatesSchema>;

export const trainingEstimatesSchema = z.object({
  kind: z.literal("training"),
  stepMs: time,
  /** Of the step: generating what it trains on, where rollouts are counted. */
  rolloutMs: time.optional(),
  tokensPerSecond: time,
  /** Model FLOPs utilisation: 6 FLOPs per parameter and token (plus attention) over the peak. */
  mfu: z.number().min(0).max(1),
  bottleneck: z.enum(BOTTLENECKS),
  breakdownMs: z.record(z.string(), time),
  microbatches: positive,
  costPerMillionTokens: z.number().nonnegative().optional(),
  pricePerHour: z.number().nonnegative().optional(),
});
export type TrainingEstimates = z.infer<typeof trainingEstimatesSchema>;

export const rejectedSchema = z.object({
  axes: axisSizesSchema,
  /** Why it lost: a rule with its numbers, a device that is too small, or a slower estimate. */
  reason: z.string(),
  kind: z.enum(["divisibility", "topology", "memory", "slower", "constraint"]),
  /** The objective's value, where it could be estimated; lower is better. */
  score: z.number().optional(),
  /** Memory: what the fullest rank (or host) needs. */
  neededBytes: count.optional(),
});
export type Rejected = z.infer<typeof rejectedSchema>;

/** Devices of one kind that a plan uses. */
const planDevicesSchema = z.object({
  family: z.enum(FAMILIES),
  name: z.string(),
  /** As in the inventory: NVIDIA's compute capability, AMD's gfx number. */
  arch: z.string().optional(),
  count: positive,
});
export type PlanDevices = z.infer<typeof planDevicesSchema>;

export const shardingPlanSchema = z.object({
  schemaVersion: z.literal(SHARDING_PLAN_SCHEMA_VERSION),
  model: z.object({
    name: z.string(),
    architecture: z.string(),
    numParameters: count,
    /** Parameters that one token meets: all but the experts that it is not routed to. */
    numActiveParameters: count,
    numLayers: positive,
    hiddenSize: positive,
    vocabSize: positive,
    numHeads: count,
    numKvHeads: count,
    /** What was not known and therefore assumed, in words. */
    assumptions: z.array(z.string()),
  }),
  workload: z.object({
    mode: z.enum(["inference", "training"]),
    method: z.string().optional(),
    weightFormat: z.string(),
    kvFormat: z.string(),
    activationFormat: z.string(),
    contextTokens: positive,
    promptTokens: positive,
    outputTokens: count,
    /** Sequences in flight, all replicas together. */
    batch: positive,
    batchPerReplica: positive,
    zeroStage: z.union([z.literal(0), z.literal(1), z.literal(2), z.literal(3)]).optional(),
    /** Whose kernels and schedulers the times are those of. */
    engine: z.string().optional(),
    /** Generation of the hardware whose constants timed it. */
    generation: z.string().optional(),
    /** Training: sequences of one forward and backward pass, what is kept for the latter, and what updates the weights. */
    microBatch: positive.optional(),
    checkpointing: z.enum(["none", "selective", "full"]).optional(),
    optimizer: z.string().optional(),
    precision: z.string().optional(),
    gradients: z.string().optional(),
    /** What the adapters of LoRA and prefix tuning are. */
    adapter: z
      .discriminatedUnion("kind", [
        z.object({ kind: z.literal("lora"), rank: positive, targets: z.string() }),
        z.object({ kind: z.literal("prefix"), tokens: positive }),
      ])
      .optional(),
    /** Chunks of layers of each stage where training interleaves its pipeline. */
    pipelineChunks: positive.optional(),
    /** What was asked for beyond the defaults; absent where it was not. */
    pipelineSchedule: z.string().optional(),
    offload: z.string().optional(),
    gpuMemoryUtilization: z.number().positive().max(1).optional(),
    prefixHits: z.number().min(0).max(1).optional(),
    prefillChunkTokens: positive.optional(),
    expertOverlap: z.number().min(0).max(1).optional(),
    speculation: z.object({ tokens: positive, acceptance: z.number().min(0).max(1) }).optional(),
    /** The model's own context, where the plan goes beyond it (RoPE scaling). */
    modelContextTokens: positive.optional(),
    /** The format that the model's own files are in. */
    checkpointFormat: z.string().optional(),
  }),
  /** The devices of the ranks by kind. */
  hardware: z.array(planDevicesSchema).optional(),
  objective: z.enum(OBJECTIVES),
  /** The objective's value; lower is better (latency: ms a request; throughput: us a token; memory: bytes of the fullest rank). */
  score: z.number(),
  mesh: z.object({
    axes: axisSizesSchema,
    order: z.tuple([z.literal("dp"), z.literal("pp"), z.literal("ep"), z.literal("cp"), z.literal("tp")]),
    worldSize: positive,
    /** More than 1 when ranks share a device. */
    ranksPerDevice: positive,
  }),
  ranks: z.array(rankPlanSchema).min(1),
  /** The fullest rank's memory, and everything together. */
  memory: z.object({
    peakRankBytes: count,
    totalBytes: count,
    minHeadroomBytes: z.number().int(),
    fullestRank: count,
    /** Of the fullest host, where training keeps something in host memory. */
    host: z.object({ bytes: count, availableBytes: count.optional() }).optional(),
  }),
  estimates: z.discriminatedUnion("kind", [inferenceEstimatesSchema, trainingEstimatesSchema]),
  rejected: z.array(rejectedSchema),
  /** Anything a reader should know: shared devices, assumed rates, unused devices. */
  notes: z.array(z.string()),
});
export type ShardingPlan = z.infer<typeof shardingPlanSchema>;

/** The rank at a coordinate. */
export function rankAt(axes: PlanAxisSizes, at: PlanAxisSizes): number {
  return PLAN_AXES.reduce((rank, axis) => rank * axes[axis] + at[axis], 0);
}

/**
 * Reads a plan, such as the parsed content of a `plan.json`, or the one document that `chorale plan --json` prints (its
 * first plan).
 * @throws FormatError naming the field that is wrong, or the rule between fields that does not hold
 * @example
 * import { InvalidArgumentError } from "chorale";
 * import { parsePlan } from "chorale/planner";
 * try { parsePlan({ schemaVersion: 1 }, "plan.json"); } catch (error) { String(error); } // names the first missing field
 */
export function parsePlan(value: unknown, where = "plan"): ShardingPlan {
  const document = value as { plans?: unknown } | null;
  const candidate =
    typeof document === "object" && document !== null && Array.isArray(document.plans) ? document.plans[0] : value;
  const result = shardingPlanSchema.safeParse(candidate);
  if (!result.success) {
    const issue = result.error.issues[0];
    throw new FormatError(where, issue?.message ?? "is not a sharding plan", {
      field: issue?.path.map(String).join(".") || "plan",
      cause: result.error,
    });
  }
  const plan = result.data;
  const problem = planProblems(plan)[0];
  if (problem !== undefined) throw new FormatError(where, problem.message, { field: problem.field });
  return deepFreeze(plan);
}

/** A rule of a plan that does not hold. */
export interface ShardingPlanProblem {
  readonly field: string;
  readonly message: string;
}

/**
 * Checks what a schema cannot: ranks in order and complete, layers of each pipeline contiguous and summing to the
 * model, embeddings first and head last, memory that adds up and fits. (What the ancestors call `is_valid`.)
 */
export function planProblems(plan: ShardingPlan): readonly ShardingPlanProblem[] {
  const problems: ShardingPlanProblem[] = [];
  const { axes, worldSize } = plan.mesh;
  const equation = PLAN_AXES.map((axis) => `${axis}=${axes[axis]}`).join(" x ");
  const product = PLAN_AXES.reduce((total, axis) => total * axes[axis], 1);
  const add = (field: string, message: string) => problems.push({ field, message });
  if (product !== worldSize) add("mesh.worldSize", `${equation} is ${product} ranks, not ${worldSize}`);
  if (plan.ranks.length !== worldSize) add("ranks", `holds ${plan.ranks.length} ranks, the mesh has ${worldSize}`);
  const pipelines = new Map<string, { end: number; stage: number }>();
  for (const [index, rank] of plan.ranks.entries()) {
    const field = `ranks.${index}`;
    if (rank.rank !== index)
      add(`${field}.rank`, `is ${rank.rank}; ranks are listed in order, so ${index} is expected`);
    const wrong = PLAN_AXES.find((axis) => rank.coords[axis] >= axes[axis]);
    if (wrong !== undefined) add(`${field}.coords.${wrong}`, `is ${rank.coords[wrong]}, of an axis of ${axes[wrong]}`);
    else if (rankAt(axes, rank.coords) !== index) {
      add(`${field}.coords`, `stand for rank ${rankAt(axes, rank.coords)}, not ${index}`);
    }
    const pipeline = `${rank.coords.dp},${rank.coords.ep},${rank.coords.cp},${rank.coords.tp}`;
    const before = pipelines.get(pipeline) ?? { end: 0, stage: 0 };
    if (rank.layers.first !== before.end || rank.layers.end < rank.layers.first) {
      add(`${field}.layers`, `are [${rank.layers.first}, ${rank.layers.end}); the stage before ends at ${before.end}`);
    }
    if (rank.coords.pp !== before.stage) add(`${field}.coords.pp`, `is ${rank.coords.pp}, expected ${before.stage}`);
    pipelines.set(pipeline, { end: rank.layers.end, stage: before.stage + 1 });
    if (rank.coords.pp === 0 && !rank.embeddings) add(`${field}.embeddings`, "is false on the first stage");
    if (rank.head !== (rank.coords.pp === axes.pp - 1))
      add(`${field}.head`, "is true on the last stage, and only there");
    const sum = Object.values(rank.memory.items).reduce((total, bytes) => total + bytes, 0);
    if (sum !== rank.memory.totalBytes) {
      add(`${field}.memory.totalBytes`, `is ${rank.memory.totalBytes}; the items add up to ${sum}`);
    }
    if (rank.memory.availableBytes - rank.memory.totalBytes !== rank.memory.headroomBytes) {
      add(`${field}.memory.headroomBytes`, "is not availableBytes - totalBytes");
    }
    if (rank.memory.headroomBytes < 0) {
      add(`${field}.memory.headroomBytes`, `is ${rank.memory.headroomBytes}: the rank does not fit ${rank.deviceId}`);
    }
  }
  for (const [pipeline, { end }] of pipelines) {
    if (end !== plan.model.numLayers) {
      add("ranks", `the pipeline at (dp, ep, cp, tp) = (${pipeline}) ends at layer ${end} of ${plan.model.numLayers}`);
    }
  }
  return problems;
}

/** Says whether every rank of the plan fits the memory that its device has for it. */
export function fitsInMemory(plan: ShardingPlan): boolean {
  return plan.ranks.every((rank) => rank.memory.headroomBytes >= 0);
}

/** Says whether the plan keeps every rule of `planProblems`. */
export function isValidPlan(plan: ShardingPlan): boolean {
  return planProblems(plan).length === 0;
}
