/**
 * Plans on a group of threads: what the members of a group share of a plan (counters, where each one's scratch lies), and
 * this rank's prepared plans. A shared block is found by a key, the first to come makes it, the last to let go frees it.
 */
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import type { DType } from "../../../core/index.ts";
import {
  COUNTER_BYTES,
  type KernelOp,
  PAGE_BYTES,
  PreparedPlan,
  REACHES,
  type Reach,
  strandLines,
  strandPositions,
} from "../../executor/internal.ts";
import type { Heap } from "./heap.ts";
import { GROUP, LINE } from "./layout.ts";
import type { ProtocolExports } from "./protocol.ts";
import { hashesOf } from "./verdict-table.ts";

/**
 * Plans that a rank keeps prepared in a group; the one that was not run for longest makes room. All ranks make the same
 * calls in the same order, so all let go of the same ones.
 */
const MAX_PREPARED = 64;

/** Start of a shared block. The ranks' words follow, then their contexts, their states and their counters. */
const BLOCK = { next: 0, key: 4, references: 20, ranks: LINE } as const;
const KEY_WORDS = 4;

/** What the plans of a group need of its engine. */
interface PlanEngine {
  readonly heap: Heap;
  readonly wasm: ProtocolExports;
  readonly member: number;
  /** Address of the group's block. */
  readonly block: number;
  readonly size: number;
  readonly me: number;
  /** Where the tables of the ranks' inputs and outputs are, as indices of words. */
  readonly inWords: number;
  readonly outWords: number;
  readonly nextSeq: number;
}

/** A plan that is ready to run on this rank. */
export interface PlanRun {
  readonly prepared: PreparedPlan;
  /** Address of the block that the ranks share. */
  readonly block: number;
  readonly hash: string;
  /** The hash as a word of a call's fingerprint. */
  readonly hashWord: number;
  /** The operator of its reductions. */
  readonly op: KernelOp;
  /** What it is kept by. */
  readonly name: string;
  /** Whoever issues a call of it notes that it was used. */
  readonly use: PlanUse;
}

/** Whether a plan is still kept, and since when it was not run. */
interface PlanUse {
  isKept: boolean;
  /** Number of the call that used it last. */
  seq: number;
}

const roundUp = (bytes: number) => Math.ceil(bytes / LINE) * LINE;

/** Where the parts of a shared block are, from its beginning. */
function blockLayout(plan: ExecutionPlan) {
  const n = plan.ranks.length;
  const contexts = BLOCK.ranks + roundUp(16 * n);
  const states = contexts + roundUp(4 * n);
  const stateBytes = roundUp(PreparedPlan.stateBytes(plan));
  const counters = states + n * stateBytes;
  const counterBytes = PreparedPlan.counterBytes(plan);
  return { contexts, states, stateBytes, counters, counterBytes, sizeBytes: counters + n * counterBytes };
}

export class PlanRuns {
  readonly #engine: PlanEngine;
  readonly #open = new Map<string, PlanRun>();
  /** A repeated call finds it without making the name. */
  #latest: PlanRun | undefined;
  /** Plans that made room: calls numbered below `until` may still run them, on this rank or another. */
  readonly #retired: { readonly run: PlanRun; readonly until: number }[] = [];

  constructor(engine: PlanEngine) {
    this.#engine = engine;
  }

  /**
   * This rank's prepared plan for a dtype and operator, made if need be.
   * @param hash of the plan, 16 hexadecimal digits
   * @throws OutOfMemoryError, InvalidArgumentError
   */
  open(plan: ExecutionPlan, hash: string, dtype: DType, op: KernelOp): PlanRun {
    const latest = this.#latest;
    const isLatest = latest?.hash === hash && latest.prepared.dtype === dtype && latest.op === op && latest.use.isKept;
    const found = isLatest ? latest : this.#find(plan, hash, dtype, op);
    found.use.seq = this.#engine.nextSeq;
    this.#latest = found;
    return found;
  }

  #find(plan: ExecutionPlan, hash: string, dtype: DType, op: KernelOp): PlanRun {
    const name = `${hash} ${dtype} ${op}`;
    const known = this.#open.get(name);
    if (known !== undefined) return known;
    const engine = this.#engine;
    const { heap, me } = engine;
    const layout = blockLayout(plan);
    const block = this.#share(name, layout.sizeBytes);
    // Sees to it that this thread sees all of it: another one may have grown the memory for it.
    heap.words(block + layout.sizeBytes);
    const own = (at: number, stride: number, rank: number) => block + at + stride * rank;
    const tables = { input: engine.inWords * 4, output: engine.outWords * 4 };
    const transport = {
      map: (rank: number, buffer: Reach) =>
        buffer === "input" || buffer === "output"
          ? tables[buffer] + 4 * rank
          : block + this.#rankWords(rank) + 4 * REACHES.indexOf(buffer),
      signal: (rank: number, counter: number) =>
        own(layout.counters, layout.counterBytes, rank) + COUNTER_BYTES * counter,
      wait: (counter: number) => own(layout.counters, layout.counterBytes, me) + COUNTER_BYTES * counter,
      state: own(layout.states, layout.stateBytes, me),
    };
    let prepared: PreparedPlan;
    try {
      const { wasm: machine, member: bell } = engine;
      prepared = new PreparedPlan({ plan, rank: me, dtype, op, memory: heap, transport, machine, bell, meets: true });
    } catch (error) {
      this.#release(block);
      throw error;
    }
    heap.words(block + layout.sizeBytes)[own(layout.contexts, 4, me) / 4] = prepared.context;
    const hashWord = Number.parseInt(hash.slice(0, 8), 16) ^ Number.parseInt(hash.slice(8), 16);
    const made = { prepared, block, hash, hashWord, op, name, use: { isKept: true, seq: engine.nextSeq } };
    if (this.#open.size >= MAX_PREPARED) this.#forgetOldest();
    this.#open.set(name, made);
    return made;
  }

