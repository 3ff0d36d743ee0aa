/** A run of a plan as work for a group's engine. */
import type { CollectiveName } from "../../../collectives/index.ts";
import { operationInfo } from "../../../collectives/index.ts";
import { type DType, sizeOf, type Tensor } from "../../../core/index.ts";
import { hashNumbers, type Operand, opCode, type PlanCall, packCall } from "../../comm/index.ts";
import { type BufferHost, carriageOf, PlanBuffers, scalarOf } from "../../executor/internal.ts";
import type { GroupEngine } from "./group-engine.ts";
import { copyOut, type MemoryOwner, placeOf } from "./staging.ts";
import { runningPlan, ThreadsWork } from "./threads-work.ts";

/** The scalar of operators that have none, in a fingerprint. */
const UNSCALED = hashNumbers([1]);

/** What a run needs of the rank's world. */
interface PlanOwner extends MemoryOwner {
  readonly timeoutMs: number;
  scratchTensor(dtype: DType, count: number): Tensor;
  /** @throws InvalidArgumentError for an array of the world's own words */
  checkMemory(given: Operand | undefined): void;
}

/** The word of a fingerprint that tells runs of a plan without a scalar from others. */
export function plainExtra(hashWord: number): number {
  return hashWord ^ UNSCALED;
}

/** What reports say of a run beside its call. */
export function planDetail({ plan, hash, opinion }: Pick<PlanCall, "plan" | "hash" | "opinion">): string {
  return ` of plan ${plan.name ?? ""} (${hash}), ${opinion}`;
}

/** What a run is called, in the fingerprint and in messages, when it serves a collective. */
interface ServedAs {
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
  for (const given of [call.input, call.output]) owner.checkMemory(given);
  const carriage = carriageOf(call);
  const buffers = new PlanBuffers(hostOf(owner, engine), call, carriage);
  try {
    const { plan, hash, dtype, op, partBytes, timeoutMs } = call;
    const size = sizeOf(dtype);
    const run = engine.plans.open(plan, hash, carriage.dtype, carriage.op);
    const name = as?.op ?? "run";
    const numElements = partBytes / size;
    const work = new ThreadsWork<Tensor | undefined>(engine, engine.nextSeq++, name);
    work.code = opCode(name);
    work.timeoutMs = timeoutMs ?? owner.timeoutMs;
    work.issuedAt = performance.now();
    const reduces = name === "run" || operationInfo(name).reduces;
    work.call = packCall(name, dtype, reduces ? op : undefined, as?.root ?? 0);
    work.count = as?.count ?? numElements;
    const scalar = scalarOf(op, dtype);
    work.extra = scalar === 1 ? plainExtra(run.hashWord) : run.hashWord ^ hashNumbers([scalar]);
    work.detail = planDetail(call);
    work.input = buffers.input;
    work.output = buffers.output;
    work.keep = [call.input, call.output, buffers.result];
    work.reportedBytes = as?.reportedBytes ?? Math.max(call.inputCount, call.outputCount) * size;
    work.run = runningPlan(run, plan, carriage.widened ? 4 * numElements : partBytes, call.endsAlone);
    if (carriage.op === "avg") work.parameter = { dtype, op: "avg", value: engine.size };
    if (carriage.op === "preMulSum") work.parameter = { dtype, op: "preMulSum", value: scalar };
    work.harvest = () => buffers.finish();
    if (buffers.isStaged) work.release = () => buffers.free();
    return work;
  } catch (error) {
    buffers.free();
    throw error;
  }
}

function hostOf(owner: PlanOwner, engine: GroupEngine): BufferHost {
  const { heap, wasm } = engine;
  return {
    rank: engine.me,
    numRanks: engine.size,
    allocate: (bytes) => heap.allocate(bytes, false),
    free: (address) => heap.free(address),
    place: (given, fill) => placeOf(owner, heap, given, fill),
    copyOut: (address, given) => copyOut(heap, address, given),
    result: (dtype, count) => owner.scratchTensor(dtype, count),
    kernel: (kernel, from, to, bytes) => {
      const { words, fromWords, toWords, fromTable, toTable, context } = engine;
      words[fromWords] = from;
      words[toWords] = to;
      wasm.reduce(kernel, fromTable, 1, toTable, 1, 0, bytes, context);
    },
    useParameter: (dtype, op, value) => engine.useParameter(dtype, op, value),
    widen: wasm,
    view: (end) => heap.words(end).buffer,
  };
}
