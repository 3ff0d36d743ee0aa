/**
 * Runs plans on a world of threads through `comm.run`, with inputs that every side can compute, poisoned outputs and
 * buffers at odd places: for campaigns over many plans.
 */
import type * as PlanRoom from "../../src/authoring/plan/index.ts";
import { type ExecutionPlan, shapeOf } from "../../src/authoring/plan/index.ts";
import { findWrong, type OperationName, referenceCopy, referenceOutput } from "../../src/collectives/index.ts";
import type * as Core from "../../src/core/index.ts";
import {
  type DType,
  encodeFloat,
  isSmallFloat,
  newArray,
  type ReduceOp,
  type TypedArray,
} from "../../src/core/index.ts";
import { onRanks, valuesOf } from "../helpers/threads-ranks.ts";

/** One run of a plan. */
export interface PlanCase {
  readonly dtype: DType;
  readonly op: ReduceOp;
  /** Elements of a part; of a chunk where buffers are so many chunks. */
  readonly count: number;
  readonly seed: number;
  /** Elements by which buffers are off the beginning of a tensor. */
  readonly shift: number;
}

export interface PlanJob {
  readonly plan: ExecutionPlan;
  /** What is known of the plan; absent: it runs by `force`, in a group of its own that may fail. */
  readonly proof?: { readonly endsAlone: boolean };
  readonly timeoutMs?: number;
  readonly cases: readonly PlanCase[];
}

/** What one rank had: outputs by case, or an error's code and text. `after`: the sum of all ranks' numbers + 1, after. */
export interface PlanOutcome {
  readonly outputs: readonly (TypedArray | undefined)[];
  readonly error?: { readonly code: string; readonly message: string };
  readonly after: number;
  readonly ms: number;
}

export interface PlanReport {
  /** By job, then by rank. */
  readonly outcomes: readonly (readonly PlanOutcome[])[];
  /** What the world's memory in use grew by, on rank 0. */
  readonly grownBytes: number;
}

/** Element `i` of a rank's input: small, so that sums of eight ranks are exact in every type. */
const elementOf = (seed: number, rank: number, i: number) => (seed * 5 + rank * 3 + i * 7 + (i >> 4)) % 4;

/** Elements of the input and output of a rank. */
export function elementsOf(plan: ExecutionPlan, rank: number, count: number): { input: number; output: number } {
  const own = plan.ranks[rank] as ExecutionPlan["ranks"][number];
  const inChunks = plan.collective.operation.endsWith("_v") || shapeOf(plan).exact;
  const size = ({ chunks, segments }: { chunks: number; segments: number }) =>
    chunks === 0 ? 0 : count * (inChunks ? chunks : segments);
  return { input: size(own.input), output: size(own.output) };
}

/** A rank's whole input, as bits where the type is a small float. */
export function inputOf(plan: ExecutionPlan, rank: number, { dtype, count, seed }: PlanCase): TypedArray {
  const array = newArray(dtype, elementsOf(plan, rank, count).input);
  const wide = array instanceof BigInt64Array || array instanceof BigUint64Array;
  for (let i = 0; i < array.length; i++) {
    const value = elementOf(seed, rank, i);
    array[i] = (wide ? BigInt(value) : isSmallFloat(dtype) ? encodeFloat(dtype, value) : value) as never;
  }
  return array;
}

/** What is wrong with a job's outputs, in words. Custom collectives other than send_recv mean nothing here. */
export function wrongOf({ plan, cases }: PlanJob, outcomes: readonly PlanOutcome[]): string | undefined {
  const c = plan.collective;
  for (const [at, one] of cases.entries()) {
    const { dtype, op, count } = one;
    const inputs = plan.ranks.map(({ rank }) => inputOf(plan, rank, one));
    const scale = (row: readonly number[]) => row.map((chunks) => chunks * plan.options.instances * count);
    for (const { rank } of plan.ranks) {
      const outcome = outcomes[rank];
      const what = `${plan.name}: rank ${rank}, ${JSON.stringify(one)}`;
      if (outcome?.error !== undefined) return `${what}: ${outcome.error.message}`;
      const actual = outcome?.outputs[at] ?? newArray(dtype, 0);
      let segments: ReturnType<typeof referenceOutput> = [];
      if (c.operation === "send_recv") {
        const from = inputs[c.sendTo?.indexOf(rank) ?? -1];
        if (from !== undefined) segments = [{ at: 0, expected: referenceCopy(dtype, from) }];
      } else if (c.operation !== "custom" && c.operation !== "test") {
        segments = referenceOutput(c.operation as OperationName, dtype, op, inputs, {
          numRanks: c.numRanks,
          rank,
          count,
          ...(c.root === undefined ? {} : { root: c.root }),
          ...(c.counts === undefined ? {} : { counts: scale(c.counts) }),
          ...(c.sendCounts === undefined ? {} : { sendCounts: c.sendCounts.map(scale) }),
        });
      }
      for (const { at: start, expected } of segments) {
        const wrong = findWrong(expected, actual, start);
        if (wrong !== undefined) return `${what}: element ${wrong.index} is ${wrong.actual}, not ${wrong.expected}`;
      }
    }
  }
  return undefined;
}

