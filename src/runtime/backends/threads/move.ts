/**
 * What each rank moves between the two synchronisations of a collective. Every rank sees all buffers, so all are one
 * pass over memory: a share is read from wherever it is, reduced in rank order if need be, and stored wherever it
 * belongs. Shares are cut so that all ranks have the same work, in whole cache lines.
 */
import type { DType, ReduceOp } from "../../../core/index.ts";
import { copyKernel } from "../../executor/index.ts";
import type { GroupEngine } from "./group-engine.ts";
import { SCRATCH_BYTES, SLOT } from "./layout.ts";
import { kernelIndex } from "./protocol.ts";
import type { ThreadsWork } from "./threads-work.ts";

const UNIT = 128;
export const COPY = copyKernel(kernelIndex());

/** First byte of rank `r`'s share of `bytes`; the share ends where the next one starts. */
export function shareStart(bytes: number, r: number, n: number): number {
  if (r >= n) return bytes;
  return Math.floor((Math.ceil(bytes / UNIT) * r) / n) * UNIT;
}

/** Looks up the kernel of an operator. */
export function kernelOf(dtype: DType, op: ReduceOp): number {
  return kernelIndex()[dtype][typeof op === "string" ? op : "preMulSum"] as number;
}

/** Moves this rank's share. @returns what is wrong between the ranks' arguments, in words, if anything */
export function moveShare(engine: GroupEngine, work: ThreadsWork<unknown>): string | undefined {
  const { size: n, me, words, inWords, outWords } = engine;
  const part = work.bytes;
  const from = (r: number) => words[inWords + r]! >>> 0;
  const to = (r: number) => words[outWords + r]! >>> 0;
  switch (work.op) {
    case "all_reduce":
      if (work.oneShot) oneShot(engine, work);
      else if (part > 0) {
        const start = Math.min(part, shareStart(part, me, n));
        const end = Math.min(part, shareStart(part, me + 1, n));
        const inTable = engine.inWords * 4;
        if (start < end)
          engine.wasm.reduce(work.kernel, inTable, n, engine.outWords * 4, n, start, end, engine.context);
      }
      return undefined;
    case "broadcast": {
      const root = from(work.root);
      const targets = range(n)
        .map(to)
        .filter((address) => address !== root);
      run(engine, COPY, [root], targets, shareStart(part, me, n), shareStart(part, me + 1, n), part);
      return undefined;
    }
    case "reduce":
      run(
        engine,
        work.kernel,
        range(n).map(from),
        [to(work.root)],
        shareStart(part, me, n),
        shareStart(part, me + 1, n),
        part,
      );
      return undefined;
    case "all_gather":
    case "all_gather_v": {
      const offset = work.offsets === undefined ? me * part : work.offsets[me]!;
      const own = work.sizes === undefined ? part : work.sizes[me]!;
      const input = from(me);
      const targets = range(n)
        .map((r) => to(r) + offset)
        .filter((address) => address !== input);
      run(engine, COPY, [input], targets, 0, own, own);
      return undefined;
    }
    case "reduce_scatter":
    case "reduce_scatter_v": {
      const offset = work.offsets === undefined ? me * part : work.offsets[me]!;
      const own = work.sizes === undefined ? part : work.sizes[me]!;
      run(
        engine,
        work.kernel,
        range(n).map((r) => from(r) + offset),
        [to(me)],
        0,
        own,
        own,
      );
      return undefined;
    }
    case "all_to_all":
      for (let i = 0; i < n; i++) {
        const r = (me + i) % n;
        run(engine, COPY, [from(r) + me * part], [to(me) + r * part], 0, part, part);
      }
      return undefined;
    case "all_to_all_v":
      return allToAllV(engine, work);
    case "gather": {
      const target = to(work.root) + me * part;
      if (target !== from(me)) run(engine, COPY, [from(me)], [target], 0, part, part);
      return undefined;
    }
    case "scatter": {
      const source = from(work.root) + me * part;
      if (source !== to(me)) run(engine, COPY, [source], [to(me)], 0, part, part);
      return undefined;
    }
    default:
      work.collect?.();
      return undefined;
  }
}

const range = (n: number) => Array.from({ length: n }, (_, r) => r);

function run(
  engine: GroupEngine,
  kernel: number,
  inputs: readonly number[],
  outputs: readonly number[],
  start: number,
  end: number,
  limit: number,
): void {
  const [first, last] = [Math.min(start, limit), Math.min(end, limit)];
  if (first >= last || inputs.length === 0 || outputs.length === 0) return;
  const { words, fromWords, toWords } = engine;
  for (let i = 0; i < inputs.length; i++) words[fromWords + i] = inputs[i]!;
  for (let i = 0; i < outputs.length; i++) words[toWords + i] = outputs[i]!;
  engine.wasm.reduce(
    kernel,
    engine.fromTable,
    inputs.length,
    engine.toTable,
    outputs.length,
    first,
    last,
    engine.context,
  );
}

/** The end of an all-reduce whose inputs were copied to scratch: everything is read there. */
function oneShot(engine: GroupEngine, work: ThreadsWork<unknown>): void {
  const parity = (work.seq + 1) & 1;
  const { layout, block, size } = engine;
  const inputs = range(size).map((r) => block + layout.scratch + (parity * size + r) * SCRATCH_BYTES);
  run(engine, work.kernel, inputs, [work.output], 0, work.bytes, work.bytes);
}

function allToAllV(engine: GroupEngine, work: ThreadsWork<unknown>): string | undefined {
  const { size: n, me, words } = engine;
  const sends = (r: number, peer: number) => words[engine.countsAt(r) + peer]! >>> 0;
  const receives = (r: number, peer: number) => words[engine.countsAt(r) + n + peer]! >>> 0;
  for (let a = 0; a < n; a++) {
    for (let b = 0; b < n; b++) {
      if (sends(a, b) !== receives(b, a)) {
        return `rank ${engine.ranks[a]} sends ${sends(a, b)} elements to rank ${engine.ranks[b]}, which expects ${receives(b, a)}`;
      }
    }
  }
  const elementBytes = work.bytes;
  let target = work.output;
  for (let r = 0; r < n; r++) {
    let source = words[engine.slotWord(r, work.seq) + SLOT.input / 4]! >>> 0;
    for (let peer = 0; peer < me; peer++) source += sends(r, peer) * elementBytes;
    const bytes = receives(me, r) * elementBytes;
    run(engine, COPY, [source], [target], 0, bytes, bytes);
    target += bytes;
  }
  return undefined;
}
