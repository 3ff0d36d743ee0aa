/**
 * The shape of chorale's own plan files, and reading and writing them. Sizes of 64 bits are decimal strings in JSON.
 * What is checked here is shape and ranges of ids; what a plan means is the verifier's.
 */
import { z } from "zod";
import { COLLECTIVE_NAMES, type CollectiveName } from "../../collectives/index.ts";
import { deepFreeze, FormatError } from "../../core/index.ts";
import { BUFFERS, type ExecutionPlan, PLAN_REDUCE_OPS, PLAN_SCHEMA_VERSION, type RankPlan } from "../plan/index.ts";
import { parseFile } from "./exact-json.ts";

const count = z.number().int().nonnegative();
const counts = z.array(count);
const buffer = z.enum(BUFFERS);
const range = z.strictObject({ buffer, index: count, size: count });
const remote = z.strictObject({ rank: count, buffer, index: count, size: count });
const switchRange = z.strictObject({ channel: count, index: count, size: count });
const channelKind = z.enum(["memory", "port"]);
const anyKind = z.enum(["memory", "port", "switch"]);
const op = z.enum(PLAN_REDUCE_OPS);
const base = { source: count.optional() };
const data = { ...base, tbg: z.strictObject({ index: count, size: count.min(1) }).optional() };
const channels = { channelKind, channels: counts };

const simpleOps = [
  z.strictObject({ kind: z.literal("nop"), ...base }),
  z.strictObject({ kind: z.literal("barrier"), barrier: count, numStrands: count, ...base }),
  z.strictObject({
    kind: z.literal("copy"),
    format: z.enum(["plain", "pack", "unpack"]),
    src: range,
    dst: range,
    ...data,
  }),
  z.strictObject({ kind: z.literal("get"), ...channels, src: z.array(remote), dst: z.array(range), ...data }),
  z.strictObject({
    kind: z.literal("put"),
    format: z.enum(["plain", "pack", "forward"]),
    notify: z.enum(["none", "signal", "signal-flush"]),
    ...channels,
    src: z.array(range),
    dst: z.array(remote),
    ...data,
  }),
  z.strictObject({
    kind: z.literal("reduce"),
    op,
    packets: z.boolean(),
    src: z.array(range).min(1),
    remoteSrc: z.array(remote),
    dst: range,
    packetDst: range.optional(),
    remoteDst: z.array(remote),
    channelKind: channelKind.optional(),
    channels: counts,
    statedName: z.string().optional(),
    ...data,
  }),
  z.strictObject({ kind: z.literal("signal"), relaxed: z.boolean(), ...channels, ...base }),
  z.strictObject({ kind: z.literal("wait"), relaxed: z.boolean(), ...channels, ...base }),
  z.strictObject({ kind: z.literal("flush"), channelKind: z.literal("port"), channels: counts, ...base }),
  z.strictObject({ kind: z.literal("acquire"), semaphores: counts, ...base }),
  z.strictObject({ kind: z.literal("release"), semaphores: counts, ...base }),
  z.strictObject({
    kind: z.literal("switch-reduce"),
    op,
    src: switchRange,
    dst: range,
    statedRank: count.optional(),
    ...data,
  }),
  z.strictObject({
    kind: z.literal("switch-broadcast"),
    format: z.enum(["plain", "forward"]),
    src: range,
    dst: switchRange,
    statedRank: count.optional(),
    ...data,
  }),
  z.strictObject({ kind: z.literal("switch-reduce-broadcast"), op, src: switchRange, dst: switchRange, ...data }),
] as const;
const simpleOp = z.discriminatedUnion("kind", simpleOps);
const pipeline = z.strictObject({
  kind: z.literal("pipeline"),
  unitBytes: count.min(1),
  numChunks: count,
  body: z.array(simpleOp),
  ...base,
});

const tables = z.strictObject({
  channels: z.array(z.strictObject({ kind: anyKind, ids: counts })),
  remoteBuffers: z.array(z.strictObject({ kind: channelKind, refs: counts })),
});
const bufferPlan = z.strictObject({ chunks: count, segments: count });
const rankPlan = z.strictObject({
  rank: count,
  input: bufferPlan,
  output: bufferPlan,
  scratch: bufferPlan,
  channels: z.strictObject({
    memory: counts,
    port: counts,
    switch: z.array(z.strictObject({ buffer, ranks: counts })),
  }),
  semaphores: z.array(z.strictObject({ initialValue: count })),
  ways: z.array(z.strictObject({ kind: channelKind, channel: count, nodes: z.array(z.string()) })).optional(),
  strands: z.array(
    z.strictObject({ id: count, ops: z.array(z.union([simpleOp, pipeline])), tables: tables.optional() }),
  ),
  tables: z
    .strictObject({
      remoteBuffers: z.array(z.strictObject({ rank: count, buffer, access: z.array(anyKind) })),
      channelKinds: z.array(anyKind),
    })
    .optional(),
});

