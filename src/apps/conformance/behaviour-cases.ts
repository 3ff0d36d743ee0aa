/** How calls that are right behave together: order, pairs, batches, groups, objects, special values, statistics. */

import { encodeSmallFloat, findWrong, referenceReduce } from "../../collectives/index.ts";
import {
  DTYPE_NAMES,
  DTYPES,
  type DType,
  isSmallFloat,
  newArray,
  type ReduceOp,
  type TypedArray,
  wordTable,
} from "../../core/index.ts";
import type { Communicator, Work } from "../../runtime/comm/index.ts";
import { equal, finish, holds, ownGroup, rowAndColumn, SOON, works } from "./expectations.ts";
import type { SemanticCase } from "./rank-context.ts";

const FLOATS = DTYPE_NAMES.filter((dtype) => DTYPES[dtype].isFloat);
const LARGEST: Readonly<Record<string, number>> = wordTable({
  f32: 3.4028234663852886e38,
  f64: Number.MAX_VALUE,
  f16: 65504,
  bf16: 3.3895313892515355e38,
  f8e4m3: 448,
  f8e5m2: 57344,
});

function encode(dtype: DType, values: readonly number[]): TypedArray {
  const out = newArray(dtype, values.length);
  values.forEach((value, i) => {
    out[i] = isSmallFloat(dtype) ? encodeSmallFloat(dtype, value) : value;
  });
  return out;
}

/** Special values, one column each: what the rank holds, by rank. */
function specials(dtype: DType, op: ReduceOp): readonly ((rank: number) => number)[] {
  const top = LARGEST[dtype] as number;
  const columns: ((rank: number) => number)[] = [
    (rank) => (rank === 1 ? Number.NaN : 1),
    (rank) => (rank === 0 ? Number.NaN : -1),
    (rank) => (rank === 0 ? -0 : 0),
    () => 0,
  ];
  // E4M3 has no infinity, and an E5M2 reduction may keep or saturate one that it only selects.
  if (dtype !== "f8e4m3" && dtype !== "f8e5m2") {
    columns.push((rank) => (rank === 1 ? Number.POSITIVE_INFINITY : 1));
    columns.push((rank) => (rank === 0 ? Number.NEGATIVE_INFINITY : 1));
    if (op === "sum" || op === "avg")
      columns.push((rank) => (rank === 0 ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY));
  }
  // Overflow of the result; an average may overflow before it divides.
  if (op !== "avg")
    columns.push(
      () => top,
      (rank) => (rank % 2 === 0 ? top : -top * (op === "sum" ? -1 : 1)),
    );
  if (op === "sum") columns.push(() => -top);
  return columns;
}

