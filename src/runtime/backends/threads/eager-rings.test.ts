/**
 * Small collectives as messages, and meetings by dissemination: with more cores promised than there are, so that groups of
 * every size take the ways that they take on large hosts.
 */
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { ranksHere } from "../../../../test/helpers/ranks-here.ts";
import { onRanks, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";
import type { MismatchError } from "../../../core/index.ts";
import { eagerLimitBytes, MAX_FLAT_RANKS } from "./collective-path.ts";
import { rankBlock } from "./host.ts";
import { linksOf, RANK } from "./layout.ts";
import { meetingTable } from "./meeting-code.ts";

const MANY_CORES = { attach: { timeoutMs: 20_000, cores: 256 } } as const;

describe("a meeting by dissemination", () => {
  it("lets every member hear of every other", () => {
    for (let n = MAX_FLAT_RANKS + 1; n <= 40; n++) {
      const links = 1024;
      const tables = Array.from({ length: n }, (_, me) => meetingTable(links, me, n));
      const memberAt = (address: number) => Math.floor((address - links) / 128 / linksOf(n));
      let known = Array.from({ length: n }, (_, me) => new Set([me]));
      const positions = tables.map(() => 0);
      while (tables[0]![positions[0]!] !== 0) {
        const next = known.map((set) => new Set(set));
        tables.forEach((table, me) => {
          const count = table[positions[me]!]!;
          for (let i = 0; i < count; i++) {
            const [to, from] = [table[positions[me]! + 1 + 2 * i]!, table[positions[me]! + 2 + 2 * i]!];
            expect(memberAt(from)).toBe(me);
            for (const one of known[me]!) next[memberAt(to)]!.add(one);
          }
          positions[me] = positions[me]! + 1 + 2 * count;
        });
        known = next;
      }
      expect(known.every((set) => set.size === n)).toBe(true);
    }
  });
});

// With 9 the members meet by dissemination: every second seed, or it would be half of the file's time.
describe.each([...new Set(spread([2, 9, 3, 9, 5, 9], 6))])("small collectives of %i ranks", (n) => {
  it("give what they mean, whatever was called before, with every root and in every mixture", async () => {
    const limit = Math.max(16, eagerLimitBytes("all_reduce", n) / 4);
    const counts = n > 8 ? [3, limit] : [1, 3, 16, 33, limit, limit + 1];
    const outcomes = await onRanks(
      n,
      async ({ backend, comm, rank, data: [counts, large] }) => {
        const size = comm.size;
        const wrong: string[] = [];
        const check = (what: string, got: ArrayLike<number | bigint>, wanted: (i: number) => number) => {
          for (let i = 0; i < got.length; i++) {
            if (got[i] !== wanted(i)) {
              wrong.push(`${what}[${i}] is ${got[i]}, not ${wanted(i)}`);
              return;
            }
          }
        };
        // For every element: without an array of its own.
        const total = (f: (r: number) => number) => {
          let sum = 0;
          for (let r = 0; r < size; r++) sum += f(r);
          return sum;
        };
        let round = 0;
        for (const count of counts as number[]) {
          for (let root = 0; root < size; root++, round++) {
            const value = (r: number, i: number) => (r * 7 + i * 3 + round) % 251;
            const own = backend.tensor("f32", [count]);
            const whole = backend.tensor("f32", [count * size]);
            const out = backend.tensor("f32", [count]);
            const all = backend.tensor("f32", [count * size]);
            const fill = () => {
              for (let i = 0; i < count; i++) own.data[i] = value(rank, i);
              for (let i = 0; i < count * size; i++) whole.data[i] = value(rank, i);
              out.data.fill(-1);
              all.data.fill(-1);
            };
            fill();
            await comm.allReduce(own, { output: out });
            check("all_reduce", out.data, (i) => total((r) => value(r, i)));
            fill();
            comm.broadcast(own, { root }).wait();
            check("broadcast", own.data, (i) => value(root, i));
            fill();
            comm.reduce(own, rank === root ? { root, output: out } : { root }).wait();
            if (rank === root) check("reduce", out.data, (i) => total((r) => value(r, i)));
            fill();
            await comm.allGather(own, { output: all });
            check("all_gather", all.data, (i) => value(Math.floor(i / count), i % count));
            fill();
            comm.reduceScatter(whole, { output: out }).wait();
            check("reduce_scatter", out.data, (i) => total((r) => value(r, rank * count + i)));
            fill();
            await comm.allToAll(whole, { output: all });
            check("all_to_all", all.data, (i) => value(Math.floor(i / count), rank * count + (i % count)));
            fill();
            comm.gather(own, rank === root ? { root, output: all } : { root }).wait();
            if (rank === root) check("gather", all.data, (i) => value(Math.floor(i / count), i % count));
            fill();
            await (rank === root ? comm.scatter(whole, { root, output: out }) : comm.scatter(out, { root }));
            check("scatter", out.data, (i) => value(root, rank * count + i));
            if (round % 3 === 0) comm.barrier().wait();
            if (round % 5 === 0) {
              const big = backend.tensor("f32", [large as number]);
              big.data.fill(rank + round);
              comm.allReduce(big).wait();
              const sum = total((r) => r + round);
              check("large all_reduce", big.data, () => sum);
              backend.free(big);
            }
            // In place, and an average in eight bits.
            fill();
            comm.allReduce(own).wait();
            check("in place", own.data, (i) => total((r) => value(r, i)));
            for (const tensor of [own, whole, out, all]) backend.free(tensor);
          }
        }
        return wrong.slice(0, 5);
      },
      { data: [counts, 40_000], ...MANY_CORES },
    );
    expect(valuesOf(outcomes)).toEqual(Array.from({ length: n }, () => []));
  });

  it("take larger parts of scatters from where they are, and bring those of gathers", async () => {
    const outcomes = await onRanks(
      n,
      async ({ backend, comm, rank, turn, data: [counts] }) => {
        const size = comm.size;
        const wrong: string[] = [];
        const value = (r: number, i: number, round: number) => (r * 7 + i * 3 + round) % 251;
        let round = 0;
        for (const count of counts as number[]) {
          const own = backend.tensor("u8", [count]);
          const whole = backend.tensor("u8", [count * size]);
          for (let i = 0; i < 24; i++, round++) {
            const root = round % size;
            // Who is late finds what the others had when they called.
            if (round % 7 === rank) await turn(1);
            const mine = (at: number) => value(rank, at, round);
            for (let k = 0; k < count; k++) own.data[k] = mine(k);
            const gathered = rank === root ? comm.gather(own, { root, output: whole }) : comm.gather(own, { root });
            if (i % 2 === 0) await gathered;
            else gathered.wait();
            own.data.fill(255);
            if (rank === root && !whole.data.every((x, k) => x === value(Math.floor(k / count), k % count, round))) {
              wrong.push(`gather of ${count} in round ${round}`);
            }
            if (rank === root) for (let k = 0; k < count * size; k++) whole.data[k] = mine(k);
            const given = rank === root ? comm.scatter(whole, { root, output: own }) : comm.scatter(own, { root });
            if (i % 3 === 0) await given;
            else given.wait();
            if (rank === root) whole.data.fill(255);
            if (!own.data.every((x, k) => x === value(root, rank * count + k, round))) {
              wrong.push(`scatter of ${count} in round ${round}`);
            }
          }
          backend.free(own);
          backend.free(whole);
        }
        return wrong.slice(0, 5);
      },
      { data: [n > 8 ? [3000] : [1100, 2051, 8192, 16 * 1024, 16 * 1024 + 1]], ...MANY_CORES },
    );
    expect(valuesOf(outcomes)).toEqual(Array.from({ length: n }, () => []));
  });

  it("find room in every ring after gathers that acknowledge nothing", async () => {
    const outcomes = await onRanks(
      n,
      async ({ backend, comm, rank }) => {
        const [large, whole] = [backend.tensor("i32", [1000]), backend.tensor("i32", [1000 * comm.size])];
        const [small, all] = [backend.tensor("i32", [4]), backend.tensor("i32", [4 * comm.size])];
        const wrong: string[] = [];
        const gather = (part: typeof large, into: typeof whole, value: number) => {
          part.data.fill(value + rank);
          (rank === 0 ? comm.gather(part, { output: into }) : comm.gather(part)).wait();
          if (rank === 0 && !into.data.every((x, i) => x === value + Math.floor(i / part.size)))
            wrong.push(`gather of ${value}`);
        };
        // As many without acknowledgements as a ring has messages, and more; then others until it is full, at every place in it.
        for (let brought = 0; brought < 12; brought++) {
          for (let i = 0; i < brought; i++) gather(large, whole, 1000 * brought + i);
          for (let i = 0; i < 21; i++) gather(small, all, 100 * brought + i);
          for (let i = 0; i < brought; i++) gather(large, whole, 2000 * brought + i);
          for (let i = 0; i < 19; i++) {
            if (rank === 0) small.data.fill(i);
            comm.broadcast(small).wait();
            if (small.data.some((x) => x !== i)) wrong.push(`broadcast ${i} after ${brought}`);
          }
        }
        return wrong.slice(0, 5);
      },
      MANY_CORES,
    );
    expect(valuesOf(outcomes)).toEqual(Array.from({ length: n }, () => []));
  });

  it("let a root run ahead of its receivers, but no further than its ring reaches", async () => {
    const outcomes = await onRanks(
      n,
      async ({ backend, comm, rank, turn }) => {
        const t = backend.tensor("i32", [4]);
        const got: number[] = [];
        comm.broadcast(t).wait();
        comm.barrier().wait();
        let ahead = 0;
        if (rank === 0) {
          const works = Array.from({ length: 4 }, (_, i) => {
            t.data.fill(i);
            return comm.broadcast(t);
          });
          ahead = works.filter((work) => work.state === "done").length;
          for (let i = 4; i < 100; i++) {
            t.data.fill(i);
            comm.broadcast(t).wait();
          }
        } else {
          await turn(50);
          for (let i = 0; i < 100; i++) {
            comm.broadcast(t).wait();
            got.push(t.data[0] as number);
          }
        }
        comm.barrier().wait();
        return { ahead, inOrder: got.every((x, i) => x === i), numGot: got.length };
      },
      MANY_CORES,
    );
    expect(valuesOf(outcomes)).toEqual(
      Array.from({ length: n }, (_, r) => ({ ahead: r === 0 ? 4 : 0, inOrder: true, numGot: r === 0 ? 0 : 100 })),
    );
  });

  it("are not overwritten before a rank that is held up has read them", async () => {
    const outcomes = await onRanks(
      n,
      ({ backend, comm, rank, data: [numCalls] }) => {
        // What is called is the same on all ranks, when it is called is not.
        const random = (seed: number) => {
          let state = seed;
          return (below: number) => {
            state = (Math.imul(state, 1664525) + 1013904223) | 0;
            return (state >>> 8) % below;
          };
        };
        const [shared, own] = [random(7), random(1000 + rank)];
        const size = comm.size;
        const [input, output] = [backend.tensor("i32", [16 * size]), backend.tensor("i32", [16 * size])];
        const all = Array.from({ length: size }, (_, r) => r);
        let [kind, root] = [0, 0];
        for (let call = 0; call < (numCalls as number); call++) {
          // As many in a row as make senders that wait for nobody meet a full ring.
          if (call % 20 === 0) [kind, root] = [shared(6), shared(size)];
          const count = 1 + shared(16);
          const value = (r: number, i: number) => r * 31 + i * 7 + call;
          const total = (i: number) => all.reduce((sum, r) => sum + value(r, i), 0);
          for (let i = 0; i < 16 * size; i++) input.data[i] = value(rank, i);
          output.data.fill(-1);
          if (own(4) === 0) for (const until = performance.now() + own(60) / 1000; performance.now() < until; );
          const [part, out, whole] = [input.slice(0, count), output.slice(0, count), output.slice(0, count * size)];
          const isRoot = rank === root;
          let wanted: ((i: number) => number) | undefined;
          if (kind === 0) {
            comm.allReduce(part, { output: out }).wait();
            wanted = total;
          } else if (kind === 1) {
            comm.allGather(part, { output: whole }).wait();
            wanted = (i) => value(Math.floor(i / count), i % count);
          } else if (kind === 2) {
            comm.broadcast(part, { root, output: out }).wait();
            wanted = (i) => value(root, i);
          } else if (kind === 3) {
            comm.reduce(part, isRoot ? { root, output: out } : { root }).wait();
            if (isRoot) wanted = total;
          } else if (kind === 4) {
            comm.gather(part, isRoot ? { root, output: whole } : { root }).wait();
            if (isRoot) wanted = (i) => value(Math.floor(i / count), i % count);
          } else {
            const given = input.slice(0, count * size);
            (isRoot ? comm.scatter(given, { root, output: out }) : comm.scatter(out, { root })).wait();
            wanted = (i) => value(root, rank * count + i);
          }
          const got = kind === 1 || kind === 4 ? whole : out;
          if (wanted === undefined) continue;
          for (let i = 0; i < got.size; i++) {
            if (got.data[i] !== wanted(i))
              return `call ${call}, kind ${kind}: [${i}] is ${got.data[i]}, not ${wanted(i)}`;
          }
        }
        return "right";
      },
      { data: [n > 8 ? 300 : 2000], ...MANY_CORES },
    );
    expect(valuesOf(outcomes)).toEqual(Array.from({ length: n }, () => "right"));
  });

  it("name both sides where the calls differ, at the latest soon after", async () => {
    const outcomes = await onRanks(
      n,
      async ({ backend, comm, rank }) => {
        const t = backend.tensor("f32", [8]);
        comm.allReduce(t).wait();
        try {
          comm.broadcast(t, { root: rank === 1 ? 1 : 0 }).wait();
          // Whom no message of the odd rank should have reached learns of it from those that noticed.
          for (let i = 0; i < 3; i++) comm.allReduce(t).wait();
          return "no error";
        } catch (error) {
          return [(error as MismatchError).code, /root 0/.test(String(error)) && /root 1/.test(String(error))];
        }
      },
      MANY_CORES,
    );
    expect(valuesOf(outcomes)).toEqual(Array.from({ length: n }, () => ["MISMATCH", true]));
  });
});

it("the root of a gather wakes those who wait to bring their parts before it waits itself", async () => {
  const { a, b } = ranksHere(2);
  const [part, own, whole] = [a.tensor("u8", [4096]), b.tensor("u8", [4096]), b.tensor("u8", [8192])];
  part.data.fill(1);
  own.data.fill(2);
  // The first call of a kind goes the other way until the rings are there.
  await Promise.all([a.world.gather(part, { root: 1 }), b.world.gather(own, { root: 1, output: whole })]);
  whole.data.fill(0);
  const brought = a.world.gather(part, { root: 1 });
  // On the turns after its call it goes to sleep.
  for (let i = 0; i < 3; i++) await turn();
  const words = new Int32Array(part.data.buffer);
  const doorbell = (rankBlock(0) + RANK.doorbell) / 4;
  const before = words[doorbell];
  const gathered = b.world.gather(own, { root: 1, output: whole });
  expect(words[doorbell]).not.toBe(before);
  await Promise.all([brought, gathered]);
  expect([whole.data[0], whole.data[4095], whole.data[4096]]).toEqual([1, 1, 2]);
});
