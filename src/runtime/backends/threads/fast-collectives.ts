/**
 * Collectives of world tensors without any option but output, operator, root and an algorithm that was named before: no
 * staging, no deadline before the first sleep, one object per call. Everything is checked here too, with comparisons instead
 * of tables; whatever does not pass goes to the careful path in `GroupCommunicator`, which says what is wrong. Methods
 * return undefined then.
 */
import type { OperationName } from "../../../collectives/index.ts";
import type { NamedReduceOp, ReduceOp, Tensor } from "../../../core/index.ts";
import {
  type AllToAllVOptions,
  type Data,
  type NamedCall,
  type OutputOptions,
  packCall,
  type QuickWork,
  type ReduceOptions,
  type RootOptions,
  type UncheckedOptions,
  type VOptions,
  WIRE_OPS,
} from "../../comm/index.ts";
import { apart, sumOfCounts } from "./argument-checks.ts";
import type { FastCall } from "./fast-call.ts";
import { type CodedOp, FastIssue, OPS } from "./fast-issue.ts";
import type { GroupEngine } from "./group-engine.ts";
import { COPY, LastKernel } from "./move.ts";
import { PairWork } from "./pair-channels.ts";
import { PlannedCalls } from "./planned-calls.ts";
import { type Arena, ownTensor } from "./storage.ts";
import type { Parts } from "./threads-work.ts";
import { partsOf } from "./work-parameters.ts";

/** Collectives of equal parts, the all-reduce apart: it has a way of its own. */
type PlainCollective = "broadcast" | "reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "gather" | "scatter";

export class FastCollectives {
  readonly #engine: GroupEngine;
  readonly #arena: Arena;
  readonly #timeoutMs: number;
  readonly #issue: FastIssue;
  /** By operation's code: the smallest size that a plan may serve. */
  readonly #firstPlan: readonly number[];
  readonly #plans: PlannedCalls;
  readonly #kernels = new LastKernel();
  #parts: Parts | undefined;
  /** The bits of the names of the options of the call that is checked. */
  #given = 0;

  constructor(engine: GroupEngine, arena: Arena, timeoutMs: number) {
    this.#engine = engine;
    this.#arena = arena;
    this.#timeoutMs = timeoutMs;
    this.#issue = new FastIssue(engine, timeoutMs);
    this.#plans = new PlannedCalls(engine);
    this.#firstPlan = WIRE_OPS.map((op) => engine.choices.firstPlanBytes(op));
  }