const chunkRef = z.strictObject({ rank: count, chunk: count });
const chunkValue = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("copy"), from: chunkRef }),
  z.strictObject({ kind: z.literal("reduce"), from: z.array(chunkRef) }),
]);
const size64 = z
  .string()
  .regex(/^\d{1,20}$/)
  .transform((text) => BigInt(text));

const OPERATION_NAMES: readonly (CollectiveName | "send_recv" | "custom" | "test")[] = [
  ...COLLECTIVE_NAMES,
  "send_recv",
  "custom",
  "test",
];

/** Chorale's plan file. `z.toJSONSchema(planSchema, { io: "input" })` is its JSON schema. */
export const planSchema = z.strictObject({
  schemaVersion: z.literal(PLAN_SCHEMA_VERSION),
  name: z.string().nullable(),
  mode: z.enum(["sound", "mscclpp", "imported"]),
  collective: z.strictObject({
    operation: z.enum(OPERATION_NAMES),
    numRanks: count.min(1),
    chunksPerPart: count,
    inPlace: z.boolean(),
    root: count.optional(),
    reduceOp: op.optional(),
    counts: counts.optional(),
    sendCounts: z.array(counts).optional(),
    sendTo: z.array(count.nullable()).optional(),
    custom: z
      .strictObject({
        name: z.string(),
        inputChunks: counts,
        outputChunks: counts,
        post: z.array(z.array(chunkValue.nullable())),
        aliases: z.array(z.strictObject({ rank: count, output: count, input: count })).optional(),
      })
      .optional(),
    mayOverwriteInput: z.boolean().optional(),
  }),
  options: z.strictObject({
    protocol: z.enum(["Simple", "LL"]),
    instances: count.min(1),
    reuseResources: z.boolean(),
    numThreadsPerBlock: count,
    useDoubleScratchBuffer: z.boolean(),
    bufferAlignment: count,
    minMessageSizeBytes: size64,
    maxMessageSizeBytes: size64,
  }),
  ranks: z.array(rankPlan),
  sources: z.array(z.strictObject({ file: z.string(), line: count, column: count })),
});

/** Writes chorale's plan file. @param indent spaces; 0 for one line */
export function planToJson(plan: ExecutionPlan, indent = 0): string {
  return JSON.stringify(plan, (_, value: unknown) => (typeof value === "bigint" ? value.toString() : value), indent);
}

/**
 * Reads chorale's plan file, or the object parsed from it.
 * @param ranks items of `ranks`, where they are not in `json`
 * @throws FormatError naming the first field that is wrong
 */
export function planFromJson(json: unknown, where = "plan", ranks?: Iterable<unknown>): ExecutionPlan {
  const value = typeof json === "string" ? parseFile(json, where, JSON.parse) : json;
  const check = <T>(result: z.ZodSafeParseResult<T>, path: readonly PropertyKey[]): T => {
    if (result.success) return result.data;
    const issue = result.error.issues[0];
    const field = [...path, ...(issue?.path ?? [])].join(".");
    throw new FormatError(where, issue?.message ?? "is not a plan", { field });
  };
  let plan = check(planSchema.safeParse(value), []) as ExecutionPlan;
  if (ranks !== undefined) {
    const read: RankPlan[] = [];
    for (const rank of ranks)
      read.push(deepFreeze(check(rankPlan.safeParse(rank), ["ranks", read.length]) as RankPlan));
    plan = { ...plan, ranks: read };
  }
  if (plan.ranks.length === 0)
    throw new FormatError(where, "is empty; a plan has one rank or more", { field: "ranks" });
  plan.ranks.forEach((rank, r) => {
    if (rank.rank !== r) throw new FormatError(where, `is ${rank.rank}, expected ${r}`, { field: `ranks.${r}.rank` });
  });
  return deepFreeze(plan);
}
