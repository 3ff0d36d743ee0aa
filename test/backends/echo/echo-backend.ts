/** The echo backend's one rank, and the driver of its groups. */
import * as core from "../../../src/core/index.ts";
import * as comm from "../../../src/runtime/comm/index.ts";

const CAPABILITIES: comm.Capabilities = {
  backend: "echo",
  dtypes: core.DTYPE_NAMES,
  reduceOps: Object.fromEntries(core.DTYPE_NAMES.map((d) => [d, core.REDUCE_OPS.filter((op) => core.isLegal(op, d))])),
  operations: ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"].concat([
    "gather",
    "scatter",
    "broadcast_object",
    "gather_objects",
    "batch",
    "split",
    "shrink",
  ]),
  deviceTensors: false,
  hostTensors: true,
  maxRanks: 1,
  features: {},
};

class EchoDriver implements comm.GroupDriver {
  readonly place;
  readonly capabilities = CAPABILITIES;
  failure: core.ChoraleError | undefined;
  nextSeq = 0;

  constructor(group: string, generation: number) {
    this.place = { backend: "echo", group, rank: 0, ranks: [0], generation };
  }
  #settle<T>(op: string, value: () => T): comm.PendingWork<T> {
    if (this.failure !== undefined) throw this.failure;
    return new comm.SettledWork(this.nextSeq++, op, this.place.group, { value: value() });
  }
  submit(made: comm.GroupCall): comm.PendingWork<unknown> {
    if (made.kind === "barrier") return this.#settle("barrier", () => undefined);
    const { call, input, output, outputCount } = made;
    return this.#settle(call.op, () => {
      const from = comm.asTensor(input);
      const isInPlace = output === undefined && comm.rolesOf(call).inPlace;
      if (isInPlace) return from;
      const to = output === undefined ? core.tensor(call.dtype, [outputCount]) : comm.asTensor(output);
      const bytes = ({ data }: core.Tensor) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      bytes(to as core.Tensor).set(bytes(from));
      return to;
    });
  }
  submitAll(calls: readonly comm.GroupCall[]): comm.SubmittedBatch {
    return { works: calls.map((call) => this.submit(call)) };
  }
  exchange<T>({ op, bytes, finish }: comm.ByteExchange<T>): comm.PendingWork<T> {
    return this.#settle(op, () => finish([bytes]));
  }
  open({ members, name }: comm.GroupOpening) {
    return members.length === 0 ? undefined : new comm.GroupCommunicator(new EchoDriver(name, this.place.generation));
  }
  pending(): comm.CommStats {
    return { operations: {}, pending: 0, memory: { usedBytes: 0, peakBytes: 0, limitBytes: 0 } };
  }
  fail(error: core.ChoraleError): void {
    this.failure ??= error;
  }
  async drain(): Promise<void> {}
  async close(): Promise<undefined> {}
}

export class EchoBackend implements comm.Backend {
  readonly name = "echo";
  readonly rank = 0;
  readonly worldSize = 1;
  readonly generation: number;
  readonly world: comm.GroupCommunicator;

  constructor({ generation }: comm.HostHandle) {
    this.generation = generation;
    this.world = new comm.GroupCommunicator(new EchoDriver("world", generation));
  }
  async group(name: string, ranks: readonly number[]) {
    comm.checkGroup(name, ranks, 1, 0);
    return new comm.GroupCommunicator(new EchoDriver(name, this.generation));
  }
  tensor<D extends core.DType>(dtype: D, shape: readonly number[]): core.Tensor<D> {
    return core.tensor(dtype, shape);
  }
  free(): void {}
  fail(_rank: number, cause: string): void {
    this.world.abort(cause);
  }
  capabilities = () => CAPABILITIES;
  abandon(cause: Error): void {
    this.world.abort(new core.AbortedError(cause.message).message);
  }
  close(): Promise<void> {
    return this.world.close();
  }
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