  /**
   * Issues a collective whose buffers are checked: as the plan that serves it, or by kernels. `part` and `total`: bytes of a
   * part and of the larger of a rank's two buffers. `overlaps`: the result lies on what is read.
   */
  #start(
    op: CodedOp<PlainCollective>,
    options: ReduceOptions & RootOptions,
    input: Tensor,
    result: Tensor,
    redop: NamedReduceOp | undefined,
    root: number,
    from: number,
    to: number,
    count: number,
    part: number,
    total: number,
    overlaps = false,
  ): QuickWork<Tensor> | undefined {
    const kernel = redop === undefined ? COPY : this.#kernel(input, redop);
    if (kernel < 0) return undefined;
    const { algorithm } = options;
    if (algorithm !== undefined || total >= this.#firstPlan[op.code]!) {
      const planned = this.#plans.find(op, input.dtype, redop, root, total, algorithm);
      if (planned === undefined) return undefined;
      if (!planned.isKernel) {
        if (!planned.prepare(overlaps)) return undefined;
        return this.#issue.plan(planned, op, input, redop, root, from, to, count, part, result, total);
      }
    }
    const call = this.#issue.begin(op, input, redop, root, from, to, count, part, kernel);
    call.remember(input, result, options, this.#given, total);
    return this.#issue.run(call, result, total);
  }

  /** Whether a call with these options may take the fast path now. */
  #ready(options: OutputOptions): boolean {
    return this.#engine.isIdle && this.#isPlain(options);
  }

  /** The same for calls that kernels alone serve: naming another algorithm is an error. */
  #readyUnnamed(options: OutputOptions): boolean {
    return options.algorithm === undefined && this.#ready(options);
  }

  /** Whether nothing about the call or the group asks for the careful path. */
  #isPlain(options: OutputOptions): boolean {
    const isBare = options.signal === undefined && options.timeoutMs === undefined && options.dtype === undefined;
    return isBare && this.#engine.isSound;
  }

  #own(data: Data | undefined): Tensor | undefined {
    return ownTensor(this.#arena, data);
  }

  #isRoot(root: number): boolean {
    return root >= 0 && root < this.#engine.size && Number.isInteger(root);
  }

  /** The kernel of a named operator that the dtype has; -1 asks for the careful path. */
  #kernel(input: Tensor, op: ReduceOp): number {
    const kernel = this.#kernels.of(input.dtype, op);
    if (kernel === undefined) return -1;
    if (op === "avg") this.#engine.useParameter(input.dtype, op, this.#engine.size);
    return kernel;
  }

  /** See `GroupDriver.quick`. */
  call(
    { op, code }: NamedCall,
    data: Data,
    options: UncheckedOptions,
    peer: number,
    given: number,
  ): QuickWork<unknown> | undefined {
    const last = this.#issue.lastOf(code);
    // Programs repeat themselves, and what was checked of the last call is right now.
    if (last.isLike(this.#arena, data, options, given)) {
      const again = this.#issue.again(last, data as Tensor, options);
      if (again !== undefined) return again;
    }
    this.#given = given;
    // Apart from the others: what is left is small enough for the optimizing compiler to inline.
    if (op === "all_reduce") return this.allReduce(data, options);
    return this.#other(op, data, options, peer);
  }

  #other(
    op: Exclude<OperationName, "all_reduce">,
    data: Data,
    options: UncheckedOptions,
    peer: number,
  ): QuickWork<unknown> | undefined {
    switch (op) {
      case "broadcast":
        return this.broadcast(data, options);
      case "reduce":
        return this.reduce(data, options);
      case "all_gather":
        return this.allGather(data, options);
      case "all_gather_v":
        return this.allGatherV(data, options);
      case "reduce_scatter":
        return this.reduceScatter(data, options);
      case "reduce_scatter_v":
        return this.reduceScatterV(data, options);
      case "all_to_all":
        return this.allToAll(data, options);
      case "all_to_all_v":
        return this.allToAllV(data, options);
      case "gather":
        return this.gather(data, options);
      case "scatter":
        return this.scatter(data, options);
      case "barrier":
        return this.barrier(options);
      case "send":
      case "recv":
        return this.message(op, data, peer, options);
    }
  }

  allReduce(data: Data, options: ReduceOptions): QuickWork<Tensor> | undefined {
    if (!this.#ready(options)) return undefined;
    const input = this.#own(data);
    const output = options.output === undefined ? input : this.#own(options.output);
    if (input === undefined || output === undefined) return undefined;
    const [from, to, bytes] = [input.byteOffset, output.byteOffset, input.sizeBytes];
    if (!this.#areAlike(input, output) || !(from === to || apart(from, bytes, to, bytes))) return undefined;
    const op = nameOf(options);
    const kernel = this.#kernel(input, op);
    if (kernel < 0) return undefined;
    const { algorithm } = options;
    if (algorithm !== undefined || bytes >= this.#firstPlan[OPS.all_reduce.code]!) {
      const planned = this.#plans.find(OPS.all_reduce, input.dtype, op, 0, bytes, algorithm);
      if (planned === undefined) return undefined;
      if (!planned.isKernel) {
        if (!planned.prepare(from === to)) return undefined;
        return this.#issue.plan(planned, OPS.all_reduce, input, op, 0, from, to, input.size, bytes, output, bytes);
      }
    }
    const call = this.#issue.begin(OPS.all_reduce, input, op, 0, from, to, input.size, bytes, kernel);
    call.remember(input, output, options, this.#given, bytes);
    return this.#issue.reduceAll(call, output);
  }

  broadcast(data: Data, options: OutputOptions & RootOptions): QuickWork<Tensor> | undefined {
    const root = options.root ?? 0;
    if (!this.#isRoot(root) || !this.#ready(options)) return undefined;
    const input = this.#own(data);
    const output = options.output === undefined ? input : this.#own(options.output);
    if (input === undefined || output === undefined) return undefined;
    const [from, to, bytes] = [input.byteOffset, output.byteOffset, input.sizeBytes];
    if (!this.#areAlike(input, output) || !(from === to || apart(from, bytes, to, bytes))) return undefined;
    return this.#start(OPS.broadcast, options, input, output, undefined, root, from, to, input.size, bytes, bytes);
  }

  reduce(data: Data, options: ReduceOptions & RootOptions): QuickWork<Tensor> | undefined {
    const root = options.root ?? 0;
    if (!this.#isRoot(root) || !this.#ready(options)) return undefined;
    const input = this.#own(data);
    if (input === undefined) return undefined;
    const isRoot = root === this.#engine.me;
    const output = options.output === undefined ? input : this.#own(options.output);
    if (output === undefined) return undefined;
    const [from, bytes] = [input.byteOffset, input.sizeBytes];
    const to = isRoot ? output.byteOffset : 0;
    if (isRoot && !(this.#areAlike(input, output) && (from === to || apart(from, bytes, to, bytes)))) return undefined;
    const op = nameOf(options);
    return this.#start(OPS.reduce, options, input, output, op, root, from, to, input.size, bytes, bytes, from === to);
  }

  allGather(data: Data, options: OutputOptions): QuickWork<Tensor> | undefined {
    if (options.output === undefined || !this.#ready(options)) return undefined;
    const input = this.#own(data);
    const output = this.#own(options.output);
    if (input === undefined || output === undefined) return undefined;
    const { size: n, me } = this.#engine;
    if (!this.#areParts(input, output, n)) return undefined;
    const [from, to, bytes] = [input.byteOffset, output.byteOffset, input.sizeBytes];
    if (from !== to + me * bytes && !apart(from, bytes, to, n * bytes)) return undefined;
    return this.#start(OPS.all_gather, options, input, output, undefined, 0, from, to, input.size, bytes, n * bytes);
  }

  reduceScatter(data: Data, options: ReduceOptions): QuickWork<Tensor> | undefined {
    if (options.output === undefined || !this.#ready(options)) return undefined;
    const input = this.#own(data);
    const output = this.#own(options.output);
    if (input === undefined || output === undefined) return undefined;
    const { size: n, me } = this.#engine;
    if (!this.#areParts(output, input, n)) return undefined;
    const [from, to, bytes] = [input.byteOffset, output.byteOffset, output.sizeBytes];
    const total = n * bytes;
    const overlaps = to === from + me * bytes;
    if (!overlaps && !apart(from, total, to, bytes)) return undefined;
    const [op, count] = [nameOf(options), output.size];
    return this.#start(OPS.reduce_scatter, options, input, output, op, 0, from, to, count, bytes, total, overlaps);
  }

  allToAll(data: Data, options: OutputOptions): QuickWork<Tensor> | undefined {
    if (options.output === undefined || !this.#ready(options)) return undefined;
    const input = this.#own(data);
    const output = this.#own(options.output);
    if (input === undefined || output === undefined) return undefined;
    const { size: n } = this.#engine;
    if (output.dtype !== input.dtype || output.size !== input.size || input.size % n !== 0) return undefined;
    const [from, to, total] = [input.byteOffset, output.byteOffset, input.sizeBytes];
    if (!apart(from, total, to, total)) return undefined;
    const count = input.size / n;
    return this.#start(OPS.all_to_all, options, input, output, undefined, 0, from, to, count, total / n, total);
  }

  gather(data: Data, options: OutputOptions & RootOptions): QuickWork<Tensor> | undefined {
    const root = options.root ?? 0;
    if (!this.#isRoot(root) || !this.#ready(options)) return undefined;
    const input = this.#own(data);
    if (input === undefined) return undefined;
    const { size: n, me } = this.#engine;
    const [from, bytes] = [input.byteOffset, input.sizeBytes];
    let result = input;
    let to = 0;
    if (root === me) {
      const output = this.#own(options.output);
      if (output === undefined || !this.#areParts(input, output, n)) return undefined;
      to = output.byteOffset;
      if (from !== to + me * bytes && !apart(from, bytes, to, n * bytes)) return undefined;
      result = output;
    } else if (options.output !== undefined) return undefined;
    return this.#start(OPS.gather, options, input, result, undefined, root, from, to, input.size, bytes, n * bytes);
  }

  scatter(data: Data, options: OutputOptions & RootOptions): QuickWork<Tensor> | undefined {
    const root = options.root ?? 0;
    if (!this.#isRoot(root) || !this.#ready(options)) return undefined;
    const given = this.#own(data);
    if (given === undefined) return undefined;
    const { size: n, me } = this.#engine;
    let from = 0;
    let output = given;
    if (root === me) {
      const own = this.#own(options.output);
      if (own === undefined || !this.#areParts(own, given, n)) return undefined;
      output = own;
      from = given.byteOffset;
      const part = output.sizeBytes;
      if (output.byteOffset !== from + me * part && !apart(from, n * part, output.byteOffset, part)) return undefined;
    } else if (options.output !== undefined) return undefined;
    const bytes = output.sizeBytes;
    const to = output.byteOffset;
    return this.#start(OPS.scatter, options, given, output, undefined, root, from, to, output.size, bytes, n * bytes);
  }

  barrier(options: OutputOptions): QuickWork<void> | undefined {
    return this.#ready(options) ? this.#issue.barrier() : undefined;
  }

  /** A send or receive of a whole world tensor. */
  message<T>(op: "send" | "recv", data: Data, peer: number, options: OutputOptions): PairWork<T> | undefined {
    const engine = this.#engine;
    const soundPeer = Number.isInteger(peer) && peer >= 0 && peer < engine.size && peer !== engine.me;
    if (!soundPeer || !this.#isPlain(options)) return undefined;
    const tensor = this.#own(data);
    if (tensor === undefined) return undefined;
    const work = new PairWork<T>(engine, engine.nextPairSeq++, op, peer);
    work.code = OPS[op].code;
    work.timeoutMs = this.#timeoutMs;
    work.call = packCall(op, tensor.dtype, undefined, peer);
    work.count = tensor.size;
    work.bytes = tensor.sizeBytes;
    work.reportedBytes = tensor.sizeBytes;
    work.keep = tensor;
    if (engine.counters.byCode[work.code]!.isTimed) work.issuedAt = performance.now();
    if (op === "send") work.input = tensor.byteOffset;
    else {
      work.output = tensor.byteOffset;
      work.harvest = () => tensor as T;
    }
    engine.pairs.submit(work);
    return work;
  }

  allGatherV(data: Data, options: VOptions): QuickWork<Tensor> | undefined {
    const input = this.#own(data);
    const output = this.#own(options.output);
    if (input === undefined || output === undefined || !this.#readyUnnamed(options)) return undefined;
    const { me } = this.#engine;
    const parts = this.#layOut(options.counts, input);
    if (parts === undefined || output.dtype !== input.dtype) return undefined;
    const [from, to, own] = [input.byteOffset, output.byteOffset, parts.sizes[me]!];
    if (input.sizeBytes !== own || output.sizeBytes !== parts.total) return undefined;
    if (from !== to + parts.offsets[me]! && !apart(from, own, to, parts.total)) return undefined;
    const call = this.#issue.begin(OPS.all_gather_v, input, undefined, 0, from, to, output.size, 0, COPY);
    return this.#runParts(call, parts, output);
  }

  reduceScatterV(data: Data, options: VOptions & { readonly op?: ReduceOp }): QuickWork<Tensor> | undefined {
    const input = this.#own(data);
    const output = this.#own(options.output);
    if (input === undefined || output === undefined || !this.#readyUnnamed(options)) return undefined;
    const { me } = this.#engine;
    const parts = this.#layOut(options.counts, input);
    if (parts === undefined || output.dtype !== input.dtype) return undefined;
    const [from, to, own] = [input.byteOffset, output.byteOffset, parts.sizes[me]!];
    if (output.sizeBytes !== own || input.sizeBytes !== parts.total) return undefined;
    if (to !== from + parts.offsets[me]! && !apart(from, parts.total, to, own)) return undefined;
    const op = options.op ?? "sum";
    const kernel = this.#kernel(input, op);
    if (kernel < 0) return undefined;
    const call = this.#issue.begin(OPS.reduce_scatter_v, input, op, 0, from, to, input.size, 0, kernel);
    return this.#runParts(call, parts, output);
  }

  allToAllV(data: Data, options: AllToAllVOptions): QuickWork<Tensor> | undefined {
    const input = this.#own(data);
    const output = this.#own(options.output);
    if (input === undefined || output === undefined || !this.#readyUnnamed(options)) return undefined;
    const { sendCounts, recvCounts } = options;
    const { me, size: n } = this.#engine;
    if (output.dtype !== input.dtype || !Array.isArray(sendCounts) || !Array.isArray(recvCounts)) return undefined;
    if (sumOfCounts(sendCounts, n) !== input.size || sumOfCounts(recvCounts, n) !== output.size) return undefined;
    const [from, to] = [input.byteOffset, output.byteOffset];
    if (sendCounts[me] !== recvCounts[me] || !apart(from, input.sizeBytes, to, output.sizeBytes)) return undefined;
    const elementBytes = input.sizeBytes / input.size;
    const call = this.#issue.begin(OPS.all_to_all_v, input, undefined, 0, from, to, 0, elementBytes, COPY);
    call.counts = { send: sendCounts, receive: recvCounts };
    this.#engine.publishCounts(call.counts);
    return this.#issue.run(call, output, input.sizeBytes);
  }

  /** Where the parts of a buffer lie; undefined for invalid counts. Training loops pass the same ones again. */
  #layOut(counts: readonly number[], typed: Tensor): Parts | undefined {
    const { size: n } = this.#engine;
    const elementBytes = typed.sizeBytes / typed.size;
    const last = this.#parts;
    if (!Array.isArray(counts) || counts.length !== n) return undefined;
    if (last !== undefined && last.elementBytes === elementBytes && last.counts.every((c, r) => c === counts[r]))
      return last;
    if (!counts.every((c) => Number.isSafeInteger(c) && c >= 0)) return undefined;
    this.#parts = partsOf(counts, elementBytes);
    return this.#parts;
  }

  #runParts(call: FastCall, parts: Parts, result: Tensor): QuickWork<Tensor> {
    call.parts = parts;
    call.extra = parts.hash;
    call.detail = parts.detail;
    return this.#issue.run(call, result, parts.total);
  }

  /** Whether two tensors have the same dtype and number of elements. */
  #areAlike(a: Tensor, b: Tensor): boolean {
    return a === b || (a.dtype === b.dtype && a.size === b.size);
  }

  /** Whether `whole` has the dtype of `part` and one part per rank. */
  #areParts(part: Tensor, whole: Tensor, n: number): boolean {
    return part.dtype === whole.dtype && part.size * n === whole.size;
  }
}

/** The operator of a call; one without a name has no kernel here, and is refused for that. */
function nameOf({ op = "sum" }: ReduceOptions): NamedReduceOp {
  return op as NamedReduceOp;
}
