/**
 * What each rank moves between the two synchronisations of a collective. Every rank sees all buffers, so all are one
 * pass over memory: a share is read from wherever it is, reduced in rank order if need be, and stored wherever it
 * belongs. Shares are cut so that all ranks have the same work, in whole cache lines.
 */
import {
  DTYPE_NAMES,
  type DType,
  isLegal,
  type NamedReduceOp,
  REDUCE_OPS,
  type ReduceOp,
  wordTable,
} from "../../../core/index.ts";
import { COPY_KERNEL, KERNEL_INDEX } from "../../executor/internal.ts";
import type { ProtocolExports } from "./protocol.ts";
import type { Parts } from "./threads-work.ts";

const UNIT = 128;
/** Parts that are smaller share cache lines: each rank then reads all of them, where each would write to everybody's lines. */
const LEAST_PUSHED_BYTES = 128;
export const COPY = COPY_KERNEL;

/** First byte of rank `r`'s share of `bytes`; the share ends where the next one starts. */
export function shareStart(bytes: number, r: number, n: number): number {
  return Math.min(bytes, Math.floor((Math.ceil(bytes / UNIT) * r) / n) * UNIT);
}

/** The kernel of an operator that the dtype has. */
export function kernelOf(dtype: DType, op: ReduceOp): number {
  return KERNEL_INDEX[dtype][typeof op === "string" ? op : "preMulSum"] as number;
}

/** Kernels by dtype and named operator. A program's words are looked up here before they are checked. */
const NAMED_KERNELS = wordTable(
  Object.fromEntries(DTYPE_NAMES.map((dtype) => [dtype, kernelsOf(dtype)])) as { [D in DType]: KernelTable },
);
type KernelTable = { readonly [O in NamedReduceOp]?: number };

function kernelsOf(dtype: DType): KernelTable {
  const legal = REDUCE_OPS.filter((op) => isLegal(op, dtype));
  return wordTable(Object.fromEntries(legal.map((op) => [op, kernelOf(dtype, op)])));
}

/** The kernel of a named operator; undefined for every other word, and where the dtype does not have it. */
function namedKernel(dtype: DType, word: unknown): number | undefined {
  return typeof word === "string" ? NAMED_KERNELS[dtype]?.[word as NamedReduceOp] : undefined;
}

/** As `namedKernel`, for programs that repeat themselves: looking two words up takes a tenth of a small all-reduce. */
export class LastKernel {
  #dtype: DType | undefined;
  #word: unknown;
  #kernel: number | undefined;

  of(dtype: DType, word: unknown): number | undefined {
    if (dtype !== this.#dtype || word !== this.#word) {
      this.#kernel = namedKernel(dtype, word);
      this.#dtype = dtype;
      this.#word = word;
    }
    return this.#kernel;
  }
}

/** The group in which data is moved, as its engine lays it out: addresses, and words of the shared memory. */
export interface MoveGroup {
  readonly size: number;
  /** This rank within the group. */
  readonly me: number;
  readonly ranks: readonly number[];
  readonly words: Int32Array;
  readonly wasm: ProtocolExports;
  readonly context: number;
  readonly fromTable: number;
  readonly toTable: number;
  readonly inWords: number;
  readonly outWords: number;
  readonly fromWords: number;
  readonly toWords: number;
  /** First word of the counts that a member published. */
  countsAt(member: number): number;
}

/** What of a call says which bytes are whose. */
interface MovedCall {
  readonly op: string;
  /** Bytes of a part. */
  readonly bytes: number;
  readonly kernel: number;
  readonly root: number;
  readonly output: number;
  readonly parts: Parts | undefined;
  /** Reads what peers published, of calls that move no tensors. */
  readonly collect?: (() => void) | undefined;
}

