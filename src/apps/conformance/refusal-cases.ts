/**
 * Every illegal argument is refused by the rank that makes it, before anything moves: rank 0 tries them all while the
 * others do nothing, and afterwards the group works as if nothing had been.
 */
import type { ErrorCode, ReduceOp, TypedArray } from "../../core/index.ts";
import { type Communicator, type Data, MAX_OBJECT_BYTES } from "../../runtime/comm/index.ts";
import { equal, fails, holds, SOON, works } from "./expectations.ts";
import type { RankContext, SemanticCase } from "./rank-context.ts";

const ILLEGAL: readonly ErrorCode[] = ["INVALID_ARGUMENT", "UNSUPPORTED"];
const f32 = (count: number) => new Float32Array(count).fill(1);

type Attempt = readonly [what: string, attempt: (comm: Communicator, context: RankContext) => unknown];

/** What a call cannot listen to; found out too late, the call has its number and its peers wait for it. */
const NO_SIGNALS = [
  ["an object", {} as AbortSignal],
  ["a number", 5 as unknown as AbortSignal],
  ["null", null as unknown as AbortSignal],
] as const;
const NO_OPTIONS = [
  ["null", null as never],
  ["a number", 5 as never],
] as const;

const ATTEMPTS: readonly Attempt[] = [
  ["output too short", (c) => c.allReduce(f32(8), { output: f32(7) })],
  ["output too long", (c) => c.allReduce(f32(8), { output: f32(9) })],
  ["output of another dtype", (c) => c.allReduce(f32(8), { output: new Float64Array(8) })],
  ["output that overlaps", (c) => overlap(8, (a, b) => c.allReduce(a, { output: b }))],
  ["no such operator", (c) => c.allReduce(f32(8), { op: "median" as ReduceOp })],
  ["bitwise operator on floats", (c) => c.allReduce(f32(8), { op: "bxor" })],
  ["fractional scalar on integers", (c) => c.allReduce(new Int32Array(8), { op: c.preMulSum(0.5) })],
  ["scalar too large for u8", (c) => c.allReduce(new Uint8Array(8), { op: c.preMulSum(256) })],
  ["a dtype that the array cannot hold", (c) => c.allReduce(f32(8), { dtype: "f16" })],
  ["a Uint16Array without dtype", (c) => c.allReduce(new Uint16Array(8) as TypedArray)],
  ["no such dtype", (c) => c.allReduce(f32(8), { dtype: "f128" as "f32" })],
  ["a plain array", (c) => c.allReduce([1, 2, 3] as unknown as Data)],
  ["nothing", (c) => c.allReduce(undefined as unknown as Data)],
  ["a DataView", (c) => c.allReduce(new DataView(new ArrayBuffer(8)) as unknown as Data)],
  ["an option that no call has", (c) => c.allReduce(f32(8), { reduceOp: "max" } as object)],
  [
    "an option that no call has, of a world tensor",
    (c, { world }) => c.allReduce(world.tensor("f32", [8]), { reduceOp: "max" } as object),
  ],
  ["another call's option", (c) => c.allReduce(f32(8), { root: 1 } as object)],
  ["an operator of a barrier", (c) => c.barrier({ op: "sum" } as object)],
  ["an output of a send", (c) => c.send(f32(1), 1, { output: f32(1) } as object)],
  ["a wrong option of a split", (c) => c.split(0, 0, { label: "half" } as object)],
  ["null as an operator", (c, { world }) => c.allReduce(world.tensor("f32", [8]), { op: null } as object)],
  ["null as a root", (c, { world }) => c.broadcast(world.tensor("f32", [8]), { root: null } as object)],
  ["timeout 0", (c) => c.allReduce(f32(8), { timeoutMs: 0 })],
  ["timeout below 0", (c) => c.barrier({ timeoutMs: -1 })],
  ["timeout NaN", (c) => c.allReduce(f32(8), { timeoutMs: Number.NaN })],
  ["timeout NaN of a batch's call", (c) => c.batch((b) => void b.allReduce(f32(8), { timeoutMs: Number.NaN }))],
  ["timeout 0 of a batch", (c) => c.batch((b) => void b.allReduce(f32(8)), { timeoutMs: 0 })],
  ...NO_SIGNALS.flatMap(([named, signal]): Attempt[] => [
    [`${named} as signal`, (c) => c.allReduce(f32(8), { signal })],
    [`${named} as signal, of a world tensor`, (c, { world }) => c.allReduce(world.tensor("f32", [8]), { signal })],
    [`${named} as signal of a barrier`, (c) => c.barrier({ signal })],
    [`${named} as signal of a send`, (c) => c.send(f32(1), 1, { signal })],
    [`${named} as signal of a receive`, (c) => c.recv(f32(1), 1, { signal })],
    [`${named} as signal of a split`, (c) => c.split(0, 0, { signal })],
    [`${named} as signal of an object`, (c) => c.broadcastObject(1, { signal })],
    [`${named} as signal of objects`, (c) => c.gatherObjects(1, { signal })],
    [`${named} as signal of a batch`, (c) => c.batch((b) => void b.allReduce(f32(8)), { signal })],
    [`${named} as signal of a batch's call`, (c) => c.batch((b) => void b.allReduce(f32(8), { signal }))],
  ]),
  ...NO_OPTIONS.flatMap(([named, options]): Attempt[] => [
    [`${named} as options`, (c) => c.allReduce(f32(8), options)],
    [`${named} as options, of a world tensor`, (c, { world }) => c.allReduce(world.tensor("f32", [8]), options)],
    [`${named} as options of a broadcast`, (c) => c.broadcast(f32(8), options)],
    [`${named} as options of a reduce`, (c) => c.reduce(f32(8), options)],
    [`${named} as options of an all-gather`, (c) => c.allGather(f32(8), options)],
    [`${named} as options of an all-gather of counts`, (c) => c.allGatherV(f32(8), options)],
    [`${named} as options of a reduce-scatter`, (c) => c.reduceScatter(f32(9), options)],
    [`${named} as options of a reduce-scatter of counts`, (c) => c.reduceScatterV(f32(9), options)],
    [`${named} as options of an all-to-all`, (c) => c.allToAll(f32(9), options)],
    [`${named} as options of an all-to-all of counts`, (c) => c.allToAllV(f32(9), options)],
    [`${named} as options of a gather`, (c) => c.gather(f32(8), options)],
    [`${named} as options of a scatter`, (c) => c.scatter(f32(9), options)],
    [`${named} as options of a barrier`, (c) => c.barrier(options)],
    [`${named} as options of a send`, (c) => c.send(f32(1), 1, options)],
    [`${named} as options of a receive`, (c) => c.recv(f32(1), 1, options)],
    [`${named} as options of a split`, (c) => c.split(0, 0, options)],
    [`${named} as options of an object`, (c) => c.broadcastObject(1, options)],
    [`${named} as options of objects`, (c) => c.gatherObjects(1, options)],
    [`${named} as options of a batch`, (c) => c.batch((b) => void b.allReduce(f32(8)), options)],
    [`${named} as options of a batch's call`, (c) => c.batch((b) => void b.allReduce(f32(8), options))],
  ]),
  ["a batch of no function", (c) => c.batch(5 as unknown as () => void)],
  ["root beyond the group", (c) => c.broadcast(f32(8), { root: c.size })],
  ["root below 0", (c) => c.broadcast(f32(8), { root: -1 })],
  ["fractional root", (c) => c.reduce(f32(8), { root: 0.5 })],
  ["root NaN", (c) => c.gather(f32(8), { root: Number.NaN })],
  ["root as text", (c) => c.scatter(f32(9), { root: "0" as unknown as number })],
  ["broadcast output length", (c) => c.broadcast(f32(8), { output: f32(4) })],
  ["reduce output length on root", (c) => c.reduce(f32(8), { output: f32(4), root: 0 })],
  ["reduce with a bitwise operator", (c) => c.reduce(f32(8), { op: "band" })],
  ["all-gather output length", (c) => c.allGather(f32(8), { output: f32(8) })],
  ["all-gather into another rank's part", (c) => part(24, 4, 8, (a, b) => c.allGather(b, { output: a }))],
  ["reduce-scatter of a length that does not divide", (c) => c.reduceScatter(f32(10))],
  ["reduce-scatter output length", (c) => c.reduceScatter(f32(9), { output: f32(9) })],
  ["reduce-scatter onto another part", (c) => part(24, 8, 8, (a, b) => c.reduceScatter(a, { output: b }))],
  ["all-to-all of a length that does not divide", (c) => c.allToAll(f32(10))],
  ["all-to-all in place", (c) => inPlace(9, (a) => c.allToAll(a, { output: a }))],
  ["all-to-all output length", (c) => c.allToAll(f32(9), { output: f32(12) })],
  ["scatter of a length that does not divide", (c) => c.scatter(f32(10), { root: 0 })],
  ["scatter output length", (c) => c.scatter(f32(9), { root: 0, output: f32(4) })],
  ["gather output length on root", (c) => c.gather(f32(3), { root: 0, output: f32(8) })],
  ["counts missing", (c) => c.allGatherV(f32(3), {} as { counts: number[] })],
  ["counts of too few ranks", (c) => c.allGatherV(f32(3), { counts: [3, 3] })],
  ["counts below 0", (c) => c.allGatherV(f32(3), { counts: [3, -3, 3] })],
  ["fractional counts", (c) => c.reduceScatterV(f32(3), { counts: [1, 0.5, 1.5] })],
  ["input that is not counts[rank]", (c) => c.allGatherV(f32(4), { counts: [3, 3, 3] })],
  ["input that is not the sum of counts", (c) => c.reduceScatterV(f32(4), { counts: [3, 3, 3] })],
  ["output that is not the sum of counts", (c) => c.allGatherV(f32(3), { counts: [3, 3, 3], output: f32(8) })],
  ["sendCounts that are not the input", (c) => c.allToAllV(f32(4), { sendCounts: [1, 1, 1], recvCounts: [1, 1, 1] })],
  [
    "recvCounts that are not the output",
    (c) => c.allToAllV(f32(3), { sendCounts: [1, 1, 1], recvCounts: [1, 1, 1], output: f32(4) }),
  ],
  ["recvCounts of too few ranks", (c) => c.allToAllV(f32(3), { sendCounts: [1, 1, 1], recvCounts: [1, 1] })],
  ["recvCounts that differ for oneself", (c) => c.allToAllV(f32(3), { sendCounts: [1, 1, 1], recvCounts: [2, 1, 1] })],
  ["send to oneself", (c) => c.send(f32(1), c.rank)],
  ["send beyond the group", (c) => c.send(f32(1), c.size)],
  ["receive from below 0", (c) => c.recv(f32(1), -1)],
  ["receive from no one", (c) => c.recv(f32(1), undefined as unknown as number)],
  ["an object with a function", (c) => c.broadcastObject({ then: () => {} }, { root: 0 })],
  ["an object above the cap", (c) => c.gatherObjects("x".repeat(MAX_OBJECT_BYTES + 1))],
  ["an instance of a class", (c) => c.gatherObjects(new (class {})())],
  ["split with a fractional color", (c) => c.split(0.5)],
  ["split with color -2", (c) => c.split(-2)],
  ["split with a name that is no text", (c) => c.split(0, 0, { name: 5 as never })],
  ["split without a name", (c) => c.split(0, 0, { name: "" })],
  ["shrink by a rank beyond the group", (c) => c.shrink([c.size])],
  ["shrink by oneself", (c) => c.shrink([c.rank])],
];

