/**
 * What the conformance suite cannot see from above the contract: sleeping, progress from the event loop, memory,
 * failures told from outside. Ranks are worker threads.
 */
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { onRanks, THREADS_ENTRY, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import { ClosedError, InvalidArgumentError, RankFailedError } from "../../../core/index.ts";
import { attachThreads, createThreadsHost, dumpFlight, failRank } from "./index.ts";

describe("a threads world", () => {
  it("is entered once per rank, with a handle that it made", () => {
    const handle = createThreadsHost({ ranks: 2 });
    const backend = attachThreads(handle, 1);
    expect([backend.rank, backend.worldSize, backend.generation]).toEqual([1, 2, 1]);
    expect(() => attachThreads(handle, 1)).toThrow(InvalidArgumentError);
    expect(() => attachThreads(handle, 2)).toThrow(InvalidArgumentError);
    expect(() => createThreadsHost({ ranks: 0 })).toThrow(InvalidArgumentError);
    expect(() => createThreadsHost({ ranks: 2, memoryLimitBytes: 2 ** 33 })).toThrow(InvalidArgumentError);
  });

  it("refuses tensors of another generation, and of itself once it ended", async () => {
    const old = attachThreads(createThreadsHost({ ranks: 1, generation: 1 }), 0);
    const now = attachThreads(createThreadsHost({ ranks: 1, generation: 2 }), 0);
    const tensor = old.tensor("f32", [4]);
    expect(() => now.world.allReduce(tensor)).toThrow(ClosedError);
    await old.close();
    expect(() => tensor.data).toThrow(/generation 1, which ended/);
    expect(() => old.tensor("f32", [1])).toThrow(ClosedError);
    expect(() => old.world.barrier()).toThrow(ClosedError);
    await now.close();
  });

  it("sums in rank order, so that all ranks and all sizes agree to the last bit", async () => {
    const outcomes = await onRanks(3, async ({ backend, comm, rank }) => {
      const bits: number[] = [];
      for (const count of [1, 100, 200_000, 500_001]) {
        const t = backend.tensor("f32", [count]);
        for (let i = 0; i < count; i++) t.data[i] = [1e8, 1, -1e8][rank] as number;
        await comm.allReduce(t);
        bits.push(t.data[0] as number, t.data[count - 1] as number);
      }
      return bits;
    });
    // (1e8 + 1) - 1e8 in float32 is 0; any other order gives 1.
    expect(valuesOf(outcomes)).toEqual([0, 1, 2].map(() => [0, 0, 0, 0, 0, 0, 0, 0]));
  });

  it("gets on with work that nobody waits for, and settles when the data is there", async () => {
    const outcomes = await onRanks(2, async ({ comm, rank, turn }) => {
      const works = Array.from({ length: 5 }, (_, i) => comm.allReduce(new Float64Array(300_000).fill(rank + i)));
      if (rank === 0) while (works.some((w) => w.state !== "done")) await turn(1);
      else await Promise.all(works);
      return works.map((w) => w.wait().data[299_999]);
    });
    expect(valuesOf(outcomes)).toEqual([
      [1, 3, 5, 7, 9],
      [1, 3, 5, 7, 9],
    ]);
  });

  it("drives work that is issued while other work already sleeps, and minds its deadline", async () => {
    const outcomes = await onRanks(2, async ({ backend, comm, rank, turn }) => {
      const early = await backend.group("early", [0, 1]);
      const t = backend.tensor("f32", [1_000_000]);
      // Nobody joins it.
      const pending = rank === 0 ? early.barrier({ timeoutMs: 60_000 }) : undefined;
      const tookMs: number[] = [];
      const missedMs: number[] = [];
      const missed: string[] = [];
      // Three times: on a busy machine, one may take its time.
      for (let round = 0; round < 3; round++) {
        const late = await backend.group(`late ${round}`, [0, 1]);
        if (rank === 1) {
          const big = late.allReduce(t);
          while (big.state !== "done") await turn(1);
          await comm.barrier();
          await comm.barrier();
          continue;
        }
        await turn(30);
        const start = performance.now();
        await late.allReduce(t);
        tookMs.push(performance.now() - start);
        await comm.barrier();
        const began = performance.now();
        missed.push(await late.barrier({ timeoutMs: 60 }).then(String, (error: Error) => error.name));
        missedMs.push(performance.now() - began);
        await comm.barrier();
      }
      if (rank === 1) return "done";
      const state = pending?.state;
      early.abort("enough");
      await Promise.resolve(pending).catch(() => {});
      // A sleep that nobody ends lasts a second: see MAX_SLEEP_MS.
      return [state, missed, Math.min(...tookMs) < 900, Math.min(...missedMs) < 900];
    });
    expect(valuesOf(outcomes)).toEqual([["running", Array(3).fill("TimeoutError"), true, true], "done"]);
  });

  it("helps a peer in one group while it waits in another", async () => {
    const outcomes = await onRanks(2, async ({ backend, comm, rank }) => {
      const other = await backend.group("other", [0, 1]);
      const a = backend.tensor("f32", [400_000]);
      const b = backend.tensor("f32", [400_000]);
      const first = rank === 0 ? comm : other;
      const second = rank === 0 ? other : comm;
      // Each rank waits in one group for a peer that waits in the other, which needs this rank's share there.
      const pending = first.allReduce(rank === 0 ? a : b);
      second.allReduce(rank === 0 ? b : a).wait();
      pending.wait();
      return "through";
    });
    expect(valuesOf(outcomes)).toEqual(["through", "through"]);
  });

  it("keeps groups apart: two halves run different numbers of operations", async () => {
    const outcomes = await onRanks(4, async ({ comm, rank }) => {
      const half = await comm.split(rank % 2, -rank);
      if (half === undefined) return "none";
      let sum = 0;
      for (let i = 0; i < (rank % 2 === 0 ? 50 : 80); i++)
        sum += (await half.allReduce(new Int32Array([rank]))).data[0] as number;
      const order = half.ranks.join();
      await half.close();
      return [order, half.rank, sum];
    });
    expect(valuesOf(outcomes)).toEqual([
      ["2,0", 1, 100],
      ["3,1", 1, 320],
      ["2,0", 0, 100],
      ["3,1", 0, 320],
    ]);
  });

  it("delivers messages in order, however they were buffered, and frees the copies", async () => {
    const outcomes = await onRanks(2, async ({ backend, comm, rank, turn }) => {
      const used = () => comm.stats().memory.usedBytes;
      await comm.barrier();
      const peer = 1 - rank;
      const sizes = [1, 70_000, 3, 200_000, 0, 90_000, 5];
      // Blocking sends on both sides first: they must end although nobody receives yet.
      sizes.forEach((count, i) => void comm.send(new Float32Array(count).fill(100 * rank + i), peer).wait());
      await turn(5);
      const got = sizes.map((count) => {
        const into = backend.tensor("f32", [count]);
        comm.recv(into, peer).wait();
        const ok = into.data.every((x) => x === into.data[0]);
        const first = into.data[0];
        backend.free(into);
        return ok ? first : "mixed";
      });
      await comm.barrier();
      return { got, used: used() < 300_000 };
    });
    const expected = (peer: number) => ({
      got: [0, 1, 2, 3, undefined, 5, 6].map((i) => (i === undefined ? i : 100 * peer + i)),
      used: true,
    });
    expect(valuesOf(outcomes)).toEqual([expected(1), expected(0)]);
  });

  it("makes a sender wait when too many messages are under way, and gets all of them across", async () => {
    const outcomes = await onRanks(2, async ({ comm, rank }) => {
      if (rank === 0) {
        const works = Array.from({ length: 200 }, (_, i) => comm.send(new Int32Array([i]), 1));
        await Promise.all(works);
        return "sent";
      }
      const got: number[] = [];
      for (let i = 0; i < 200; i++) got.push((await comm.recv(new Int32Array(1), 0)).data[0] as number);
      return got.every((x, i) => x === i);
    });
    expect(valuesOf(outcomes)).toEqual(["sent", true]);
  });

  it("gives memory back: staged calls, results, objects, groups", async () => {
    const outcomes = await onRanks(2, async ({ comm, rank, backend }) => {
      const used = () => comm.stats().memory.usedBytes;
      await comm.gatherObjects(rank);
      // The first small collective makes the group's lanes.
      await comm.allReduce(new Float32Array(1));
      await comm.barrier();
      const before = used();
      comm.barrier().wait();
      for (let i = 0; i < 100; i++) {
        await comm.allReduce(new Float32Array(10_000));
        await comm.gatherObjects({ rank, i });
        const t = backend.tensor("f64", [1000]);
        await comm.broadcast(t);
        backend.free(t);
        if (i % 20 === 0) {
          const group = await comm.split(0);
          await group?.allReduce(new Float32Array(1));
          await group?.close();
        }
      }
      await comm.barrier();
      const after = used();
      await comm.barrier();
      return after - before < 50_000;
    });
    expect(valuesOf(outcomes)).toEqual([true, true]);
  });

  it("keeps an argument that only pending work knows", async () => {
    const outcomes = await onRanks(2, async ({ backend, comm, rank, turn, gc }) => {
      const output = backend.tensor("i32", [1000]);
      const issue = () => {
        const input = backend.tensor("i32", [1000]);
        input.data.fill(rank + 1);
        return comm.allReduce(input, { output });
      };
      if (rank === 1) {
        for (let i = 0; i < 30; i++) await turn(2);
        await issue();
      } else {
        const work = issue();
        for (let i = 0; i < 10; i++) {
          gc();
          await turn(2);
          // What was freed by mistake would be handed out again here.
          backend.free(backend.tensor("i32", [1000]));
        }
        await work;
      }
      return output.data[999];
    });
    expect(valuesOf(outcomes)).toEqual([3, 3]);
  });

  it("works beyond the first 2 GiB of addresses", async () => {
    const outcomes = await onRanks(2, async ({ backend, comm, rank }) => {
      const ballast = rank === 0 ? Array.from({ length: 36 }, () => backend.tensor("u8", [64 * 1024 * 1024])) : [];
      await comm.barrier();
      const high = await comm.split(0);
      const x = backend.tensor("f32", [5000]);
      const y = backend.tensor("f32", [10_000]);
      if (high === undefined) return "no group";
      x.data.fill(rank + 1);
      await high.allGather(x, { output: y });
      const gathered = [y.data[0], y.data[9999]];
      await high.allReduce(x);
      await high.send(new Int32Array([rank]), 1 - rank);
      const [got] = (await high.recv(new Int32Array(1), 1 - rank)).data;
      const objects = await high.gatherObjects(rank);
      await high.allReduce(new Float64Array([1]));
      await high.close();
      for (const tensor of ballast) backend.free(tensor);
      return [x.byteOffset > 2 ** 31, gathered, x.data[4999], got, objects];
    });
    expect(valuesOf(outcomes)).toEqual([
      [true, [1, 2], 3, 1, [0, 1]],
      [true, [1, 2], 3, 0, [0, 1]],
    ]);
  });

  it("frees tensors that nobody can reach any more", async () => {
    const outcomes = await onRanks(1, async ({ backend, turn, gc }) => {
      const used = () => backend.world.stats().memory.usedBytes;
      const before = used();
      (() => {
        for (let i = 0; i < 50; i++) backend.tensor("f32", [250_000]);
      })();
      const between = used();
      for (let i = 0; i < 100 && used() > before; i++) {
        gc();
        await turn(5);
      }
      return [between - before > 40_000_000, used() === before];
    });
    expect(valuesOf(outcomes)).toEqual([[true, true]]);
  });
});

describe("failures", () => {
  it("tell every rank who died, wherever it waits, and let the survivors go on without", async () => {
    const outcomes = await onRanks(
      4,
      async ({ comm, rank, turn }) => {
        await comm.barrier();
        if (rank === 2) throw new Error("out of luck");
        let failure: { name: string; message: string } | undefined;
        try {
          if (rank === 0) comm.barrier().wait();
          else if (rank === 1) await comm.barrier();
          else {
            const work = comm.recv(new Float32Array(4), 2);
            while (work.state !== "failed") await turn(1);
            await work;
          }
        } catch (error) {
          failure = error as Error;
        }
        const refused = (() => {
          try {
            comm.barrier();
          } catch (error) {
            return (error as Error).message === failure?.message;
          }
          return false;
        })();
        const rest = await comm.shrink([2]);
        const sum = (await rest.allReduce(new Int32Array([rank]))).data[0];
        return [failure?.name, failure?.message, refused, rest.ranks.join(), sum];
      },
      { onError: failRank },
    );
    const expected = ["RankFailedError", "rank 2 failed (generation 1): out of luck", true, "0,1,3", 4];
    expect(valuesOf(outcomes)).toEqual([
      expected,
      expected,
      expect.objectContaining({ message: "out of luck" }),
      expected,
    ]);
  });

  it("leave calls alone that the dead rank had come to", async () => {
    const handle = createThreadsHost({ ranks: 2 });
    const [first, second] = [attachThreads(handle, 0), attachThreads(handle, 1)];
    const met = first.world.barrier();
    second.world.barrier().wait();
    failRank(handle, 1, "it was killed");
    expect(() => first.world.barrier()).toThrow(RankFailedError);
    expect(met.state).toBe("done");
  });

  it("leave groups alone that the dead rank was not in", async () => {
    const outcomes = await onRanks(
      3,
      async ({ backend, comm, rank, turn }) => {
        const pair = rank === 2 ? undefined : await backend.group("pair", [0, 1]);
        await comm.barrier();
        if (rank === 2 || pair === undefined) throw new Error("gone");
        // Refused at once, or lost while it waits: either way this rank knows.
        const lost = await Promise.resolve()
          .then(() => comm.barrier())
          .catch((error: Error) => error.name);
        await turn();
        if (lost !== "RankFailedError") return lost;
        return (await pair.allReduce(new Int32Array([rank + 1]))).data[0];
      },
      { onError: failRank },
    );
    expect(valuesOf(outcomes).slice(0, 2)).toEqual([3, 3]);
  });

  it("are found at close if nobody looked before", async () => {
    const outcomes = await onRanks(2, async ({ comm, rank, turn }) => {
      const work = comm.allReduce(new Float32Array(rank + 1));
      while (work.state !== "failed") await turn(1);
      const [first, second] = [
        await comm.close().then(
          () => "fine",
          (e: Error) => e.name,
        ),
        await comm.close().then(() => "closed"),
      ];
      return [first, second];
    });
    expect(valuesOf(outcomes)).toEqual([
      ["MismatchError", "closed"],
      ["MismatchError", "closed"],
    ]);
  });

  it("of a wait's own deadline leave the work pending", async () => {
    const outcomes = await onRanks(2, async ({ comm, rank }) => {
      const side = await comm.split(0);
      // Rank 1 comes when rank 0 has waited in vain.
      if (rank === 1) await side?.recv(new Int32Array(1), 0);
      const work = comm.barrier();
      let short = "in time";
      if (rank === 0) {
        try {
          work.wait({ timeoutMs: 20 });
        } catch (error) {
          short = (error as Error).name;
        }
        await side?.send(new Int32Array(1), 1);
      }
      work.wait();
      return [short, work.state];
    });
    expect(valuesOf(outcomes)).toEqual([
      ["TimeoutError", "done"],
      ["in time", "done"],
    ]);
  });

  it("are recorded where anybody can read them", async () => {
    const handle = createThreadsHost({ ranks: 2 });
    await onRanks(
      2,
      async ({ comm, rank }) => {
        await comm.allReduce(new Float32Array(4), { op: "max" });
        if (rank === 1) {
          await comm.recv(new Int32Array(1), 0);
          throw new Error("bad day");
        }
        const lost = comm.barrier();
        await comm.send(new Int32Array(1), 1);
        await lost;
      },
      { handle, onError: (h, rank, message) => (rank === 1 ? failRank(h, rank, message) : undefined) },
    );
    const dump = JSON.parse(JSON.stringify(dumpFlight(handle))) as ReturnType<typeof dumpFlight>;
    expect(dump.worldSize).toBe(2);
    expect(dump.groups).toEqual([
      { name: "world", ranks: [0, 1], failure: { code: "RANK_FAILED", rank: 1, generation: 1, cause: "bad day" } },
    ]);
    expect(dump.ranks[1]).toMatchObject({
      failed: "bad day",
      entries: [{ op: "all_reduce", call: "all_reduce(f32[4], max)", state: "done" }, { op: "recv" }],
    });
    expect(dump.ranks[0]?.entries.map((e) => [e.op, e.state])).toEqual([
      ["all_reduce", "done"],
      ["barrier", "failed"],
      ["send", "done"],
    ]);
  });
});

describe("waiting", () => {
  // A peer that the machine holds up for a second, between what it wrote and its ring, is no fault of ours.
  it("is ended by a peer: nobody sleeps until it looks up by itself, whoever rings", { retry: 2 }, async () => {
    const outcomes = await onRanks(
      6,
      async ({ backend, comm, rank, turn }) => {
        const own = backend.tensor("f32", [64]);
        // Whether the last sleep ended by its own limit, a second, and not by a bell. How long it was does not count: on
        // a machine that stands still sleeps are long, and peers late. Who then looks up for nothing goes to sleep again.
        let lookedUp = false;
        const { wait, waitAsync } = Atomics;
        const { setTimeout } = globalThis;
        let isSilent = () => true;
        Atomics.wait = ((words: Int32Array, at: number, value: number, ms: number) => {
          const outcome = wait(words, at, value, ms);
          lookedUp = ms > 900 && outcome === "timed-out" && Atomics.load(words, at) === value;
          return outcome;
        }) as typeof wait;
        Atomics.waitAsync = ((words: Int32Array, at: number, value: number) => {
          lookedUp = false;
          isSilent = () => Atomics.load(words, at) === value;
          return waitAsync(words, at, value);
        }) as typeof waitAsync;
        globalThis.setTimeout = ((wake: (...given: unknown[]) => void, ms: number, ...given: unknown[]) => {
          const look = () => {
            if (ms > 900) lookedUp = isSilent();
            wake(...given);
          };
          return setTimeout(look, ms);
        }) as typeof setTimeout;
        let unrung = 0;
        for (let call = 0; call < 400; call++) {
          const kind = (call * 7 + rank * 5) % 11;
          if (kind === 0) await turn();
          if (kind === 1 && call % 4 === 0) await turn(1);
          lookedUp = false;
          const work = call % 3 === 0 ? comm.barrier() : comm.allReduce(own);
          if (kind % 2 === 0) work.wait();
          else await work;
          if (lookedUp) unrung++;
        }
        return unrung;
      },
      { attach: { cores: 1 }, isFresh: true },
    );
    expect(valuesOf(outcomes)).toEqual(Array(6).fill(0));
  });

  it("sleeps: seven ranks that wait for one cost next to no CPU", async () => {
    const before = process.cpuUsage();
    const outcomes = await onRanks(
      8,
      async ({ comm, rank, turn }) => {
        comm.barrier().wait();
        if (rank === 0) await turn(1500);
        const start = performance.now();
        const cpu = process.cpuUsage();
        comm.barrier().wait();
        const used = process.cpuUsage(cpu);
        return rank === 1 ? [performance.now() - start, (used.user + used.system) / 1000] : [];
      },
      { isFresh: true },
    );
    const [waitedMs, cpuMs] = valuesOf(outcomes)[1] as [number, number];
    // The whole process while seven ranks waited, 1.5 s unless the machine stood still; starting up is over by then.
    expect(cpuMs).toBeLessThan(0.25 * waitedMs + 100);
    expect(process.cpuUsage(before).user).toBeGreaterThan(0);
  });
});

it("is found where the tests look for it", () => {
  expect(fileURLToPath(THREADS_ENTRY)).toContain(".cache");
});
