/**
 * A run of a plan as work for a group's engine: addresses for its buffers, and what has to be done to the values before
 * and after where the plan alone would round them more than once.
 */
import type { CollectiveName } from "../../../collectives/index.ts";
import { operationInfo } from "../../../collectives/index.ts";
import {
  DTYPES,
  type DType,
  decodeFloat,
  encodeFloat,
  isSmallFloat,
  type ReduceOp,
  sizeOf,
  type Tensor,
  UnsupportedError,
  viewAs,
} from "../../../core/index.ts";
import { asTensor, hashNumbers, type Operand, opCode, type PlanCall, packCall } from "../../comm/index.ts";
import {
  KERNEL_INDEX,
  type KernelOp,
  reductionDepth,
  WIDEN_BYTES,
  type WidenExports,
} from "../../executor/internal.ts";
import type { GroupEngine } from "./group-engine.ts";
import { COPY } from "./move.ts";
import { copyOut, type MemoryOwner, placeOf } from "./staging.ts";
import { ThreadsWork } from "./threads-work.ts";

/** Operators whose result depends on when it is rounded. */
const ROUNDING = new Set<KernelOp>(["sum", "prod", "avg", "preMulSum"]);

/** The scalar of operators that have none, in a fingerprint. */
const UNSCALED = hashNumbers([1]);

/** What a run needs of the rank's world. */
export interface PlanOwner extends MemoryOwner {
  readonly timeoutMs: number;
  scratchTensor(dtype: DType, count: number): Tensor;
  /** @throws InvalidArgumentError for an array of the world's own words */
  checkMemory(given: Operand | undefined): void;
}

/** How values are carried through a plan. */
interface Carriage {
  /** The element type that the plan runs on. */
  readonly dtype: DType;
  /** The operator of its reductions. */
  readonly op: KernelOp;
  /** 16- and 8-bit floats are carried in f32, because the plan combines what it combined before. */
  readonly widened: boolean;
  /** Inputs are multiplied before the plan, outputs divided after it. */
  readonly scaled: boolean;
  readonly divided: boolean;
}

type Carried = Pick<PlanCall, "plan" | "dtype" | "op">;

/** Whether values go through a plan as they are. */
export function isCarriedAsIs(call: Carried): boolean {
  const { dtype, scaled, divided } = carriageOf(call);
  return dtype === call.dtype && !scaled && !divided;
}

/** The word of a fingerprint that tells runs of a plan without a scalar from others. */
export function plainExtra(hashWord: number): number {
  return hashWord ^ UNSCALED;
}

/** What reports say of a run beside its call. */
export function planDetail({ plan, hash, opinion }: Pick<PlanCall, "plan" | "hash" | "opinion">): string {
  return ` of plan ${plan.name ?? ""} (${hash}), ${opinion}`;
}

function carriageOf({ plan, dtype, op }: Carried): Carriage {
  const name: KernelOp = typeof op === "string" ? op : "preMulSum";
  const plain = { dtype, op: name, widened: false, scaled: false, divided: false };
  if (!ROUNDING.has(name) || (!isSmallFloat(dtype) && name !== "avg" && name !== "preMulSum")) return plain;
  if (reductionDepth(plan) < 2) return plain;
  if (name === "avg" && plan.collective.operation === "custom") {
    throw new UnsupportedError(
      "avg in a custom collective that combines in several steps",
      "sum, and divide afterwards",
    );
  }
  const widened = isSmallFloat(dtype);
  return {
    dtype: widened ? "f32" : dtype,
    op: name === "prod" ? "prod" : "sum",
    widened,
    scaled: name === "preMulSum",
    divided: name === "avg",
  };
}

/** The scalar as the dtype holds it. */
function scalarOf(op: ReduceOp, dtype: DType): number | bigint {
  if (typeof op === "string") return 1;
  if (!DTYPES[dtype].isFloat) return op.scalar;
  return isSmallFloat(dtype) ? decodeFloat(dtype, encodeFloat(dtype, Number(op.scalar))) : Number(op.scalar);
}

/** A buffer of the plan. */
interface Buffer {
  readonly address: number;
  readonly count: number;
}

/** What a run is called, in the fingerprint and in messages, when it serves a collective. */
export interface ServedAs {
  readonly op: CollectiveName;
  readonly root: number;
  readonly count: number;
  readonly reportedBytes: number;
}

