/**
 * Every rank as the root in turn, with as many elements as the root's number, none included; every count from none on, in a copy
 * of the group and in groups of one; exchanges around a ring; all of them out of place and in place. Of mpi4py's tests for
 * communication of buffers (test_cco_buf, test_cco_vec, test_p2p_buf) these are what the data cases, whose roots and counts are
 * drawn, do not promise: all roots, counts from zero on, and buffers that a call must leave alone.
 */
import type { ReduceOp } from "../../core/index.ts";
import type { Communicator } from "../../runtime/comm/index.ts";
import { equal, finish, SOON } from "./expectations.ts";
import type { RankContext, SemanticCase } from "./rank-context.ts";

const filled = (count: number, value: number) => new Int32Array(count).fill(value);
const iota = (count: number) => Int32Array.from({ length: count }, (_, i) => i);

/** Each collective with parts of `count` elements, apart and in place, where element e of part p of rank r is 100 r + 10 p + e. */
async function everyCollective(context: RankContext, comm: Communicator, count: number): Promise<void> {
  const { rank, size } = comm;
  const ranks = Array.from({ length: size }, (_, r) => r);
  const partOf = (r: number, p: number) => Int32Array.from({ length: count }, (_, e) => 100 * r + 10 * p + e);
  const joined = (parts: readonly Int32Array[]) => Int32Array.of(...parts.flatMap((part) => [...part]));
  const whole = (r: number) => joined(ranks.map((p) => partOf(r, p)));
  const own = (buffer: Int32Array) => buffer.subarray(rank * count, (rank + 1) * count);
  const part = partOf(rank, rank);
  const sumOf = (p: number) => partOf(0, p).map((_, e) => ranks.reduce((sum, r) => sum + (partOf(r, p)[e] ?? 0), 0));
  const diagonal = joined(ranks.map((r) => partOf(r, r)));
  const all = diagonal.map(() => -1);
  const at = (what: string) => `${what} of ${size} ranks and ${count} elements`;
  const one = part.map(() => -1);

  await finish(comm, comm.allGather(part, { output: all, ...SOON }));
  equal(context, at("all_gather"), all, diagonal);
  const gathered = diagonal.map(() => -1);
  own(gathered).set(part);
  await finish(comm, comm.allGather(own(gathered), { output: gathered, ...SOON }));
  equal(context, at("all_gather in place"), gathered, diagonal);

  const given = whole(rank);
  await finish(comm, comm.allToAll(given, { output: all, ...SOON }));
  equal(context, at("all_to_all"), all, joined(ranks.map((r) => partOf(r, rank))));

  await finish(comm, comm.reduceScatter(given, { output: one, ...SOON }));
  equal(context, at("reduce_scatter"), one, sumOf(rank));
  await finish(comm, comm.allReduce(given, { output: all, ...SOON }));
  equal(context, at("all_reduce"), all, joined(ranks.map(sumOf)));
  equal(context, at("the inputs after them"), given, whole(rank));
  await finish(comm, comm.reduceScatter(given, { output: own(given), ...SOON }));
  equal(context, at("reduce_scatter in place"), own(given), sumOf(rank));
  const reduced = whole(rank);
  await finish(comm, comm.allReduce(reduced, SOON));
  equal(context, at("all_reduce in place"), reduced, joined(ranks.map(sumOf)));

  for (const root of ranks) {
    const isRoot = rank === root;
    const options = { root, ...SOON };
    const room = diagonal.map(() => -1);
    own(room).set(part);
    await finish(comm, comm.gather(own(room), isRoot ? { ...options, output: room } : options));
    if (isRoot) equal(context, at(`gather in place with root ${root}`), room, diagonal);
    const parts = whole(root);
    const target = isRoot ? own(parts) : part.map(() => -1);
    await finish(comm, isRoot ? comm.scatter(parts, { ...options, output: target }) : comm.scatter(target, options));
    equal(context, at(`scatter in place with root ${root}`), target, partOf(root, rank));
    if (isRoot) equal(context, at(`what is scattered with root ${root}`), parts, whole(root));
  }
}

export const ROOTED_CASES: readonly SemanticCase[] = [
  {
    name: "every root in turn, with as many elements as its number",
    ranks: 3,
    needs: ["broadcast", "gather", "scatter"],
    async run(context) {
      const { comm } = context;
      const { rank, size } = comm;
      for (let root = 0; root < size; root++) {
        const options = { root, ...SOON };
        const at = (what: string) => `${what} with root ${root}`;
        const buffer = filled(root, rank === root ? root : -1);
        await finish(comm, comm.broadcast(buffer, options));
        equal(context, at("broadcast"), buffer, filled(root, root));

        const parts = filled(root * size, -1);
        await finish(comm, comm.gather(filled(root, rank), { ...options, output: parts }));
        const ranks = Int32Array.from(parts, (_, i) => Math.floor(i / root));
        equal(context, at("gather"), parts, rank === root ? ranks : filled(parts.length, -1));

        const part = filled(size, -1);
        const all = iota(size * size);
        const given = rank === root ? all : part;
        await finish(comm, comm.scatter(given, rank === root ? { ...options, output: part } : options));
        equal(context, at("scatter"), part, all.subarray(rank * size, (rank + 1) * size));
      }
    },
  },
  {
    name: "every root in turn gets the reduction, and no other rank's memory is written",
    ranks: 3,
    needs: ["reduce"],
    async run(context) {
      const { comm } = context;
      const { rank, size } = comm;
      const results: readonly (readonly [ReduceOp, (i: number) => number])[] = [
        ["sum", (i) => i * size],
        ["prod", (i) => i ** size],
        ["min", (i) => i],
        ["max", (i) => i],
      ];
      for (let root = 0; root < size; root++) {
        for (const [op, value] of results) {
          const output = filled(size, -1);
          const options = { root, op, ...SOON };
          await finish(comm, comm.reduce(iota(size), { ...options, output }));
          const wanted = rank === root ? iota(size).map(value) : filled(size, -1);
          equal(context, `reduce ${String(op)} with root ${root}`, output, wanted);
        }
      }
    },
  },
  {
    name: "every count from none on, apart and in place, in a copy of the group and in groups of one",
    ranks: 3,
    needs: ["split", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"],
    async run(context) {
      const [copy, alone] = [await context.comm.split(0), await context.comm.split(context.comm.rank)];
      for (const comm of [copy, alone]) {
        if (comm === undefined) throw new Error("split gave no group");
        for (let count = 0; count <= 3; count++) await everyCollective(context, comm, count);
        await comm.close();
      }
    },
  },
  {
    name: "a ring passes on any number of elements, none included, also in place",
    ranks: 3,
    needs: ["send"],
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      const { comm } = context;
      const { rank, size } = comm;
      const [next, before] = [(rank + 1) % size, (rank + size - 1) % size];
      for (let count = 0; count <= size; count++) {
        const room = filled(count + 1, -1);
        const sending = comm.send(filled(count, rank), next, SOON);
        await finish(comm, comm.recv(room.subarray(0, count), before, SOON));
        await finish(comm, sending);
        equal(context, `ring of ${count}`, room, Int32Array.of(...filled(count, before), -1));

        // A send outside of a batch lets its memory go at once: it may be received into.
        const own = filled(count, rank);
        const leaving = comm.send(own, next, SOON);
        await finish(comm, leaving);
        await finish(comm, comm.recv(own, before, SOON));
        equal(context, `ring of ${count} in place`, own, filled(count, before));
      }
    },
  },
];
