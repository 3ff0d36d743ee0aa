/** The calls that are timed: buffers, options and slices are made once, so that the loop does nothing but call. */
import { operationInfo } from "../../../collectives/index.ts";
import type { ReduceOp, Tensor } from "../../../core/index.ts";
import type { Communicator, Work } from "../../../runtime/comm/index.ts";
import { type BenchJob, PRE_MUL_SCALAR } from "./bench-types.ts";

export interface Buffers {
  readonly input: Tensor;
  readonly output: Tensor;
}

/** The operator of a job, as calls take it. */
export function redopOf(comm: Communicator, job: BenchJob): ReduceOp {
  if (job.redop !== "preMulSum") return job.redop;
  const wide = job.dtype === "i64" || job.dtype === "u64";
  return comm.preMulSum(wide ? BigInt(PRE_MUL_SCALAR) : PRE_MUL_SCALAR);
}

/** Elements of a rank's input and output. */
export function elementCounts(op: BenchJob["op"], numRanks: number, count: number): { input: number; output: number } {
  const info = operationInfo(op);
  return {
    input: info.input === "parts" ? numRanks * count : count,
    output: info.output === "parts" ? numRanks * count : count,
  };
}

/** A call to be timed, as far as timing needs it. */
export interface TimedWork extends PromiseLike<unknown> {
  wait(): unknown;
}

/** A send and a receive, over when both are. */
class BothWorks implements TimedWork {
  readonly #sent: Work<unknown>;
  readonly #received: Work<unknown>;

  constructor(sent: Work<unknown>, received: Work<unknown>) {
    this.#sent = sent;
    this.#received = received;
  }
  wait(): void {
    this.#sent.wait();
    this.#received.wait();
  }
  then<A = unknown, B = never>(
    fulfilled?: ((value: unknown) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return Promise.all([this.#sent, this.#received]).then(fulfilled, rejected);
  }
}

/** Makes the call to be timed. `on` may be a communicator that records calls; all ranks make the same ones. */
export function caller(
  comm: Communicator,
  job: BenchJob,
  { input, output }: Buffers,
  count: number,
  inPlace: boolean,
): (on?: Communicator) => TimedWork {
  const n = comm.size;
  const { root } = job;
  const op = redopOf(comm, job);
  const by = job.algorithm === undefined ? {} : { algorithm: job.algorithm };
  const isRoot = comm.rank === root;
  const part = input.slice(0, count);
  const parts = input.slice(0, elementCounts(job.op, n, count).input);
  const outPart = output.slice(0, count);
  switch (job.op) {
    case "all_reduce": {
      const options = inPlace ? { op, ...by } : { op, ...by, output: outPart };
      return (on = comm) => on.allReduce(part, options);
    }
    case "reduce": {
      const options = inPlace ? { op, root, ...by } : { op, root, ...by, output: outPart };
      return (on = comm) => on.reduce(part, options);
    }
    case "broadcast": {
      const options = inPlace ? { root, ...by } : { root, ...by, output: outPart };
      return (on = comm) => on.broadcast(part, options);
    }
    case "all_gather":
    case "gather": {
      const whole = output.slice(0, n * count);
      const own = inPlace ? whole.slice(comm.rank * count, (comm.rank + 1) * count) : part;
      if (job.op === "all_gather") {
        const options = { output: whole, ...by };
        return (on = comm) => on.allGather(own, options);
      }
      const options = isRoot ? { root, ...by, output: whole } : { root, ...by };
      const from = isRoot ? own : part;
      return (on = comm) => on.gather(from, options);
    }
    case "reduce_scatter": {
      const own = parts.slice(comm.rank * count, (comm.rank + 1) * count);
      const options = { op, ...by, output: inPlace ? own : outPart };
      return (on = comm) => on.reduceScatter(parts, options);
    }
    case "scatter": {
      const own = parts.slice(comm.rank * count, (comm.rank + 1) * count);
      const options = isRoot ? { root, ...by, output: inPlace ? own : outPart } : { root, ...by };
      const data = isRoot ? parts : outPart;
      return (on = comm) => on.scatter(data, options);
    }
    case "all_to_all": {
      const options = { output: output.slice(0, n * count), ...by };
      return (on = comm) => on.allToAll(parts, options);
    }
    case "all_gather_v": {
      const counts = Array.from({ length: n }, () => count);
      const whole = output.slice(0, n * count);
      const own = inPlace ? whole.slice(comm.rank * count, (comm.rank + 1) * count) : part;
      const options = { counts, output: whole };
      return (on = comm) => on.allGatherV(own, options);
    }
    case "reduce_scatter_v": {
      const counts = Array.from({ length: n }, () => count);
      const own = parts.slice(comm.rank * count, (comm.rank + 1) * count);
      const options = { op, counts, output: inPlace ? own : outPart };
      return (on = comm) => on.reduceScatterV(parts, options);
    }
    case "all_to_all_v": {
      const counts = Array.from({ length: n }, () => count);
      const options = { sendCounts: counts, recvCounts: counts, output: output.slice(0, n * count) };
      return (on = comm) => on.allToAllV(parts, options);
    }
    case "barrier":
      return (on = comm) => on.barrier();
    case "send":
    case "recv": {
      const next = (comm.rank + 1) % n;
      const previous = (comm.rank + n - 1) % n;
      // Engines with devices join a send and its receive in one group, as nccl-tests' sendrecv does.
      if (comm.capabilities().deviceTensors) {
        const both = (group: Communicator) => {
          group.send(part, next);
          group.recv(outPart, previous);
        };
        return (on = comm) => on.batch(both);
      }
      return (on = comm) => new BothWorks(on.send(part, next), on.recv(outPart, previous));
    }
  }
}
