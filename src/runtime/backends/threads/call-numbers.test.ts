/** Numbers of calls and messages beyond what a 32-bit word holds, signed or not: all goes on as before. */
import { describe, expect, it } from "vitest";
import { ranksHere } from "../../../../test/helpers/ranks-here.ts";
import { onRanks, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import type { MismatchError, TimeoutError } from "../../../core/index.ts";
import { createThreadsHost, dumpFlight } from "./index.ts";
import { PAIR, RANK } from "./layout.ts";

/** Where a word begins anew, and where none does. */
const WRAPS = [0, 2 ** 31, 2 ** 32, 3 * 2 ** 31, 2 ** 45];

const failureOf = (work: PromiseLike<unknown>): Promise<unknown> =>
  Promise.resolve(work).then(
    () => undefined,
    (error: unknown) => error,
  );

describe.each(WRAPS)("calls on both sides of number %i", (wrap) => {
  const first = Math.max(0, wrap - 40);

  it("are made, of all kinds", async () => {
    const handle = createThreadsHost({ ranks: 2 });
    const run = async ({ backend, comm, rank }: Parameters<Parameters<typeof onRanks>[1]>[0]) => {
      const t = backend.tensor("f32", [64]);
      const out = backend.tensor("i32", [4]);
      const [own, other] = [backend.tensor("i32", [2]), 1 - rank];
      const wrong: string[] = [];
      const expectSame = (what: string, round: number, got: unknown, wanted: unknown) => {
        if (String(got) !== String(wanted)) wrong.push(`${what} ${round}: ${got} for ${wanted}`);
      };
      let seq = -1;
      for (let round = 0; round < 25; round++) {
        t.data.fill(round + rank);
        const reduced = comm.allReduce(t);
        reduced.wait();
        expectSame("all_reduce", round, t.data[63], 2 * round + 1);
        if (seq >= 0) expectSame("seq", round, reduced.seq, seq + 4);
        seq = reduced.seq;
        comm.barrier().wait();
        own.data.set([10 * rank, round]);
        await comm.allGather(own, { output: out });
        expectSame("all_gather", round, out.data, [0, round, 10, round]);
        expectSame("object", round, await comm.broadcastObject(rank === 0 ? round : undefined), round);
      }
      const half = await comm.split(0, -rank);
      const halves = await half?.allReduce(new Int32Array([rank + 1]));
      expectSame("split", 0, [half?.rank, halves?.data], [other, 3]);
      return wrong;
    };
    const outcomes = await onRanks(2, run, { handle, firstCall: first });
    expect(valuesOf(outcomes)).toEqual([[], []]);
    for (const { entries } of dumpFlight(handle).ranks) {
      expect(entries).toHaveLength(RANK.flightEntries);
      expect(entries.map(({ group, seq, op, state }) => [group, seq, op, state]).slice(-4)).toEqual([
        ["world", first + 98, "all_gather", "done"],
        ["world", first + 99, "broadcast_object", "done"],
        ["world", first + 100, "split", "done"],
        ["world/split0.0", first, "all_reduce", "done"],
      ]);
      expect(entries.slice(0, -1).map(({ seq }) => seq)).toEqual(
        Array.from({ length: RANK.flightEntries - 1 }, (_, i) => first + 101 - 63 + i),
      );
    }
  });

  it("are messages, also with a ring of them under way", async () => {
    const run = async ({ backend, comm, rank, n }: Parameters<Parameters<typeof onRanks>[1]>[0]) => {
      const t = backend.tensor("i32", [1]);
      const got: number[] = [];
      if (rank === 0) {
        for (let i = 0; i < 30; i++) {
          t.data[0] = i;
          comm.send(t, 1).wait();
        }
        const sent = Array.from({ length: 150 }, (_, i) => comm.send(new Int32Array([30 + i]), 1));
        // A message is no longer the sender's when it is in the ring, which is full now.
        await sent[63];
        const numDone = sent.filter((work) => work.state === "done").length;
        await comm.barrier();
        await Promise.all(sent);
        return [numDone, n];
      }
      for (let i = 0; i < 30; i++) got.push(comm.recv(t, 0).wait().data[0] as number);
      await comm.barrier();
      for (let i = 0; i < 150; i++) got.push((await comm.recv(new Int32Array(1), 0)).data[0] as number);
      return got;
    };
    const outcomes = await onRanks(2, run, { firstCall: first });
    expect(valuesOf(outcomes)).toEqual([[PAIR.numMessages, 2], Array.from({ length: 180 }, (_, i) => i)]);
  });

  it("that do not match are told from both sides, by their number", async () => {
    const { a, b } = ranksHere(2, wrap);
    const [one, other] = (await Promise.all([
      failureOf(a.world.allGatherV(new Float32Array(1), { counts: [1, 2] })),
      failureOf(b.world.allGatherV(new Float32Array(1), { counts: [2, 1] })),
    ])) as MismatchError[];
    expect(one?.message).toContain(`operation #${wrap} of group world`);
    // Each side's counts are in what it wrote about this very call.
    for (const sides of [one?.sides, other?.sides]) {
      expect(sides?.map(({ rank }) => rank)).toEqual([0, 1]);
      expect(sides?.[1]?.call).toMatch(/all_gather_v\(.*counts \[2, 1\]/);
    }
    expect(one?.sides[0]?.call).toMatch(/all_gather_v\(.*counts \[1, 2\]/);
  });

  it("that do not come are told from those that did", async () => {
    // After three barriers the recorder has counted as many entries as a word begins anew at.
    const from = Math.max(0, wrap - 3);
    const { a, b, backends, handle } = ranksHere(3, from);
    for (let i = 0; i < 3; i++) for (const { world } of backends) world.barrier();
    const late = [a, b].map(({ world }) => failureOf(world.allReduce(new Float32Array(4), { timeoutMs: 50 })));
    const error = (await Promise.all(late))[0] as TimeoutError;
    expect(error.message).toContain(`#${from + 3} of group world`);
    expect(error.ranks).toEqual([
      { rank: 0, arrived: true, lastOp: "all_reduce", lastSeq: from + 3 },
      { rank: 1, arrived: true, lastOp: "all_reduce", lastSeq: from + 3 },
      { rank: 2, arrived: false, lastOp: "barrier", lastSeq: from + 2 },
    ]);
    const barriers = [from, from + 1, from + 2];
    expect(dumpFlight(handle).ranks.map(({ entries }) => entries.map(({ seq }) => seq))).toEqual([
      [...barriers, from + 3],
      [...barriers, from + 3],
      barriers,
    ]);
    expect(backends[2]?.world.stats().pending).toBe(0);
  });

  it("are told by who is done with their share", async () => {
    const { a, b, backends } = ranksHere(3, wrap);
    // Too long to go as messages, which end without a second meeting.
    const works = backends.map(({ world }) => world.allReduce(new Float32Array(3000).fill(1)));
    // All have come, the last one did its share, this one does its own now, and the first cannot while this thread waits.
    let error: unknown;
    try {
      works[b.rank]?.wait({ timeoutMs: 60 });
    } catch (thrown) {
      error = thrown;
    }
    expect((error as TimeoutError).ranks.map(({ arrived }) => arrived)).toEqual([false, true, true]);
    for (const sum of await Promise.all(works)) expect(sum.data[0]).toBe(3);
    expect(a.world.stats().pending).toBe(0);
  });

  it("give back what nobody received when their group closes", async () => {
    const { a, b } = ranksHere(2, Math.max(0, wrap - 3));
    const used = () => a.world.stats().memory.usedBytes;
    const before = used();
    const [ga, gb] = [await a.group("g", [0, 1]), await b.group("g", [0, 1])];
    const sent = Array.from({ length: 7 }, (_, i) => ga.send(new Float64Array(100).fill(i), 1));
    await Promise.all(sent);
    expect((await gb.recv(new Float64Array(100), 0)).data[99]).toBe(0);
    expect(used()).toBeGreaterThan(before + 6 * 800);
    await Promise.all([ga.close(), gb.close()]);
    expect(used()).toBe(before);
  });
});