/** Makes the work of a run. When it throws, nothing is held and no number is taken. */
export function planWork(
  owner: PlanOwner,
  engine: GroupEngine,
  call: PlanCall,
  as?: ServedAs,
): ThreadsWork<Tensor | undefined> {
  return new PlanWorkMaker(owner, engine, call, as).make();
}

class PlanWorkMaker {
  readonly #owner: PlanOwner;
  readonly #engine: GroupEngine;
  readonly #call: PlanCall;
  readonly #as: ServedAs | undefined;
  readonly #carriage: Carriage;
  readonly #staged: number[] = [];
  readonly #after: (() => void)[] = [];

  constructor(owner: PlanOwner, engine: GroupEngine, call: PlanCall, as: ServedAs | undefined) {
    this.#as = as;
    this.#owner = owner;
    this.#engine = engine;
    this.#call = call;
    this.#carriage = carriageOf(call);
  }

  make(): ThreadsWork<Tensor | undefined> {
    const { heap } = this.#engine;
    for (const given of [this.#call.input, this.#call.output]) this.#owner.checkMemory(given);
    const free = () => {
      for (const address of this.#staged) heap.free(address);
    };
    try {
      return this.#work(free);
    } catch (error) {
      free();
      throw error;
    }
  }

  #work(free: () => void): ThreadsWork<Tensor | undefined> {
    const engine = this.#engine;
    const { plan, hash, dtype, op, partBytes, timeoutMs } = this.#call;
    const carriage = this.#carriage;
    const size = sizeOf(dtype);
    const buffers = this.#buffers();
    const run = engine.plans.open(plan, hash, carriage.dtype, carriage.op);
    const as = this.#as;
    const name = as?.op ?? "run";
    const numElements = partBytes / size;
    const work = new ThreadsWork<Tensor | undefined>(engine, engine.nextSeq++, name);
    work.code = opCode(name);
    work.timeoutMs = timeoutMs ?? this.#owner.timeoutMs;
    work.issuedAt = performance.now();
    const reduces = name === "run" || operationInfo(name).reduces;
    work.call = packCall(name, dtype, reduces ? op : undefined, as?.root ?? 0);
    work.count = as?.count ?? numElements;
    const scalar = scalarOf(op, dtype);
    work.extra = scalar === 1 ? plainExtra(run.hashWord) : run.hashWord ^ hashNumbers([scalar]);
    work.detail = planDetail(this.#call);
    work.input = buffers.input;
    work.output = buffers.output;
    work.keep = [this.#call.input, this.#call.output, buffers.result];
    work.reportedBytes = as?.reportedBytes ?? Math.max(this.#call.inputCount, this.#call.outputCount) * size;
    work.run = {
      ...run,
      plan,
      partBytes: carriage.widened ? 4 * numElements : partBytes,
      endsAlone: this.#call.endsAlone,
    };
    if (carriage.op === "avg") work.parameter = { dtype, op: "avg", value: engine.size };
    if (carriage.op === "preMulSum") work.parameter = { dtype, op: "preMulSum", value: scalar };
    work.harvest = () => {
      for (const step of this.#after) step();
      return buffers.result;
    };
    if (this.#staged.length > 0) work.release = free;
    return work;
  }

  /** Where the plan finds its buffers, and what the caller gets. */
  #buffers(): { input: number; output: number; result: Tensor | undefined } {
    const { plan, input, output, outputCount, shared, dtype } = this.#call;
    const size = sizeOf(dtype);
    if (shared !== undefined) {
      const whole = (shared.in === "input" ? input : output) as Operand;
      const isOutput = shared.in === "output";
      const at = this.#bring(
        whole,
        true,
        isOutput ? { at: 0, count: outputCount } : { at: shared.at, count: outputCount },
      );
      const inner = at + shared.at * sizeOf(this.#carriage.dtype);
      const result = asTensor(whole);
      if (isOutput) return { input: inner, output: at, result };
      return { input: at, output: inner, result: result.slice(shared.at, shared.at + outputCount) };
    }
    const source = input === undefined ? 0 : this.#bring(input, true, undefined);
    if (plan.ranks[this.#engine.me]?.output.chunks === 0) return { input: source, output: 0, result: undefined };
    const result = output === undefined ? this.#owner.scratchTensor(dtype, outputCount) : undefined;
    const target = output ?? this.#operandOf(result as Tensor, size);
    return {
      input: source,
      output: this.#bring(target, false, { at: 0, count: outputCount }),
      result: result ?? asTensor(target),
    };
  }

  #operandOf(tensor: Tensor, size: number): Operand {
    const region = { storage: tensor.storage, byteOffset: tensor.byteOffset, sizeBytes: tensor.size * size };
    return { dtype: tensor.dtype, count: tensor.size, tensor, array: undefined, region };
  }

  /** Gives a buffer an address, fills it if it is read, and copies the written part back at the end. */
  #bring(given: Operand, fill: boolean, written: { readonly at: number; readonly count: number } | undefined): number {
    const { heap } = this.#engine;
    const carriage = this.#carriage;
    const own = placeOf(this.#owner, heap, given, fill);
    if (own.staged) this.#staged.push(own.address);
    const { count } = given;
    const native = { address: own.address, count };
    const part = (whole: Buffer, dtype: DType): Buffer => ({
      address: whole.address + (written?.at ?? 0) * sizeOf(dtype),
      count: written?.count ?? 0,
    });
    if (!carriage.widened && !(carriage.scaled && fill)) {
      const result = part(native, given.dtype);
      if (written !== undefined && carriage.divided) this.#after.push(() => this.#divide(result, carriage.dtype));
      if (written !== undefined && own.staged) this.#after.push(() => copyOut(heap, own.address, given));
      return own.address;
    }
    const carried = { address: heap.allocate(count * sizeOf(carriage.dtype) + 16, false), count };
    this.#staged.push(carried.address);
    if (fill) {
      if (carriage.widened) this.#convert("widen", given.dtype, native, carried);
      else this.#kernel(COPY, given.dtype, native, carried);
      if (carriage.scaled) this.#scale(carried);
    }
    if (written !== undefined) {
      const [small, wide] = [part(native, given.dtype), part(carried, carriage.dtype)];
      this.#after.push(() => {
        if (carriage.divided) this.#divide(wide, carriage.dtype);
        if (carriage.widened) this.#convert("narrow", given.dtype, small, wide);
        else this.#kernel(COPY, given.dtype, wide, small);
        if (own.staged) copyOut(heap, own.address, given);
      });
    }
    return carried.address;
  }

  #scale(buffer: Buffer): void {
    const { dtype } = this.#carriage;
    this.#engine.useParameter(dtype, "preMulSum", scalarOf(this.#call.op, this.#call.dtype));
    this.#kernel(KERNEL_INDEX[dtype].preMulSum as number, dtype, buffer, buffer);
  }

  #divide(buffer: Buffer, dtype: DType): void {
    this.#engine.useParameter(dtype, "avg", this.#engine.size);
    this.#kernel(KERNEL_INDEX[dtype].avg as number, dtype, buffer, buffer);
  }

  /** Runs a kernel with one source and one destination. */
  #kernel(kernel: number, dtype: DType, from: Buffer, to: Buffer): void {
    const { words, fromWords, toWords, fromTable, toTable, wasm, context } = this.#engine;
    words[fromWords] = from.address;
    words[toWords] = to.address;
    wasm.reduce(kernel, fromTable, 1, toTable, 1, 0, from.count * sizeOf(dtype), context);
  }

  /** Between small floats and f32: whole vectors in WebAssembly, the last few here. */
  #convert(how: "widen" | "narrow", dtype: DType, small: Buffer, wide: Buffer): void {
    if (!isSmallFloat(dtype)) return;
    const { wasm, heap } = this.#engine;
    const size = sizeOf(dtype);
    const perTurn = WIDEN_BYTES / size;
    const turns = Math.floor(small.count / perTurn);
    const done = turns * perTurn;
    const convert = wasm[`${how}_${dtype}` as keyof WidenExports];
    if (how === "widen") convert(wide.address, small.address, turns);
    else convert(small.address, wide.address, turns);
    const rest = small.count - done;
    if (rest === 0) return;
    const end = Math.max(small.address + small.count * size, wide.address + 4 * small.count);
    const { buffer } = heap.words(end);
    const bits = viewAs(dtype, buffer, small.address + done * size, rest);
    const values = viewAs("f32", buffer, wide.address + 4 * done, rest);
    for (let i = 0; i < rest; i++) {
      if (how === "widen") values[i] = decodeFloat(dtype, bits[i] as number);
      else bits[i] = encodeFloat(dtype, values[i] as number);
    }
  }
}
