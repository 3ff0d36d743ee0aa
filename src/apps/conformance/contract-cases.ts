/**
 * What a communicator refuses, and with which words: every backend says the same, because `GroupCommunicator` says it for
 * all of them. And what may stand in a batch, what a split and a shrink take.
 */
import type { ErrorCode, ReduceOp } from "../../core/index.ts";
import type { Communicator, Work } from "../../runtime/comm/index.ts";
import { equal, fails, finish, holds, ownGroup, SOON, works } from "./expectations.ts";
import type { RankContext, SemanticCase } from "./rank-context.ts";

type Refusal = readonly [
  code: ErrorCode,
  message: string,
  attempt: (comm: Communicator, context: RankContext) => unknown,
];

const f32 = (count: number) => new Float32Array(count).fill(1);
const OPERATORS = "sum, prod, min, max, avg, band, bor, bxor, or preMulSum(scalar)";
const BATCH_TAKES = "a batch takes collectives, barriers, sends and receives";
const CARRIED =
  "plain objects, arrays, Map, Set, Date, RegExp, Error, ArrayBuffer, typed arrays, strings, numbers, bigints, booleans, null and undefined";

const operator = (word: string): Refusal => [
  "INVALID_ARGUMENT",
  `op is ${JSON.stringify(word)}; expected ${OPERATORS}`,
  (c, { world }) => c.allReduce(world.tensor("f32", [8]), { op: word as ReduceOp }),
];
const inBatch = (what: string, call: (group: Communicator) => unknown): Refusal => [
  "UNSUPPORTED",
  `${what} inside a batch is not supported; ${BATCH_TAKES}`,
  (c) => c.batch((group) => void call(group)),
];
const excluded = (ranks: unknown, shown: string): Refusal => [
  "INVALID_ARGUMENT",
  `excluded is ${shown}; expected distinct ranks of the group, one at least, from 0 to 2 without this one (0)`,
  (c) => c.shrink(ranks as number[]),
];
const color = (value: unknown, shown: string): Refusal => [
  "INVALID_ARGUMENT",
  `color is ${shown}; expected an integer from 0 to 2147483647, or -1 for no group`,
  (c) => c.split(value as number),
];
const object = (value: unknown, shown: string): Refusal => [
  "INVALID_ARGUMENT",
  `value is ${shown}; expected ${CARRIED}`,
  (c) => c.gatherObjects(value),
];

/** Rank 0 of three makes each of them alone. */
const REFUSALS: readonly Refusal[] = [
  ...["median", "preMulSum", "pre_mul_sum", "constructor", "toString", "__proto__", "hasOwnProperty", ""].map(operator),
  excluded([], "[]"),
  excluded([1, 1], "[1,1]"),
  excluded([0], "[0]"),
  excluded([3], "[3]"),
  excluded(1, "1"),
  color(-2, "-2"),
  color(0.5, "0.5"),
  color(2 ** 31, "2147483648"),
  color("0", '"0"'),
  [
    "INVALID_ARGUMENT",
    "key is 4294967296; expected an integer from -2147483647 to 2147483647",
    (c) => c.split(0, 2 ** 32),
  ],
  inBatch("batch", (c) => c.batch(() => {})),
  inBatch("split", (c) => c.split(0)),
  inBatch("shrink", (c) => c.shrink([1])),
  inBatch("broadcast_object", (c) => c.broadcastObject(1)),
  inBatch("gather_objects", (c) => c.gatherObjects(1)),
  [
    "INVALID_ARGUMENT",
    "wait is called for barrier inside the batch that issues it; expected to wait for the batch's work, which starts when its function has returned",
    (c) => c.batch((group) => void group.barrier().wait()),
  ],
  object(() => 1, "one that holds a function"),
  object({ inner: [Symbol("s")] }, "one that holds a symbol"),
  object(new Map([["k", new (class Point {})()]]), "an instance of Point"),
  object({ [Symbol("key")]: 1 }, "an object with the key Symbol(key)"),
  object(Promise.resolve(1), "an instance of Promise"),
  object(new WeakMap(), "an instance of WeakMap"),
];

/** What `fn` says when it is refused. */
const words = (error: Error | undefined) => error?.message;