/** Moves this rank's share. @returns what is wrong between the ranks' arguments, as text, if anything */
export function moveShare(engine: MoveGroup, work: MovedCall): string | undefined {
  const { size: n, me, words, inWords, outWords, fromWords, toWords } = engine;
  const part = work.bytes;
  switch (work.op) {
    case "all_reduce": {
      const [start, end] = [shareStart(part, me, n), shareStart(part, me + 1, n)];
      if (start < end) {
        engine.wasm.reduce(work.kernel, inWords * 4, n, outWords * 4, n, start, end, engine.context);
      }
      return undefined;
    }
    case "broadcast": {
      const source = words[inWords + work.root]!;
      let targets = 0;
      for (let r = 0; r < n; r++) {
        const target = words[outWords + r]!;
        if (target !== source) words[toWords + targets++] = target;
      }
      words[fromWords] = source;
      run(engine, COPY, 1, targets, shareStart(part, me, n), shareStart(part, me + 1, n));
      return undefined;
    }
    case "reduce":
      for (let r = 0; r < n; r++) words[fromWords + r] = words[inWords + r]!;
      words[toWords] = words[outWords + work.root]!;
      run(engine, work.kernel, n, 1, shareStart(part, me, n), shareStart(part, me + 1, n));
      return undefined;
    case "all_gather":
    case "all_gather_v": {
      if (work.parts === undefined && part < LEAST_PUSHED_BYTES) return readParts(engine, 0, part);
      const offset = work.parts === undefined ? me * part : work.parts.offsets[me]!;
      const own = work.parts === undefined ? part : work.parts.sizes[me]!;
      const source = words[inWords + me]!;
      let targets = 0;
      for (let i = 0; i < n; i++) {
        const target = (words[outWords + ((me + i) % n)]! + offset) | 0;
        if (target !== source) words[toWords + targets++] = target;
      }
      words[fromWords] = source;
      run(engine, COPY, 1, targets, 0, own);
      return undefined;
    }
    case "reduce_scatter":
    case "reduce_scatter_v": {
      const offset = work.parts === undefined ? me * part : work.parts.offsets[me]!;
      const own = work.parts === undefined ? part : work.parts.sizes[me]!;
      for (let r = 0; r < n; r++) words[fromWords + r] = words[inWords + r]! + offset;
      words[toWords] = words[outWords + me]!;
      run(engine, work.kernel, n, 1, 0, own);
      return undefined;
    }
    case "all_to_all":
      return readParts(engine, me * part, part);
    case "all_to_all_v":
      return allToAllV(engine, work);
    case "gather":
      move(engine, words[inWords + me]!, words[outWords + work.root]! + me * part, part);
      return undefined;
    case "scatter":
      move(engine, words[inWords + work.root]! + me * part, words[outWords + me]!, part);
      return undefined;
    default:
      work.collect?.();
      return undefined;
  }
}

/** Runs a kernel over the first entries of the from- and to-tables. */
function run(engine: MoveGroup, kernel: number, inputs: number, outputs: number, start: number, end: number): void {
  if (start >= end || outputs === 0) return;
  engine.wasm.reduce(kernel, engine.fromTable, inputs, engine.toTable, outputs, start, end, engine.context);
}

/** Fills the output with the part at `offset` of everybody's input. */
function readParts(engine: MoveGroup, offset: number, part: number): undefined {
  const { size: n, me, words, inWords, outWords } = engine;
  for (let i = 0; i < n; i++) {
    const r = (me + i) % n;
    move(engine, words[inWords + r]! + offset, words[outWords + me]! + r * part, part);
  }
  return undefined;
}

function move(engine: MoveGroup, from: number, to: number, bytes: number): void {
  if (from >>> 0 !== to >>> 0) engine.wasm.copy(to, from, bytes);
}

function allToAllV(engine: MoveGroup, work: MovedCall): string | undefined {
  const { size: n, me, words, inWords } = engine;
  for (let a = 0; a < n; a++) {
    const sends = engine.countsAt(a);
    for (let b = 0; b < n; b++) {
      const sent = words[sends + b]!;
      const expected = words[engine.countsAt(b) + n + a]!;
      if (sent !== expected) {
        return `rank ${engine.ranks[a]} sends ${sent >>> 0} elements to rank ${engine.ranks[b]}, which expects ${expected >>> 0}`;
      }
    }
  }
  const elementBytes = work.bytes;
  const receives = engine.countsAt(me) + n;
  let target = work.output;
  for (let r = 0; r < n; r++) {
    const sends = engine.countsAt(r);
    let source = words[inWords + r]!;
    for (let peer = 0; peer < me; peer++) source += (words[sends + peer]! >>> 0) * elementBytes;
    const bytes = (words[receives + r]! >>> 0) * elementBytes;
    move(engine, source, target, bytes);
    target += bytes;
  }
  return undefined;
}
