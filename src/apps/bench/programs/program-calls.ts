/** The calls that are timed for a contender. Buffers are those of `collectives/timed-calls.ts`, in place or not. */
import { hashPlan, noteProof } from "../../../authoring/plan/index.ts";
import { operationInfo } from "../../../collectives/index.ts";
import { deepFreeze, type Tensor } from "../../../core/index.ts";
import type { Communicator, RunOptions } from "../../../runtime/comm/index.ts";
import { type Buffers, caller, elementCounts, redopOf, type TimedWork } from "../collectives/timed-calls.ts";
import type { Contender, ProgramJob } from "./program-types.ts";

/** Makes the call of a contender; it may be given a communicator that records. */
export function contenderCall(
  comm: Communicator,
  job: ProgramJob,
  contender: Contender,
  buffers: Buffers,
  count: number,
): (on?: Communicator) => TimedWork {
  const { inPlace } = job;
  if (contender.kind !== "plan") {
    const by = contender.kind === "algorithm" ? { algorithm: contender.name } : {};
    const call = caller(comm, { ...job, ...by, graphCalls: 0 }, buffers, count, inPlace);
    return call;
  }
  const plan = deepFreeze(contender.plan);
  // It was proved where it was compiled: the launcher's proof serves all ranks. Nobody asks for relaunches here.
  const proof = { endsAlone: () => contender.endsAlone, relaunches: () => false };
  noteProof(plan, { ok: true, hash: hashPlan(plan), ...proof });
  const options: RunOptions = { ...runBuffers(comm, job, buffers, count), ...operator(comm, job) };
  return (on = comm) => on.run(plan, options);
}

function operator(comm: Communicator, job: ProgramJob): RunOptions {
  return operationInfo(job.op).reduces ? { op: redopOf(comm, { ...job, graphCalls: 0 }) } : {};
}

/** This rank's buffers of a run, as the calls of the Communicator have them. */
function runBuffers(comm: Communicator, job: ProgramJob, { input, output }: Buffers, count: number): RunOptions {
  const { op, root } = job;
  const info = operationInfo(op);
  const isRoot = comm.rank === root;
  const lengths = elementCounts(op, comm.size, count);
  const own = (tensor: Tensor) => tensor.slice(comm.rank * count, (comm.rank + 1) * count);
  const reads = info.inputAt === "every" || isRoot;
  const writes = info.outputAt === "every" || isRoot;
  let from = input.slice(0, lengths.input);
  let to = output.slice(0, lengths.output);
  if (job.inPlace && info.inPlace === "same") to = from;
  if (job.inPlace && info.inPlace === "own part of output" && writes) from = own(to);
  if (job.inPlace && info.inPlace === "own part of input" && reads) to = own(from);
  return { ...(reads ? { input: from } : {}), ...(writes ? { output: to } : {}) };
}
