/**
 * From a rank's plan to the steps of its thread blocks: the records of the shared lowering (`../cpu/lower.ts`), with the
 * block-wide synchronisation that threads need and a CPU strand does not. Every number of a step is kept apart from its
 * form, so that strands that differ only in numbers become one piece of code (`strand-shapes.ts`).
 */
import {
  bodyOf,
  type ExecutionPlan,
  formatOp,
  type Op,
  type PlanReduceOp,
  type SimpleOp,
} from "../../../authoring/plan/index.ts";
import { type LoweredRank, lowerRank } from "../cpu/lower.ts";
import type { DataRecord, StrandRecord, Stretch, SyncRecord } from "../cpu/records.ts";

/** Which memory a range of a step is in. `packets` is scratch that holds packets. */
export interface Place {
  readonly own: boolean;
  readonly buffer: "input" | "output" | "scratch" | "packets";
}
/** Whether it is the program's, whose last chunks may be short. */
export const isUser = ({ buffer }: Place): boolean => buffer === "input" || buffer === "output";

interface StepBase {
  /** What the step's numbers are, in the order that its kind says. */
  readonly numbers: readonly number[];
  /** The operation in words with its line, for the source; absent where it is the same as the step's before. */
  readonly comment?: string | undefined;
  /** The operation's place: index in the strand, and in a pipeline's body. */
  readonly op: number;
  readonly body: number | undefined;
}
/** Numbers: chunks of the operation, first and end of this stretch, part of the group; of each place: rank, segment, chunk. */
export interface DataStep extends StepBase {
  readonly kind: "data";
  readonly code: DataRecord["code"];
  readonly reduce: PlanReduceOp | undefined;
  readonly raw: boolean;
  readonly windowed: boolean;
  /** Strands that share the operation; 1: it is this one's alone. */
  readonly parts: number;
  readonly ins: readonly Place[];
  readonly outs: readonly Place[];
}
export const DATA_NUMBERS = { chunks: 0, from: 1, to: 2, part: 3, places: 4, perPlace: 3 } as const;

/** Threads of the block meet. */
interface MeetStep extends StepBase {
  readonly kind: "meet";
}
/** Numbers: rank and counter of each. */
export interface SignalStep extends StepBase {
  readonly kind: "signal";
  readonly relaxed: boolean;
  readonly count: number;
}
/**
 * Numbers: of each counter its id, how often this step waits for it, how often the strand did before in this launch, and
 * how often all strands do in a launch. `counting` says how the target is known: from the launch's number; from what the
 * strand itself has taken (loops); or under the rank's lock, where several strands wait for one counter.
 */
export interface WaitStep extends StepBase {
  readonly kind: "wait";
  readonly counting: "launches" | "taken" | "locked";
  readonly count: number;
}
export const WAIT_NUMBERS = { counter: 0, times: 1, before: 2, perLaunch: 3, words: 4 } as const;
/** Numbers: id, and times, of each semaphore. */
export interface SemaphoreStep extends StepBase {
  readonly kind: "acquire" | "release";
  readonly count: number;
}
/** Numbers: the barrier, and how many strands meet. */
export interface BarrierStep extends StepBase {
  readonly kind: "barrier";
}
/** Numbers: chunks, and bytes of a unit. */
interface LoopStep extends StepBase {
  readonly kind: "loop";
}
interface EndLoopStep extends StepBase {
  readonly kind: "end-loop";
}
export type Step = DataStep | MeetStep | SignalStep | WaitStep | SemaphoreStep | BarrierStep | LoopStep | EndLoopStep;

export interface RankSteps {
  readonly lowered: LoweredRank;
  readonly strands: readonly (readonly Step[])[];
}

/** Whether the operation separates everything before it from everything after, and is nothing else. */
const separatesOnly = (op: SimpleOp) => op.kind === "nop" || op.kind === "flush";