export const BEHAVIOUR_CASES: readonly SemanticCase[] = [
  {
    name: "NaN, infinities, zeros and overflow of every float",
    ranks: 3,
    needsFeatures: ["accumulatesInF32", "minMaxPropagatesNan"],
    async run(context) {
      const { comm } = context;
      for (const dtype of FLOATS) {
        for (const op of ["sum", "prod", "min", "max", "avg"] as const) {
          const columns = specials(dtype, op);
          const inputs = Array.from({ length: comm.size }, (_, r) =>
            encode(
              dtype,
              columns.map((column) => column(r)),
            ),
          );
          const result = await comm.allReduce(inputs[comm.rank]?.slice() as TypedArray, { ...SOON, op, dtype });
          const wrong = findWrong(referenceReduce(dtype, op, inputs), result.data);
          if (wrong)
            context.fail(`${dtype} ${op}: element ${wrong.index} is ${wrong.actual}, expected ${wrong.expected}`);
        }
      }
    },
  },
  {
    name: "integers wrap, and their average truncates towards zero",
    ranks: 2,
    async run(context) {
      const { comm } = context;
      const i8 = await comm.allReduce(new Int8Array([100, -100, 127]), SOON);
      equal(context, "i8 sum", i8.data, new Int8Array([-56, 56, -2]));
      const avg = await comm.allReduce(new Int32Array(comm.rank === 0 ? [-3, 3, -1] : [0, 0, 0]), {
        ...SOON,
        op: "avg",
      });
      equal(context, "i32 avg", avg.data, new Int32Array([-1, 1, 0]));
      const u64 = await comm.allReduce(new BigUint64Array([2n ** 63n, 5n]), SOON);
      equal(context, "u64 sum", String(u64.data), "0,10");
    },
  },
  {
    name: "16-bit floats accumulate in f32 and round once",
    ranks: 4,
    async run(context) {
      const { comm } = context;
      // 256 + 1 + 1 + 1 in bf16: 256 when every step rounds, 260 when only the end does.
      const bits = encodeSmallFloat("bf16", comm.rank === 0 ? 256 : 1);
      const result = await comm.allReduce(new Uint16Array([bits]), { ...SOON, dtype: "bf16" });
      equal(context, "bf16 256 + 1 + 1 + 1", Number(result.data[0]), encodeSmallFloat("bf16", 260));
    },
  },
  {
    name: "calls of a group run in the order of issue, however they are awaited",
    ranks: 3,
    async run(context) {
      const { comm } = context;
      const works: Work<unknown>[] = [];
      const buffers = Array.from({ length: 40 }, (_, i) =>
        new Int32Array(i % 7 === 0 ? 20_000 : 5).fill(i + comm.rank),
      );
      for (const buffer of buffers) works.push(comm.allReduce(buffer, SOON));
      for (let i = 1; i < works.length; i++) {
        holds(context, "seq rises by one", (works[i]?.seq ?? 0) === (works[i - 1]?.seq ?? 0) + 1);
      }
      equal(context, "work.op", works[0]?.op, "all_reduce");
      equal(context, "work.group", works[0]?.group, comm.group);
      for (const work of works.toReversed()) await finish(comm, work);
      for (const [i, buffer] of buffers.entries()) equal(context, `result ${i}`, buffer.at(-1), 3 * i + 3);
      equal(context, "state", works[3]?.state, "done");
    },
  },
  {
    name: "a chain in place: each call sees the result of the one before",
    ranks: 4,
    async run(context) {
      const { comm, world } = context;
      const x = world.tensor("f64", [3]);
      world.upload(x, new Float64Array(3).fill(1));
      const chain = Array.from({ length: 10 }, () => comm.allReduce(x, SOON));
      await Promise.all(chain);
      equal(context, "4^10", world.download(x)[1], 4 ** 10);
    },
  },
  {
    name: "two ranks that both send first complete, small and large",
    ranks: 2,
    needs: ["send"],
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      const { comm } = context;
      const peer = 1 - comm.rank;
      for (const count of [1, 256, 100_000]) {
        const into = new Float32Array(count);
        const sending = comm.send(new Float32Array(count).fill(comm.rank + 1), peer, SOON);
        const receiving = comm.recv(into, peer, SOON);
        await finish(comm, sending);
        await finish(comm, receiving);
        equal(context, `${count} elements received`, into[count - 1], peer + 1);
      }
    },
  },
  {
    name: "messages of a pair arrive in order, pairs do not disturb each other",
    ranks: 4,
    needs: ["send"],
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      const { comm } = context;
      const others = [0, 1, 2, 3].filter((r) => r !== comm.rank);
      const pending: Work<unknown>[] = [];
      const into = others.map((peer) =>
        Array.from({ length: 12 }, (_, i) => ({ peer, i, data: new Int32Array(1 + (i % 4) * 900) })),
      );
      for (let i = 0; i < 12; i++) {
        for (const peer of others) {
          pending.push(comm.send(new Int32Array(1 + (i % 4) * 900).fill(1000 * comm.rank + 10 * i + peer), peer, SOON));
        }
      }
      for (const list of into.toReversed())
        for (const { peer, data } of list) pending.push(comm.recv(data, peer, SOON));
      await Promise.all(pending);
      for (const { peer, i, data } of into.flat()) {
        equal(context, `message ${i} from ${peer}`, data[data.length - 1], 1000 * peer + 10 * i + comm.rank);
      }
    },
  },
  {
    name: "a batch starts its operations together, in any order of sends and receives",
    ranks: 3,
    needs: ["batch", "send"],
    async run(context) {
      const { comm } = context;
      const next = (comm.rank + 1) % 3;
      const previous = (comm.rank + 2) % 3;
      const into = new Float64Array(5000);
      const back = new Float64Array(5000);
      await comm.batch((group) => {
        group.recv(into, previous, SOON);
        group.recv(back, next, SOON);
        group.send(new Float64Array(5000).fill(comm.rank), next, SOON);
        group.send(new Float64Array(5000).fill(10 + comm.rank), previous, SOON);
      });
      equal(context, "from the one before", into[4999], previous);
      equal(context, "from the next", back[4999], 10 + next);
      const x = new Int32Array([1]);
      const y = new Int32Array([comm.rank]);
      comm
        .batch((group) => {
          group.allReduce(x);
          group.broadcast(y, { root: 2 });
        })
        .wait();
      equal(context, "all-reduce in a batch", x[0], 3);
      equal(context, "broadcast in a batch", y[0], 2);
    },
  },
  {
    name: "a batch that throws or returns a promise sends nothing",
    ranks: 2,
    needs: ["batch"],
    async run(context) {
      const { comm } = context;
      const x = new Int32Array([5]);
      const untouched = new Int32Array([-7]);
      if (comm.rank === 0) {
        let seen: unknown;
        try {
          comm
            .batch((group) => {
              group.allReduce(x);
              group.allReduce(x, { output: untouched });
              throw new RangeError("of the user");
            })
            .wait();
        } catch (error) {
          seen = error;
        }
        holds(
          context,
          "the user's error comes through",
          seen instanceof RangeError || (seen as Error)?.cause instanceof RangeError,
        );
        let refused: unknown;
        try {
          const work = comm.batch(((group: Communicator) => {
            group.allReduce(x);
            return Promise.resolve();
          }) as (group: Communicator) => void);
          await work;
        } catch (error) {
          refused = (error as { code?: string }).code;
        }
        equal(context, "an async batch", refused, "INVALID_ARGUMENT");
      }
      await works(context, "after the refused batches", comm);
      equal(context, "the data of the refused batch", x[0], 5);
      equal(context, "the output of the refused batch", untouched[0], -7);
    },
  },
  {
    name: "split: colors make groups, keys order them, -1 makes none",
    ranks: 5,
    needs: ["split"],
    async run(context) {
      const { comm } = context;
      const group = await comm.split(comm.rank === 4 ? -1 : comm.rank % 2, -comm.rank, { name: "parity" });
      if (comm.rank === 4) {
        equal(context, "no color", group, undefined);
      } else if (group !== undefined) {
        equal(context, "world ranks, by descending key", group.ranks, comm.rank % 2 === 0 ? [2, 0] : [3, 1]);
        equal(context, "own place", group.rank, comm.rank < 2 ? 1 : 0);
        equal(context, "size", group.size, 2);
        const sum = await group.allReduce(new Int32Array([comm.rank]), SOON);
        equal(context, "sum in the group", sum.data[0], comm.rank % 2 === 0 ? 2 : 4);
        await group.close();
      }
      await comm.barrier(SOON);
    },
  },
  {
    name: "groups that overlap work at the same time",
    ranks: 4,
    needs: ["split"],
    async run(context) {
      const { comm } = context;
      const [row, column] = await rowAndColumn(comm);
      const jobs = Array.from({ length: 20 }, (_, i) => {
        const count = i % 5 === 0 ? 30_000 : 16;
        const a = new Float32Array(count).fill(comm.rank);
        const b = new Float32Array(count).fill(comm.rank);
        const c = new Float32Array(count).fill(comm.rank);
        return { a, b, c, works: [row.allReduce(a, SOON), column.allReduce(b, SOON), comm.allReduce(c, SOON)] };
      });
      for (const { a, b, c, works } of jobs) {
        await Promise.all(works);
        equal(context, "row", a.at(-1), comm.rank < 2 ? 1 : 5);
        equal(context, "column", b.at(-1), comm.rank % 2 === 0 ? 2 : 4);
        equal(context, "world", c.at(-1), 6);
      }
      await row.close();
      await column.close();
    },
  },
  {
    name: "a barrier lets nobody out before all are in",
    ranks: 5,
    async run(context) {
      const { comm, shared } = context;
      for (let round = 1; round <= 20; round++) {
        Atomics.add(shared, 0, 1);
        await finish(comm, comm.barrier(SOON));
        holds(context, "all had entered", Atomics.load(shared, 0) >= round * comm.size);
        await comm.barrier(SOON);
      }
    },
  },
  {
    name: "objects travel as JSON, in rank order",
    ranks: 3,
    needs: ["gather_objects", "broadcast_object"],
    async run(context) {
      const { comm } = context;
      const value = { text: "\u{1f600} \u0000 é", list: [1, null, { deep: true }], rank: comm.rank };
      const all = await comm.gatherObjects(value, SOON);
      equal(context, "gathered", JSON.stringify(all), JSON.stringify([0, 1, 2].map((rank) => ({ ...value, rank }))));
      const big = "x".repeat(1_000_000);
      const got = await comm.broadcastObject(comm.rank === 2 ? { big } : undefined, { ...SOON, root: 2 });
      equal(context, "broadcast", (got as { big: string }).big.length, 1_000_000);
      equal(context, "wait()", comm.gatherObjects(comm.rank, SOON).wait(), [0, 1, 2]);
    },
  },
  {
    name: "statistics count calls, bytes and failures; capabilities name what is there",
    ranks: 2,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "counted");
      for (let i = 0; i < 5; i++) await group.allReduce(new Float32Array(256), SOON);
      await group.allGather(new Uint8Array(100), SOON);
      const stats = group.stats();
      equal(context, "calls", stats.operations.all_reduce?.calls, 5);
      equal(context, "bytes of all-reduce", stats.operations.all_reduce?.bytes, 5 * 1024);
      equal(context, "bytes of all-gather", stats.operations.all_gather?.bytes, 200);
      equal(context, "pending", stats.pending, 0);
      holds(context, "memory is bounded", stats.memory.usedBytes <= stats.memory.limitBytes);
      const table = group.capabilities();
      holds(context, "f32 sum", table.dtypes.includes("f32") && (table.reduceOps.f32 ?? []).includes("sum"));
      await group.close();
    },
  },
];