function overlap(count: number, use: (a: Data, b: Data) => unknown): unknown {
  const whole = f32(2 * count);
  return use(whole.subarray(0, count), whole.subarray(1, count + 1));
}
function part(total: number, start: number, count: number, use: (whole: Data, part: Data) => unknown): unknown {
  const whole = f32(total);
  return use(whole, whole.subarray(start, start + count));
}
function inPlace(count: number, use: (a: Data) => unknown): unknown {
  return use(f32(count));
}

export const REFUSAL_CASES: readonly SemanticCase[] = [
  {
    name: `${ATTEMPTS.length} illegal calls are refused before any rank moves`,
    ranks: 3,
    async run(context) {
      const { comm } = context;
      await works(context, "before", comm);
      if (comm.rank === 0) {
        const pending = comm.stats().pending;
        for (const [what, attempt] of ATTEMPTS) await fails(context, what, ILLEGAL, () => attempt(comm, context));
        equal(context, "pending work after the refusals", comm.stats().pending, pending);
      }
      await works(context, "after", comm);
    },
  },
  {
    name: "an error says the argument, its value and what is accepted",
    ranks: 2,
    async run(context) {
      const { comm } = context;
      if (comm.rank === 0) {
        const root = await fails(context, "root 7", ILLEGAL, () => comm.broadcast(f32(1), { root: 7 }));
        holds(context, `"${root?.message}" names root, 7 and 0 to 1`, /root.*7.*0 to 1/s.test(root?.message ?? ""));
        const length = await fails(context, "length 3", ILLEGAL, () => comm.reduceScatter(f32(3)));
        holds(context, `"${length?.message}" names 3 and 2`, /3.*2/s.test(length?.message ?? ""));
      }
      await works(context, "after", comm);
    },
  },
  {
    name: "a freed tensor is refused",
    ranks: 2,
    async run(context) {
      const { comm, world } = context;
      const tensor = world.tensor("f32", [16]);
      await comm.allReduce(tensor, SOON);
      world.free(tensor);
      if (comm.rank === 0) {
        await fails(context, "all-reduce of a freed tensor", ["CLOSED"], () => comm.allReduce(tensor));
        await fails(context, "a second free", ["CLOSED"], async () => world.free(tensor));
        await fails(context, "its data", ["CLOSED"], async () => tensor.data[0]);
      }
      await works(context, "after", comm);
    },
  },
  {
    name: "more memory than there is, is a clear error, and what is freed comes back",
    ranks: 2,
    async run(context) {
      const { comm, world } = context;
      await fails(context, "a tensor of 8 TiB", ["OUT_OF_MEMORY", "INVALID_ARGUMENT"], async () =>
        world.tensor("f64", [2 ** 40]),
      );
      const { limitBytes, usedBytes: before } = comm.stats().memory;
      const bytes = Math.min(limitBytes / 8, 64 << 20);
      for (let round = 0; round < 12; round++) world.free(world.tensor("u8", [bytes]));
      await works(context, "after", comm);
      // Where there is far more memory than that, nothing else shows it. Some of it may still be on its way back.
      holds(context, "what was freed is free", comm.stats().memory.usedBytes - before < 4 * bytes);
    },
  },
];