/** The steps of every strand of a rank. @param plan one that the verifier has passed */
export function stepsOf(plan: ExecutionPlan, rank: number): RankSteps {
  const lowered = lowerRank(plan, rank);
  const waits = new WaitCounts(lowered);
  const strands = plan.ranks[rank]!.strands.map((strand, s) => {
    const records = recordsByPlace(lowered.strands[s] ?? []);
    const steps: Step[] = [];
    const one = (op: SimpleOp, index: number, body: number | undefined) => {
      const comment = commentOf(plan, op);
      if (separatesOnly(op)) steps.push({ kind: "meet", numbers: [], comment, op: index, body });
      const own = records.get(placeKey(index, body)) ?? [];
      own.forEach((record, i) => {
        const step = stepOf(rank, s, record, waits, { comment: i === 0 ? comment : undefined, op: index, body });
        if (step !== undefined) steps.push(step);
      });
    };
    strand.ops.forEach((op, index) => {
      if (op.kind !== "pipeline") {
        one(op, index, undefined);
        return;
      }
      const at = { comment: commentOf(plan, op), op: index, body: undefined };
      steps.push({ kind: "loop", numbers: [op.numChunks, op.unitBytes], ...at });
      op.body.forEach((inner, i) => {
        one(inner, index, i);
      });
      steps.push({ kind: "end-loop", numbers: [], op: index, body: undefined });
    });
    return mergeSources(signalsFirst(steps));
  });
  return { lowered, strands };
}

const placeKey = (op: number, body: number | undefined) => `${op} ${body ?? ""}`;

function recordsByPlace(records: readonly StrandRecord[]): Map<string, StrandRecord["record"][]> {
  const found = new Map<string, StrandRecord["record"][]>();
  for (const { record, op, body } of records) {
    if (record.code === "loop" || record.code === "repeat" || record.code === "end") continue;
    const key = placeKey(op, body);
    const list = found.get(key);
    if (list === undefined) found.set(key, [record]);
    else list.push(record);
  }
  return found;
}

function commentOf(plan: ExecutionPlan, op: Op): string {
  const at = op.source === undefined ? undefined : plan.sources[op.source];
  const where = at === undefined ? "" : `  ${at.file.split(/[\\/]/).at(-1)}:${at.line}`;
  const text = op.kind === "pipeline" ? `pipeline: ${op.numChunks} chunks by ${op.unitBytes} bytes` : formatOp(op);
  return `${text}${where}`;
}

const COUNTING = ["launches", "taken", "locked"] as const;

/** How often the strands of a rank wait for each counter, and so how the waits know what to wait for. */
class WaitCounts {
  readonly #perLaunch = new Map<number, number>();
  /** Index in COUNTING, by counter: alike for all counters of one operation. */
  readonly #counting = new Map<number, number>();
  readonly #before = new Map<string, number>();