export const CONTRACT_CASES: readonly SemanticCase[] = [
  {
    name: `${REFUSALS.length} misuses are refused with the same class and words by every backend`,
    ranks: 3,
    async run(context) {
      const { comm } = context;
      if (comm.rank === 0) {
        for (const [code, message, attempt] of REFUSALS) {
          const error = await fails(context, message, [code], () => attempt(comm, context));
          if (error !== undefined) equal(context, "the refusal", words(error), message);
        }
      }
      await works(context, "after", comm);
    },
  },
  {
    name: "what is closed, and what failed, is refused with the same words by every backend",
    ranks: 2,
    async run(context) {
      const group = await ownGroup(context, "closing");
      await group.close();
      const refused = "group closing was closed";
      for (const call of [
        () => group.allReduce(f32(1)),
        () => group.barrier(),
        () => group.gatherObjects(1),
        () => group.split(0),
        () => group.shrink([1 - group.rank]),
        () => group.batch(() => {}),
      ]) {
        equal(context, "the refusal", words(await fails(context, refused, ["CLOSED"], call)), refused);
      }
      await works(context, "after", context.comm);
    },
  },
  {
    name: "a batch takes a barrier beside collectives, sends and receives",
    ranks: 3,
    async run(context) {
      const { comm } = context;
      const { rank, size: n } = comm;
      const sum = new Float32Array([rank]);
      const got = new Int32Array(1);
      await comm.batch((group) => {
        group.recv(got, (rank + n - 1) % n);
        group.barrier();
        group.allReduce(sum);
        group.send(new Int32Array([rank]), (rank + 1) % n);
      }, SOON);
      equal(context, "the sum", sum[0], 3);
      equal(context, "the message", got[0], (rank + n - 1) % n);
    },
  },
  {
    name: "a work inside a batch can be awaited: it settles with the batch",
    ranks: 2,
    async run(context) {
      const { comm } = context;
      let early: Promise<unknown> | undefined;
      const whole = comm.batch((group) => {
        early = group.allReduce(new Float32Array([2]), SOON).then((result) => result.data[0]);
      });
      equal(context, "its result", await early, 4);
      await whole;
    },
  },
  {
    name: "a work has what a promise has, and is lazy",
    ranks: 2,
    async run(context) {
      const { comm } = context;
      let ended = 0;
      const result = await comm.allReduce(new Float32Array([1]), SOON).finally(() => ended++);
      equal(context, "the result after finally()", result.data[0], 2);
      const none = await comm.barrier(SOON).catch(() => "failed");
      equal(context, "catch() of work that is done", none, undefined);
      const group = await ownGroup(context, "failing");
      if (comm.rank === 0) group.abort("on purpose");
      const name = await (async () => group.allReduce(new Float32Array([1]), SOON))()
        .finally(() => ended++)
        .catch((error: Error) => error.name);
      equal(context, "catch() of a failure", name, "AbortedError");
      equal(context, "calls of finally()", ended, 2);
      equal(context, "its tag", Object.prototype.toString.call(comm.barrier()), "[object Work]");
      await group.close().catch(() => {});
    },
  },
  {
    name: "every rank of a reduce, gather and scatter gets a tensor, and a send nothing",
    ranks: 2,
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      const { comm } = context;
      const input = new Float32Array(2).fill(comm.rank + 1);
      const reduced = await comm.reduce(input, { ...SOON, root: 0 });
      equal(context, "the reduce's elements", reduced.size, 2);
      const gathered = await comm.gather(new Float32Array(2), { ...SOON, root: 1 });
      equal(context, "the gather's elements", gathered.size, comm.rank === 1 ? 4 : 2);
      const scattered = await comm.scatter(f32(comm.rank === 0 ? 4 : 2), { ...SOON, root: 0 });
      equal(context, "the scatter's elements", scattered.size, 2);
      const sent = comm.rank === 0 ? await comm.send(f32(1), 1, SOON) : await comm.recv(f32(1), 0, SOON);
      equal(context, "what a send gives", sent === undefined, comm.rank === 0);
    },
  },
  {
    name: "a group that was shrunk is over, and its survivors' goes on",
    ranks: 3,
    async run(context) {
      const group = await ownGroup(context, "whole");
      const survives = group.rank < 2;
      const rest = survives ? await group.shrink([2]) : undefined;
      if (rest !== undefined) {
        equal(context, "its name", rest.group, "whole/without-2");
        await works(context, "the survivors", rest);
        const refused = "aborted: group whole was shrunk to whole/without-2";
        const error = await fails(context, "a call of the old group", ["ABORTED"], () => group.barrier());
        equal(context, "the refusal", words(error), refused);
        await rest.close();
      }
      await group.close().catch(() => {});
      await works(context, "the world", context.comm);
    },
  },
  {
    name: "a rank that closed a group ends its peers' waits at once, and is named",
    ranks: 3,
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      for (const wait of [
        (group: Communicator) => group.barrier(),
        (group: Communicator) => group.recv(f32(1), 1),
        (group: Communicator) => group.gatherObjects(1),
      ]) {
        const group = await ownGroup(context, "leaving");
        // All three have used it: the first calls of a group may have to wait for each other.
        await works(context, "before", group);
        const start = performance.now();
        if (group.rank === 1) await group.close();
        else {
          const error = await fails(context, "the wait", ["RANK_FAILED"], async () =>
            finish(group, wait(group) as Work<unknown>),
          );
          holds(
            context,
            `"${words(error)}" names rank 1 and what it did`,
            /rank 1 .*has left group leaving/.test(`${words(error)}`),
          );
          holds(context, "it took less than 20 s", performance.now() - start < 20_000);
          await group.close().catch(() => {});
        }
      }
      await works(context, "the world", context.comm);
    },
  },
  {
    name: "what a rank sent before it closed the group still arrives",
    ranks: 2,
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      const group = await ownGroup(context, "farewell");
      await works(context, "before", group);
      if (group.rank === 0) await group.send(new Int32Array([7]), 1);
      else {
        await new Promise((resolve) => setTimeout(resolve, 100));
        const got = await group.recv(new Int32Array(1), 0, SOON);
        equal(context, "the message", got.data[0], 7);
      }
      await group.close();
    },
  },
  {
    name: "a deadline that passes names the program's own call site",
    ranks: 2,
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      const group = await ownGroup(context, "late");
      if (group.rank === 0) {
        const error = await fails(context, "the call", ["TIMEOUT"], () => group.barrier({ timeoutMs: 300 }));
        holds(
          context,
          `"${words(error)}" says where it was called`,
          /; called at .*contract-cases/.test(`${words(error)}`),
        );
        await context.comm.send(f32(1), 1);
      } else await context.comm.recv(f32(1), 0, SOON);
      await group.close().catch(() => {});
      await works(context, "the world", context.comm);
    },
  },
  {
    name: "objects arrive as they were given: collections, dates, typed arrays, NaN, cycles",
    ranks: 2,
    async run(context) {
      const { comm } = context;
      const cycle: { self?: unknown; readonly rank: number } = { rank: comm.rank };
      cycle.self = cycle;
      const given = {
        map: new Map<unknown, unknown>([[1, new Set(["a"])]]),
        date: new Date(86_400_000),
        numbers: [Number.NaN, -0, Number.POSITIVE_INFINITY, 2n ** 70n],
        floats: new Float64Array([1.5, Number.NaN]),
        bytes: new Uint8Array([9, 8, 7]).subarray(1),
        nothing: undefined,
        cycle,
      };
      const all = await comm.gatherObjects(given, SOON);
      for (const [rank, got] of all.entries()) {
        equal(context, "the map", got.map instanceof Map && (got.map.get(1) as Set<string>).has("a"), true);
        equal(context, "the date", got.date instanceof Date && got.date.getTime(), 86_400_000);
        const [nan, zero, infinity, big] = got.numbers;
        equal(
          context,
          "NaN, -0, infinity",
          [Object.is(nan, Number.NaN), Object.is(zero, -0), infinity === 1 / 0].join(),
          "true,true,true",
        );
        equal(context, "the bigint", big, 2n ** 70n);
        equal(context, "the floats", got.floats instanceof Float64Array && got.floats[0], 1.5);
        equal(context, "the bytes", [...got.bytes].join(), "8,7");
        equal(context, "the bytes' own memory", got.bytes.buffer.byteLength, 2);
        equal(context, "an undefined key", "nothing" in got && got.nothing === undefined, true);
        equal(context, "the cycle", got.cycle.self === got.cycle && got.cycle.rank, rank);
      }
      const none = await comm.broadcastObject(comm.rank === 0 ? undefined : 5, SOON);
      equal(context, "a broadcast of undefined", none, undefined);
    },
  },
];