  /** Of plans that the same call used, the one that was opened first. */
  #forgetOldest(): void {
    let oldest: PlanRun | undefined;
    for (const run of this.#open.values()) if (oldest === undefined || run.use.seq < oldest.use.seq) oldest = run;
    if (oldest === undefined) return;
    oldest.use.isKept = false;
    this.#open.delete(oldest.name);
    this.#retired.push({ run: oldest, until: this.#engine.nextSeq });
  }

  /** Whether `arrived` has anything to do. */
  get hasRetired(): boolean {
    return this.#retired.length > 0;
  }

  /** Is told that all ranks have come to call `seq`: they are done with all before it. */
  arrived(seq: number): void {
    while (this.#retired.length > 0 && (this.#retired[0]?.until ?? 0) <= seq) {
      const { prepared, block } = (this.#retired.shift() as { run: PlanRun }).run;
      prepared.close();
      this.#release(block);
    }
  }

  /**
   * Lets go of everything. What other ranks may still use goes with the last of them.
   * @param failed a call may have ended here that others are still at
   */
  close(failed: boolean): void {
    const { heap, me } = this.#engine;
    for (const { prepared, block } of [...this.#open.values(), ...this.#retired.map(({ run }) => run)]) {
      const { contexts, sizeBytes } = blockLayout(prepared.plan);
      // Nobody may look up where this rank stands any more.
      heap.words(block + sizeBytes)[(block + contexts) / 4 + me] = 0;
      prepared.leave(failed);
      this.#release(block);
    }
    this.#open.clear();
    this.#latest = undefined;
    this.#retired.length = 0;
  }

  /** Finds the block of a key among those of the group, or makes it; counts this rank as a user. */
  #share(name: string, sizeBytes: number): number {
    const { heap, block: group } = this.#engine;
    const key = keyOf(name);
    const use = (): number => {
      let at = heap.words()[(group + GROUP.plans) / 4]! >>> 0;
      while (at !== 0) {
        const words = heap.words(at + LINE);
        const found = (at + BLOCK.key) / 4;
        if (key.every((word, i) => words[found + i] === word)) {
          words[(at + BLOCK.references) / 4]! += 1;
          return at;
        }
        at = words[(at + BLOCK.next) / 4]! >>> 0;
      }
      return 0;
    };
    const found = heap.locked(use);
    if (found !== 0) return found;
    const made = heap.allocate(sizeBytes);
    const words = heap.words(made + sizeBytes);
    words.set(key, (made + BLOCK.key) / 4);
    const winner = heap.locked(() => {
      const other = use();
      if (other !== 0) return other;
      words[(made + BLOCK.references) / 4] = 1;
      words[(made + BLOCK.next) / 4] = words[(group + GROUP.plans) / 4]!;
      words[(group + GROUP.plans) / 4] = made;
      return made;
    });
    if (winner !== made) heap.free(made);
    return winner;
  }

  #release(block: number): void {
    const { heap, block: group } = this.#engine;
    const last = heap.locked(() => {
      const words = heap.words(block + LINE);
      words[(block + BLOCK.references) / 4]! -= 1;
      if (words[(block + BLOCK.references) / 4]! > 0) return false;
      let at = (group + GROUP.plans) / 4;
      while (words[at]! >>> 0 !== block) at = ((words[at]! >>> 0) + BLOCK.next) / 4;
      words[at] = words[(block + BLOCK.next) / 4]!;
      return true;
    });
    if (!last) return;
    const words = heap.words(block + this.#rankWords(this.#engine.size));
    for (let rank = 0; rank < this.#engine.size; rank++) {
      for (const buffer of ["scratch", "packets"] as const) {
        const address = words[(block + this.#rankWords(rank)) / 4 + REACHES.indexOf(buffer)]! >>> 0;
        if (address !== 0) heap.free(address);
      }
    }
    heap.free(block);
  }

  #rankWords(rank: number): number {
    return BLOCK.ranks + 16 * rank;
  }

  /** What the strands of a rank of the group wait for, as text; none once the rank has ended the plan. */
  waiting(plan: ExecutionPlan, block: number, rank: number): readonly string[] {
    const { heap } = this.#engine;
    const layout = blockLayout(plan);
    const context = heap.words(block + layout.sizeBytes)[(block + layout.contexts) / 4 + rank]! >>> 0;
    if (context === 0) return [];
    return strandLines(plan, rank, strandPositions(heap.words(context + PAGE_BYTES), context));
  }
}

/** The words by which the ranks find a block: two hashes of the name, the plan's own hash, and its length. */
function keyOf(name: string): readonly number[] {
  return [...hashesOf(name), Number.parseInt(name.slice(0, 8), 16) | 0, name.length].slice(0, KEY_WORDS);
}