  constructor(lowered: LoweredRank) {
    const strandOf = new Map<number, number>();
    const together: (readonly number[])[] = [];
    lowered.strands.forEach((records, strand) => {
      for (const { record, body } of records) {
        if (record.code !== "wait") continue;
        together.push(record.counters.map(({ id }) => id));
        for (const { id, times } of record.counters) {
          this.#perLaunch.set(id, (this.#perLaunch.get(id) ?? 0) + times);
          const alone = (strandOf.get(id) ?? strand) === strand;
          strandOf.set(id, strand);
          this.#raise(id, alone ? (body === undefined ? 0 : 1) : 2);
        }
      }
    });
    for (let changed = true; changed; ) {
      changed = false;
      for (const ids of together) {
        const most = Math.max(...ids.map((id) => this.#counting.get(id)!));
        for (const id of ids) changed = this.#raise(id, most) || changed;
      }
    }
  }

  #raise(id: number, level: number): boolean {
    const now = this.#counting.get(id) ?? -1;
    this.#counting.set(id, Math.max(now, level));
    return level > now;
  }

  /** The numbers of a wait, and how its targets are known. Call it for the waits of a strand in their order. */
  next(strand: number, record: Extract<SyncRecord, { code: "wait" }>): Pick<WaitStep, "counting" | "numbers"> {
    const level = Math.max(0, ...record.counters.map(({ id }) => this.#counting.get(id)!));
    const numbers = record.counters.flatMap(({ id, times }) => {
      const key = `${strand} ${id}`;
      const before = this.#before.get(key) ?? 0;
      this.#before.set(key, before + times);
      return level > 0 ? [id, times, 0, 0] : [id, times, before, this.#perLaunch.get(id)!];
    });
    return { counting: COUNTING[level]!, numbers };
  }
}

function stepOf(
  rank: number,
  strand: number,
  record: DataRecord | SyncRecord,
  waits: WaitCounts,
  at: { readonly comment: string | undefined; readonly op: number; readonly body: number | undefined },
): Step | undefined {
  switch (record.code) {
    case "signal": {
      const numbers = record.counters.flatMap((ref) => [ref.rank, ref.counter]);
      return { kind: "signal", relaxed: record.relaxed, count: record.counters.length, numbers, ...at };
    }
    case "wait":
      return { kind: "wait", count: record.counters.length, ...waits.next(strand, record), ...at };
    case "acquire": {
      const numbers = record.semaphores.flatMap(({ id, times }) => [id, times]);
      return { kind: "acquire", count: record.semaphores.length, numbers, ...at };
    }
    case "release":
      return {
        kind: "release",
        count: record.semaphores.length,
        numbers: record.semaphores.flatMap((id) => [id, 1]),
        ...at,
      };
    case "barrier":
      return { kind: "barrier", numbers: [record.barrier, record.numStrands], ...at };
    case "loop":
    case "repeat":
    case "end":
      return undefined;
    default: {
      const place = (stretch: Stretch): Place => ({
        own: stretch.rank === rank,
        buffer: stretch.packets ? "packets" : stretch.buffer,
      });
      const numbers = [record.chunks, record.from, record.to, record.tbg?.index ?? 0];
      for (const { rank: of, buffer, segment, chunk } of [...record.ins, ...record.outs])
        numbers.push(of, buffer === "scratch" ? 0 : segment, chunk);
      return {
        kind: "data",
        code: record.code,
        reduce: record.op,
        raw: record.raw,
        windowed: record.windowed,
        parts: record.tbg?.size ?? 1,
        ins: record.ins.map(place),
        outs: record.outs.map(place),
        numbers,
        ...at,
      };
    }
  }
}

/** Whether threads of a block may stand in the step until a packet comes. */
function awaitsPackets(step: Step): boolean {
  return step.kind === "data" && !step.raw && step.ins.some(({ buffer }) => buffer === "packets");
}

/**
 * Moves relaxed signals before packets that are waited for, up to the last block-wide synchronisation: a signal that only
 * counts must not wait for them (docs/semantics.md, section 2; `packet-lookahead.ts` of the verifier).
 */
function signalsFirst(steps: readonly Step[]): Step[] {
  const result: Step[] = [];
  for (const step of steps) {
    if (step.kind === "signal" && step.relaxed) {
      let at = result.length;
      let first = at;
      while (at > 0) {
        const before = result[at - 1]!;
        if (before.kind !== "data" && !(before.kind === "signal" && before.relaxed)) break;
        at--;
        if (awaitsPackets(before)) first = at;
      }
      result.splice(first, 0, step);
    } else result.push(step);
  }
  return result;
}

/** Joins copies, and what an operation packs, from one source to several places, so that it is loaded once. */
function mergeSources(steps: readonly Step[]): Step[] {
  const result: Step[] = [];
  const { places, perPlace } = DATA_NUMBERS;
  for (const step of steps) {
    const last = result.at(-1);
    if (
      step.kind === "data" &&
      (step.code === "pack" || step.code === "copy") &&
      last?.kind === "data" &&
      last.code === step.code &&
      last.parts === step.parts &&
      last.windowed === step.windowed &&
      (step.code === "copy" || last.op === step.op) &&
      last.ins[0]!.own === step.ins[0]!.own &&
      last.ins[0]!.buffer === step.ins[0]!.buffer &&
      Array.from({ length: places + perPlace }, (_, i) => last.numbers[i] === step.numbers[i]).every(Boolean)
    ) {
      const numbers = [...last.numbers, ...step.numbers.slice(places + perPlace)];
      const comments = [last.comment, step.comment].filter((text) => text !== undefined);
      const comment = comments.length === 0 ? undefined : comments.join("; ");
      result[result.length - 1] = { ...last, comment, outs: [...last.outs, ...step.outs], numbers };
    } else result.push(step);
  }
  return result;
}

/** Whether the plan names operators in its operations other than the collective's. */
export function reduceOpsOf(plan: ExecutionPlan): ReadonlySet<PlanReduceOp> {
  const found = new Set<PlanReduceOp>();
  for (const { strands } of plan.ranks)
    for (const { ops } of strands) for (const op of ops.flatMap(bodyOf)) if ("op" in op) found.add(op.op);
  return found;
}

/** Whether the step reads or writes packets. */
export function hasPackets(step: Step): step is DataStep {
  return step.kind === "data" && [...step.ins, ...step.outs].some(({ buffer }) => buffer === "packets");
}

/** Whether the step reads or writes a buffer of another rank. */
export function reachesBuffers(step: Step): boolean {
  return step.kind === "data" && [...step.ins, ...step.outs].some((place) => !place.own && isUser(place));
}

/** Whether the step writes scratch, its own rank's or another's. */
export function writesScratch(step: Step): step is DataStep {
  return step.kind === "data" && step.outs.some(isScratch);
}

const isScratch = ({ buffer }: Place) => buffer === "scratch" || buffer === "packets";

/**
 * Of each rank: the peers that read or write scratch that it writes, too. Those must be done with a slot of scratch before the
 * rank writes there again.
 */
export function scratchPeers(ranks: readonly RankSteps[]): readonly ReadonlySet<number>[] {
  const { places, perPlace } = DATA_NUMBERS;
  const users = ranks.map(() => new Set<number>());
  const written = ranks.map(() => new Set<number>());
  ranks.forEach(({ strands }, rank) => {
    for (const step of strands.flat()) {
      if (step.kind !== "data") continue;
      [...step.ins, ...step.outs].forEach((place, i) => {
        if (!isScratch(place)) return;
        const owner = step.numbers[places + perPlace * i] as number;
        users[owner]?.add(rank);
        if (i >= step.ins.length) written[rank]?.add(owner);
      });
    }
  });
  return ranks.map(
    (_, rank) => new Set([...written[rank]!].flatMap((owner) => [...users[owner]!]).filter((peer) => peer !== rank)),
  );
}

/**
 * Whether no rank ends a launch that has bytes before all peers have begun it that use scratch which it writes: each has sent it
 * packets. Of a part's chunks the first alone has bytes at every size.
 */
export function hearsScratchPeers(ranks: readonly RankSteps[]): boolean {
  const { from, to, places, perPlace } = DATA_NUMBERS;
  const writers = new Map<string, Set<number>>();
  const heard = ranks.map(() => new Set<number>());
  const eachPlace = (visit: (rank: number, step: DataStep, place: Place, numbers: readonly number[]) => void) =>
    ranks.forEach(({ strands }, rank) => {
      for (const step of strands.flat())
        if (step.kind === "data")
          [...step.ins, ...step.outs].forEach((place, i) => {
            visit(rank, step, place, step.numbers.slice(places + perPlace * i, places + perPlace * (i + 1)));
          });
    });
  eachPlace((rank, step, place, [owner, , chunk]) => {
    if (place.buffer !== "packets" || !step.outs.includes(place)) return;
    for (let k = 0; k < step.numbers[to]! - step.numbers[from]!; k++) {
      const key = `${owner} ${chunk! + k}`;
      const known = writers.get(key) ?? new Set();
      // What is passed on as it lies there says nothing of the launch that passes it on.
      writers.set(key, known.add(step.raw ? -1 : rank));
    }
  });
  const isNeverEmpty = (step: DataStep) =>
    !step.windowed &&
    step.parts === 1 &&
    step.numbers[from] === 0 &&
    [...step.ins, ...step.outs].every((place, i) => !isUser(place) || step.numbers[places + perPlace * i + 2] === 0);
  eachPlace((rank, step, place, [owner, , chunk]) => {
    const isAwaited = place.buffer === "packets" && step.ins.includes(place) && awaitsPackets(step);
    const [writer, ...others] = writers.get(`${owner} ${chunk}`) ?? [];
    if (isAwaited && writer !== undefined && others.length === 0 && isNeverEmpty(step)) heard[rank]!.add(writer);
  });
  return scratchPeers(ranks).every((peers, rank) => [...peers].every((peer) => heard[rank]!.has(peer)));
}

/** Packet operations of several chunks as one for each chunk: where lines of packets begin anew with every chunk. */
export function oneChunkEach(steps: readonly Step[]): Step[] {
  const { places, perPlace, from, to } = DATA_NUMBERS;
  return steps.flatMap((step) => {
    if (!hasPackets(step) || step.parts > 1) return [step];
    const [first, end] = [step.numbers[from]!, step.numbers[to]!];
    return Array.from({ length: end - first }, (_, k) => {
      const moved = step.numbers.slice(places).map((n, i) => (i % perPlace === perPlace - 1 ? n + k : n));
      return { ...step, comment: k === 0 ? step.comment : undefined, numbers: [1, 0, 1, 0, ...moved] };
    });
  });
}
