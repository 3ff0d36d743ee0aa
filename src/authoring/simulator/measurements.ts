/**
 * Measurements that the constants are fitted to: the documents of `chorale bench --json` and of `bench/peers/cuda`, both
 * `{rows: [{op, backend | plan, sizeBytes, timeUs, …}]}`. A row with a `plan` says which algorithm of the library ran, on
 * how many ranks and instances; the others (an engine's own algorithm) cannot be simulated and are only counted.
 */
import { z } from "zod";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { ALGORITHMS } from "../algorithms/index.ts";
import { compile } from "../language/index.ts";
import { type ExecutionPlan, MAX_INSTANCES } from "../plan/index.ts";

/** More rows than this are a mistake: every one is simulated dozens of times. */
const MAX_ROWS = 2000;
const MAX_RANKS = 64;
/** Strands of all ranks of a measured plan. */
const MAX_STRANDS = 16_384;

const rowSchema = z.object({
  op: z.string().max(64),
  backend: z.string().max(64).optional(),
  plan: z.string().max(256).optional(),
  numRanks: z.int().min(2).max(MAX_RANKS).optional(),
  instances: z.int().min(1).max(MAX_INSTANCES).optional(),
  inPlace: z.boolean().optional(),
  sizeBytes: z
    .number()
    .nonnegative()
    .max(2 ** 50),
  timeUs: z.number().positive().max(1e12),
});
const documentSchema = z.object({
  numRanks: z.int().min(1).max(1_000_000).optional(),
  ranks: z.int().min(1).max(1_000_000).optional(),
  rows: z.array(rowSchema).min(1).max(MAX_ROWS),
});

export type MeasuredRow = z.infer<typeof rowSchema>;

/** What was measured, with the plan that ran. */
export interface Measurement {
  readonly name: string;
  readonly plan: ExecutionPlan;
  readonly sizeBytes: number;
  readonly timeUs: number;
}
export interface Measurements {
  readonly usable: readonly Measurement[];
  /** Rows of engines, whose own algorithms are not simulated. */
  readonly others: readonly MeasuredRow[];
  /** Ranks of a row that does not say. */
  readonly numRanks: number | undefined;
}

/**
 * Reads measurements and compiles the plans that they name.
 * @param fallback plan of rows that name none, where the caller knows it
 * @throws FormatError naming the field, InvalidArgumentError for a plan that the library does not have
 */
export function readMeasurements(value: unknown, where: string, fallback?: string): Measurements {
  const parsed = documentSchema.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new FormatError(where, issue?.message ?? "holds no measurements", { field: issue?.path.join(".") ?? "rows" });
  }
  const document = parsed.data;
  const plans = new Map<string, ExecutionPlan>();
  const usable: Measurement[] = [];
  const others: MeasuredRow[] = [];
  for (const row of document.rows) {
    const name = row.plan ?? fallback;
    const numRanks = row.numRanks ?? document.numRanks ?? document.ranks;
    if (name === undefined || !isKnown(name, row, fallback)) {
      others.push(row);
      continue;
    }
    if (numRanks === undefined) throw new FormatError(where, "is needed to know which plan ran", { field: "numRanks" });
    if (row.sizeBytes <= 0) throw new FormatError(where, "must be positive", { field: "sizeBytes" });
    const { instances = 1, inPlace = false } = row;
    const key = `${name} on ${numRanks} ranks x ${instances}${inPlace ? " in place" : ""}`;
    let plan = plans.get(key);
    if (plan === undefined) {
      plan = planOf(name, numRanks, instances, inPlace);
      plans.set(key, plan);
    }
    usable.push({ name: key, plan, sizeBytes: row.sizeBytes, timeUs: row.timeUs });
  }
  return { usable, others, numRanks: document.numRanks ?? document.ranks };
}

/** Engines time algorithms of their own; the library's plans are told by name. A name given by hand must exist. */
function isKnown(name: string, row: MeasuredRow, fallback: string | undefined): boolean {
  return row.plan === undefined ? name === fallback : ALGORITHMS.some((algorithm) => algorithm.name === name);
}

function planOf(name: string, numRanks: number, instances: number, inPlace: boolean): ExecutionPlan {
  const algorithm = ALGORITHMS.find((candidate) => candidate.name === name);
  if (algorithm === undefined)
    throw new InvalidArgumentError("plan", name, `one of ${ALGORITHMS.map((a) => a.name).join(", ")}`);
  if (numRanks > MAX_RANKS || !algorithm.legal(numRanks))
    throw new InvalidArgumentError(
      "numRanks",
      numRanks,
      `a number of ranks up to ${MAX_RANKS} that ${name} is defined for`,
    );
  if (numRanks * numRanks * instances > MAX_STRANDS)
    throw new InvalidArgumentError("instances", instances, `${MAX_STRANDS} strands or fewer in all`);
  return compile(algorithm.make({ numRanks, instances, inPlace: inPlace && algorithm.inPlace }), { verify: false });
}