/** Runs jobs in turn, all in one world of as many ranks as the plans have. A rank that dies ends the campaign. */
export async function plansOnThreads(
  numRanks: number,
  jobs: readonly PlanJob[],
  drive: "wait" | "await" = "wait",
): Promise<PlanReport> {
  const inputs = jobs.map(({ plan, cases }) =>
    cases.map((one) => plan.ranks.map(({ rank }) => inputOf(plan, rank, one))),
  );
  const outcomes = await onRanks(
    numRanks,
    async ({ backend, comm, rank, load, data, gc, turn }) => {
      const [jobs, inputs, drive] = data as [readonly PlanJob[], TypedArray[][][], string];
      const { hashPlan, noteProof, placeOf, shapeOf } = await load<typeof PlanRoom>("authoring/plan");
      const { deepFreeze } = await load<typeof Core>("core");
      const done: unknown[] = [];
      await comm.barrier();
      // After the first job, which makes what stays; of one job alone nothing can be said.
      let before = Number.POSITIVE_INFINITY;
      for (const [j, { plan: given, proof, timeoutMs, cases }] of jobs.entries()) {
        if (j === 1) before = comm.stats().memory.usedBytes;
        const plan = deepFreeze(given);
        if (proof !== undefined) {
          const { endsAlone } = proof;
          noteProof(plan, { ok: true, hash: hashPlan(plan), endsAlone: () => endsAlone, relaunches: () => false });
        }
        const group = proof === undefined ? await comm.split(0, rank) : comm;
        if (group === undefined) throw new Error("no group");
        const began = performance.now();
        const outputs: (TypedArray | undefined)[] = [];
        let error: { code: string; message: string } | undefined;
        const own = plan.ranks[rank];
        if (own === undefined) throw new Error("no such rank in the plan");
        for (const [k, { dtype, op, shift, count }] of cases.entries()) {
          const inChunks = plan.collective.operation.endsWith("_v") || shapeOf(plan).exact;
          const elements = (b: { chunks: number; segments: number }) =>
            b.chunks === 0 ? 0 : count * (inChunks ? b.chunks : b.segments);
          const [ins, outs] = [elements(own.input), elements(own.output)];
          const values = inputs[j]?.[k]?.[rank] as TypedArray;
          // In place the smaller buffer lies in the larger one.
          const at = (buffer: "input" | "output") =>
            plan.collective.inPlace && own[buffer].chunks > 0 ? placeOf(plan, rank, buffer, 0) : undefined;
          const [inAt, outAt] = [at("input"), at("output")];
          const isInOutput = inAt?.buffer === "output";
          const isInInput = !isInOutput && outAt?.buffer === "input";
          const larger = own[isInOutput ? "output" : "input"];
          const perChunk = inChunks ? count : (count * larger.segments) / larger.chunks;
          const whole = backend.tensor(dtype, [(isInOutput ? outs : ins) + shift]);
          new Uint8Array(whole.data.buffer, whole.data.byteOffset, whole.data.byteLength).fill(0xa5);
          const offset = shift + (isInOutput ? Math.round((inAt?.index ?? 0) * perChunk) : 0);
          (whole.data as Uint8Array).set(values as Uint8Array, offset);
          const second = isInOutput || isInInput ? undefined : backend.tensor(dtype, [outs + shift]);
          if (second !== undefined) {
            new Uint8Array(second.data.buffer, second.data.byteOffset, second.data.byteLength).fill(0xa5);
          }
          const first = whole.slice(shift, whole.size);
          const input = own.input.chunks > 0 || isInInput ? first : undefined;
          const output = second === undefined || own.output.chunks === 0 ? undefined : second.slice(shift, second.size);
          const options = {
            op,
            dtype,
            force: proof === undefined,
            ...(timeoutMs === undefined ? {} : { timeoutMs }),
            ...(isInOutput ? { output: first } : { ...(input && { input }), ...(output && { output }) }),
          };
          try {
            const work = group.run(plan, options);
            const result = drive === "wait" ? work.wait() : await work;
            outputs.push(result === undefined ? undefined : result.data.slice());
          } catch (e) {
            error ??= { code: (e as { code?: string }).code ?? (e as Error).name, message: (e as Error).message };
          }
          // Nobody writes into these any more, on any rank.
          await comm.barrier();
          for (const tensor of [whole, second]) if (tensor !== undefined) backend.free(tensor);
          if (error !== undefined) break;
        }
        const ms = performance.now() - began;
        if (group !== comm) await group.close().catch(() => {});
        const sum = await comm.allReduce(new Float64Array([rank + 1]));
        done.push({ outputs, ...(error === undefined ? {} : { error }), after: sum.data[0], ms });
      }
      gc();
      // What only finalizers free comes back on a later turn.
      for (let i = 0; i < 10; i++) await turn(1);
      await comm.barrier();
      return { done, grown: Math.max(0, comm.stats().memory.usedBytes - before) };
    },
    { data: [jobs, inputs, drive] },
  );
  const values = valuesOf(outcomes) as { readonly done: readonly PlanOutcome[]; readonly grown: number }[];
  const broken = outcomes.find(({ error }) => error !== undefined)?.error;
  if (broken !== undefined) throw new Error(`a rank ended: ${broken.name}: ${broken.message}`);
  return {
    outcomes: jobs.map((_, j) => values.map(({ done }) => done[j] as PlanOutcome)),
    grownBytes: values[0]?.grown ?? 0,
  };
}
