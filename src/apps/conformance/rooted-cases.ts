/**
 * Every rank as the root in turn, with as many elements as the root's number, none included; exchanges around a ring, out of
 * place and in place. Of mpi4py's tests for communication of buffers these are what the data cases, whose roots and counts
 * are drawn, do not promise: all roots, counts from zero on, and buffers that a call must leave alone.
 */
import type { ReduceOp } from "../../core/index.ts";
import { equal, finish, SOON } from "./expectations.ts";
import type { SemanticCase } from "./rank-context.ts";

const filled = (count: number, value: number) => new Int32Array(count).fill(value);
const iota = (count: number) => Int32Array.from({ length: count }, (_, i) => i);

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
