/**
 * Plans on ranks that are threads of one host. Unlike a GPU's blocks, the strands of a rank share one core: it runs a
 * strand until that has to wait, then the next one, as the CPU executor does. What an operation costs is its start and
 * its bytes at the rate of its kind; signals and packets are seen by other ranks after a latency.
 */
import { busFactor, OPERATION_NAMES, type OperationName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { CpuCosts } from "../../machine/cost/index.ts";
import {
  bodyOf,
  type ChannelKind,
  channelOrdinal,
  type ExecutionPlan,
  type Op,
  type Range,
  type SimpleOp,
  shapeOf,
} from "../plan/index.ts";
import { requireShape } from "../verifier/index.ts";
import { iterationsOf, share } from "./run-state.ts";

export interface CpuSimulation {
  readonly sizeBytes: number;
  readonly timeUs: number;
  readonly algbwGBps: number;
  readonly busbwGBps: number;
  /** False when ranks got stuck: the time is then that of the last thing that happened. */
  readonly completed: boolean;
}

/** More steps than this are a plan that should be timed by running it. */
const MAX_STEPS = 20_000_000;

/** When a strand may go on: now, at a time that is known, or when another rank has done something. */
type Wake = "now" | "unknown" | number;

interface StrandState {
  readonly ops: readonly Op[];
  next: number;
  /** Inside a pipeline: the operation of its body, and how often the body has run. */
  body: number;
  iteration: number;
  /** The turn of the barrier at which the strand waits. */
  cameInTurn: number | undefined;
}

/** A counter: when each signal is seen, in order; how many were taken. */
interface Counter {
  readonly seen: number[];
  /** Below 0 while what a semaphore began with is left. */
  taken: number;
  /** The strands that wait for it. */
  readonly rank: number;
}

class CpuRun {
  readonly #plan: ExecutionPlan;
  readonly #costs: CpuCosts;
  readonly #chunkBytes: number;
  readonly #copyRate: number;
  readonly #reduceRate: number;
  readonly #clocks: number[];
  readonly #strands: StrandState[][];
  readonly #counters = new Map<string, Counter>();
  readonly #packets = new Map<string, number>();
  readonly #barriers = new Map<string, { came: number; turn: number }>();
  readonly #ready: number[] = [];
  #steps = 0;

  constructor(plan: ExecutionPlan, sizeBytes: number, costs: CpuCosts) {
    this.#plan = plan;
    this.#costs = costs;
    const { chunksPerPart, exact } = shapeOf(plan);
    const most = Math.max(1, ...plan.ranks.flatMap(({ input, output }) => [input.segments, output.segments]));
    const part = sizeBytes / (exact ? 1 : most);
    this.#chunkBytes = part / Math.max(1, chunksPerPart);
    let working = 0;
    for (const { input, output, scratch } of plan.ranks) {
      working += (input.chunks + output.chunks + scratch.chunks) * this.#chunkBytes;
    }
    const outside = working / (working + costs.cacheBytes);
    // A share of the time per byte, in microseconds: 1 GB/s is 1000 bytes a microsecond.
    const rate = (cached: number, memory: number) => 1000 / ((1 - outside) / cached + outside / memory);
    this.#copyRate = rate(costs.cachedCopyGBps, Math.min(costs.copyGBps, costs.cachedCopyGBps));
    this.#reduceRate = rate(costs.cachedReduceGBps, Math.min(costs.reduceGBps, costs.cachedReduceGBps));
    this.#clocks = plan.ranks.map(() => costs.callUs);
    this.#strands = plan.ranks.map(({ strands }) =>
      strands.map(({ ops }) => ({ ops, next: 0, body: 0, iteration: 0, cameInTurn: undefined })),
    );
  }

  run(): { readonly timeUs: number; readonly completed: boolean } {
    // Whoever is over the limit for sure learns it at once; otherwise tries that had to wait count, too.
    for (const { strands } of this.#plan.ranks)
      for (const { ops } of strands) for (const op of ops) this.#count(this.#turnsOf(op) * bodyOf(op).length);
    this.#steps = 0;
    this.#ready.push(...this.#plan.ranks.map(({ rank }) => rank));
    for (let rank = this.#ready.shift(); rank !== undefined; rank = this.#ready.shift()) this.#advance(rank);
    const completed = this.#strands.every((strands) => strands.every(({ ops, next }) => next === ops.length));
    return { timeUs: Math.max(...this.#clocks), completed };
  }

  /** Runs a rank until its strands are done, or all wait for what no other rank has done yet. */
  #advance(rank: number): void {
    const strands = this.#strands[rank] as StrandState[];
    for (;;) {
      let progressed = false;
      let earliest = Number.POSITIVE_INFINITY;
      for (const strand of strands) {
        for (let op = this.#current(strand); op !== undefined; op = this.#current(strand)) {
          const wake = this.#step(rank, strand, op);
          if (wake !== "now") {
            if (wake !== "unknown") earliest = Math.min(earliest, wake);
            break;
          }
          strand.body++;
          progressed = true;
        }
      }
      if (progressed) continue;
      if (earliest === Number.POSITIVE_INFINITY) return;
      this.#clocks[rank] = Math.max(this.#clocks[rank] as number, earliest);
    }
  }

  #count(steps: number): void {
    this.#steps += steps;
    if (this.#steps > MAX_STEPS)
      throw new InvalidArgumentError("plan", described("of more operations"), `at most ${MAX_STEPS} at this size`);
  }

  #turnsOf(op: Op): number {
    return op.kind === "pipeline" ? iterationsOf(this.#chunkBytes, op) : 1;
  }

  /** The operation that a strand stands at; undefined at its end. */
  #current(strand: StrandState): SimpleOp | undefined {
    for (; strand.next < strand.ops.length; strand.next++, strand.body = 0, strand.iteration = 0) {
      const outer = strand.ops[strand.next] as Op;
      const body = bodyOf(outer);
      if (strand.body === body.length) {
        strand.body = 0;
        strand.iteration++;
      }
      if (body.length > 0 && strand.iteration < this.#turnsOf(outer)) return body[strand.body];
    }
    return undefined;
  }

  #wakeUp(rank: number): void {
    if (!this.#ready.includes(rank)) this.#ready.push(rank);
  }

  /** Does one operation, if it need not wait. */
  #step(rank: number, strand: StrandState, op: SimpleOp): Wake {
    this.#count(1);
    const wake = this.#waits(rank, strand, op);
    if (wake !== "now") return wake;
    const { opUs } = this.#costs;
    const outer = strand.ops[strand.next];
    const pipeline = outer?.kind === "pipeline" ? outer : undefined;
    const packets = op.kind === "reduce" ? op.packets : "format" in op && op.format !== "plain";
    const bytes = ({ size }: { readonly size: number }) =>
      share(strand, this.#chunkBytes, op, size, pipeline, packets).bytes;
    const all = (ranges: readonly { readonly size: number }[]) => ranges.reduce((sum, one) => sum + bytes(one), 0);
    const packetUs = (amount: number) => amount / (1000 * this.#costs.packetGBps);
    let us = opUs;
    switch (op.kind) {
      case "copy":
        us += op.format === "plain" ? bytes(op.src) / this.#copyRate : packetUs(bytes(op.src));
        break;
      case "get":
        us += all(op.dst) / this.#copyRate;
        break;
      case "put":
        us += op.format === "plain" ? all(op.dst) / this.#copyRate : packetUs(all(op.dst));
        break;
      case "reduce": {
        const own = bytes(op.dst);
        const operands = (op.packets ? 1 : op.src.length) + op.remoteSrc.length;
        us += (operands * own) / this.#reduceRate;
        if (op.packets) us += packetUs((op.src.length - 1 + op.remoteDst.length) * own);
        else us += (op.remoteDst.length * own) / this.#copyRate;
        break;
      }
      case "switch-reduce":
        us += (this.#members(rank, op.src.channel) * bytes(op.dst)) / this.#reduceRate;
        break;
      case "switch-broadcast":
        us += (this.#members(rank, op.dst.channel) * bytes(op.src)) / this.#copyRate;
        break;
      case "switch-reduce-broadcast": {
        const members = this.#members(rank, op.src.channel);
        us += members * bytes(op.src) * (1 / this.#reduceRate + 1 / this.#copyRate);
        break;
      }
      default:
    }
    const now = (this.#clocks[rank] as number) + us;
    this.#clocks[rank] = now;
    this.#tell(rank, op, now + this.#costs.signalUs);
    return "now";
  }

  #members(rank: number, channel: number): number {
    return this.#plan.ranks[rank]?.channels.switch[channel]?.ranks.length ?? 1;
  }

  /** Whether an operation has to wait, and takes what it waits for when it need not. */
  #waits(rank: number, strand: StrandState, op: SimpleOp): Wake {
    const now = this.#clocks[rank] as number;
    if (op.kind === "wait" || op.kind === "acquire") {
      const counters =
        op.kind === "wait"
          ? op.channels.map((id) => this.#channel(rank, op.channelKind, id, false))
          : op.semaphores.map((id) => this.#semaphore(rank, id));
      let latest = now;
      for (const { seen, taken } of counters) {
        const at = taken < 0 ? 0 : seen[taken];
        if (at === undefined) return "unknown";
        latest = Math.max(latest, at);
      }
      if (latest > now) return latest;
      for (const counter of counters) counter.taken++;
      return "now";
    }
    if (op.kind === "barrier") return this.#meets(rank, strand, op.barrier, op.numStrands);
    let latest = now;
    for (const range of packetRanges(op)) {
      for (let c = range.index; c < range.index + range.size; c++) {
        const at = this.#packets.get(`${rank}.${c}`);
        if (at === undefined) return "unknown";
        latest = Math.max(latest, at);
      }
    }
    return latest > now ? latest : "now";
  }

  /** A strand comes to a barrier once; the last one lets all of them pass. */
  #meets(rank: number, strand: StrandState, barrier: number, numStrands: number): Wake {
    const key = `${rank}.${barrier}`;
    const state = this.#barriers.get(key) ?? { came: 0, turn: 0 };
    this.#barriers.set(key, state);
    if (strand.cameInTurn !== undefined) {
      if (state.turn === strand.cameInTurn) return "unknown";
      strand.cameInTurn = undefined;
      return "now";
    }
    state.came++;
    if (state.came < numStrands) {
      strand.cameInTurn = state.turn;
      return "unknown";
    }
    state.came = 0;
    state.turn++;
    return "now";
  }

  #tell(rank: number, op: SimpleOp, seenAt: number): void {
    if (op.kind === "signal" || (op.kind === "put" && op.notify !== "none")) {
      for (const id of op.channels) {
        const counter = this.#channel(rank, op.channelKind, id, true);
        counter.seen.push(seenAt);
        this.#wakeUp(counter.rank);
      }
    } else if (op.kind === "release") {
      for (const id of op.semaphores) this.#semaphore(rank, id).seen.push(this.#clocks[rank] as number);
    }
    const post = (to: number, range: { readonly index: number; readonly size: number }, at: number) => {
      for (let c = range.index; c < range.index + range.size; c++) this.#packets.set(`${to}.${c}`, at);
      this.#wakeUp(to);
    };
    if (op.kind === "copy" && op.format === "pack") post(rank, op.dst, this.#clocks[rank] as number);
    if (op.kind === "put" && op.format !== "plain") for (const range of op.dst) post(range.rank, range, seenAt);
    if (op.kind === "reduce" && op.packets) {
      for (const range of op.remoteDst) post(range.rank, range, seenAt);
      if (op.packetDst !== undefined) post(rank, op.packetDst, this.#clocks[rank] as number);
    }
  }

  /** The n-th channel to a peer meets that peer's n-th channel to this rank. */
  #channel(rank: number, kind: ChannelKind, id: number, out: boolean): Counter {
    const peers = this.#plan.ranks[rank]?.channels[kind] ?? [];
    const peer = peers[id] ?? rank;
    const [from, to] = out ? [rank, peer] : [peer, rank];
    return this.#counter(`${kind}${from}>${to}.${channelOrdinal(peers, id)}`, to, 0);
  }

  #semaphore(rank: number, id: number): Counter {
    return this.#counter(`s${rank}.${id}`, rank, this.#plan.ranks[rank]?.semaphores[id]?.initialValue ?? 0);
  }

  #counter(key: string, rank: number, initial: number): Counter {
    let counter = this.#counters.get(key);
    if (counter === undefined) {
      counter = { seen: [], taken: -initial, rank };
      this.#counters.set(key, counter);
    }
    return counter;
  }
}

/** The packets that an operation reads from its own scratch. */
function packetRanges(op: SimpleOp): readonly Range[] {
  if (op.kind === "copy") return op.format === "unpack" ? [op.src] : [];
  if (op.kind === "put") return op.format === "forward" ? op.src : [];
  return op.kind === "reduce" && op.packets ? op.src.slice(1) : [];
}

export interface SimulateCpuOptions {
  /** The size that nccl-tests prints: bytes of the larger of a rank's two buffers. */
  readonly sizeBytes: number;
  readonly costs: CpuCosts;
  /** The ranks need not meet when one of them is done: see `PlanProof`. They meet by default. */
  readonly endsAlone?: boolean;
}

/**
 * Times a plan on ranks that are threads of one host, in f32.
 * @throws InvalidArgumentError for a size below 0, or at which the plan's pipelines take too many turns
 * @throws PlanError when the plan does not hold together
 * @example
 * import { ringAllReduce } from "chorale/algorithms";
 * import { DEFAULT_CPU_COSTS, simulateCpu } from "chorale/simulator";
 *
 * const plan = ringAllReduce({ numRanks: 2 }).plan();
 * simulateCpu(plan, { sizeBytes: 65536, costs: DEFAULT_CPU_COSTS }).completed // true
 */
export function simulateCpu(plan: ExecutionPlan, options: SimulateCpuOptions): CpuSimulation {
  const { sizeBytes, costs, endsAlone = false } = options;
  if (!(sizeBytes >= 0) || sizeBytes > 2 ** 50)
    throw new InvalidArgumentError("sizeBytes", sizeBytes, "0 to 2^50 bytes");
  requireShape(plan);
  const { timeUs: end, completed } = new CpuRun(plan, sizeBytes, costs).run();
  const timeUs = end + (endsAlone ? 0 : costs.meetUs);
  const algbwGBps = timeUs === 0 ? 0 : sizeBytes / timeUs / 1000;
  const { operation, numRanks } = plan.collective;
  const known = (OPERATION_NAMES as readonly string[]).includes(operation);
  const factor = known ? busFactor(operation as OperationName, numRanks) : 1;
  return { sizeBytes, timeUs, algbwGBps, busbwGBps: algbwGBps * factor, completed };
}
