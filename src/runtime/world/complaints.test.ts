/**
 * What users of NCCL and torch.distributed complain of most, provoked here over sockets: each test shows the message that
 * chorale gives instead. The table in docs/doctor.md names these tests, and those of the complaints that are provoked elsewhere.
 */
import { afterAll, describe, expect, it, vi } from "vitest";
import { RankFailedError } from "../../core/index.ts";
import { launch } from "./launch.ts";
import type { LaunchOptions } from "./launch-options.ts";
import { closeRankPool, runRanks } from "./run-ranks.ts";

afterAll(() => closeRankPool());

type Run = NonNullable<LaunchOptions<unknown, Int32Array>["run"]>;
/** @param run gets words that its ranks, which are threads here, have in common: for what must come after something else */
const onRanks = (ranks: number, run: Run) => {
  const options = { backend: "tcp", data: new Int32Array(new SharedArrayBuffer(4)) } as const;
  return runRanks(ranks, run as never, options) as Promise<unknown[]>;
};
/** Without the file's place, which differs between copies. */
const placeless = (texts: readonly unknown[]) =>
  texts.map((text) => String(text).replaceAll(/ at \S+ \(\S+\/run\.mjs:\d+:\d+\)/g, " at FILE:LINE"));

describe.skipIf(process.platform === "win32")("complaint", () => {
  it("1, eight timeouts and no cause: each names who came, who did not, and what that rank did last", async () => {
    const told = await onRanks(3, async (world, step) => {
      const { comm, rank } = world;
      const reached = async (value: number) => {
        while (Atomics.load(step, 0) < value) await new Promise((resolve) => setTimeout(resolve, 5));
      };
      await comm.barrier();
      if (rank === 2) {
        await reached(4);
        return "busy with something else";
      }
      const x = world.tensor("f32", [4]);
      // Rank 0's deadline ends the call for both, once rank 1 has come.
      if (rank === 0) await reached(1);
      const work = comm.allReduce(x, { timeoutMs: rank === 0 ? 600 : 30_000 });
      Atomics.add(step, 0, 1);
      const text = await work.then(String, String);
      Atomics.add(step, 0, 1);
      if (rank === 0) await reached(4);
      return text;
    });
    const text =
      "TimeoutError: all_reduce #1 of world did not complete within 600 ms; arrived: ranks [0, 1], missing: ranks [2] (last operation of rank 2: barrier() #0); called at FILE:LINE";
    expect(placeless(told)).toEqual([text, text, "busy with something else"]);
  });

  it("2 and 3, mismatched calls hang or crash: both sides are printed at once, with this rank's line", async () => {
    const told = await onRanks(2, async (world, called) => {
      const x = world.tensor("f32", [4]);
      // The later one finds the other's call there, and tells it.
      if (world.rank === 1) {
        while (Atomics.load(called, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 1));
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      const work = world.rank === 0 ? world.comm.allReduce(x) : world.comm.broadcast(x);
      Atomics.store(called, 0, 1);
      const began = performance.now();
      const text = await work.then(String, String);
      // The deadline comes after a minute.
      return performance.now() - began < 20_000 ? text : "late";
    });
    for (const [rank, text] of placeless(told).entries()) {
      expect(text).toMatch(/^MismatchError: ranks of world disagree on operation #0\n/);
      const [, ...sides] = text.split("\n");
      expect(sides.map((side) => side.replace(" at FILE:LINE", ""))).toEqual([
        "  rank 0: all_reduce(f32[4], sum)",
        "  rank 1: broadcast(f32[4], root 0)",
      ]);
      expect(sides[rank]).toContain(" at FILE:LINE");
    }
    // Whoever is told by the other knows the other's line as well.
    expect(placeless(told).some((text) => text.split(" at FILE:LINE").length === 3)).toBe(true);
  });

  it("4, a checker that cries wolf: barriers, other outputs, other keys and empty shares are no mismatch", async () => {
    const told = await onRanks(2, async (world) => {
      const { comm, rank } = world;
      await comm.barrier();
      await comm.barrier({ timeoutMs: 5_000 + rank });
      const x = world.tensor("f32", [4]);
      await comm.allReduce(x, rank === 0 ? {} : { output: world.tensor("f32", [4]), timeoutMs: 9_000 });
      const group = await comm.split(0, -rank);
      await group?.barrier();
      await comm.allGatherV(world.tensor("i32", [rank]), { counts: [0, 1] });
      return "right";
    });
    expect(told).toEqual(["right", "right"]);
  });

  it("5, two groups in another order: the deadline says in which call of which group the other rank waits", async () => {
    const told = await onRanks(2, async (world, step) => {
      const { comm, rank } = world;
      const reached = async (value: number) => {
        while (Atomics.load(step, 0) < value) await new Promise((resolve) => setTimeout(resolve, 5));
      };
      const [a, b] = [await comm.split(0, 0, { name: "a" }), await comm.split(0, 0, { name: "b" })];
      const x = world.tensor("f32", [4]);
      if (rank === 0) {
        await reached(1);
        const text = await a?.allReduce(x, { timeoutMs: 500 }).then(String, String);
        Atomics.store(step, 0, 2);
        // The other's deadline comes later: it must not hear that this rank has left.
        await comm.barrier();
        return text;
      }
      const work = b?.allReduce(x, { timeoutMs: 30_000 });
      Atomics.store(step, 0, 1);
      await reached(2);
      const text = await (async () => work?.wait({ timeoutMs: 100 }))().then(String, String);
      await comm.barrier();
      return text;
    });
    expect(placeless(told)[0]).toBe(
      "TimeoutError: all_reduce #0 of a did not complete within 500 ms; arrived: ranks [0], missing: ranks [1] (last operation of rank 1: no operation yet, it waits in all_reduce(f32[4], sum) #0 of b); called at FILE:LINE",
    );
    expect(told[1]).toMatch(/all_reduce #0 of b did not complete/);
  });

  it("6, an abort that hangs: calls and later ones end at once on every rank, and say who gave up and why", async () => {
    const told = await onRanks(3, async (world) => {
      const { comm, rank } = world;
      await comm.barrier();
      const began = performance.now();
      if (rank === 0) setTimeout(() => comm.abort("the operator gave up"), 30);
      const x = world.tensor("f32", [1 << 20]);
      // Rank 2 never comes: it waits for what nobody sends.
      const calls =
        rank === 2 ? [async () => comm.recv(x, 1)] : [async () => comm.allReduce(x), async () => comm.barrier()];
      const texts = await Promise.all(calls.map((call) => call().then(String, String)));
      const later = await (async () => comm.barrier())().then(String, String);
      return [...new Set([...texts, later]), performance.now() - began < 20_000];
    });
    expect(told).toEqual(Array(3).fill(["AbortedError: aborted: the operator gave up", true]));
  });

  it("7, the root cause is lost in layers: the world fails with the first rank's own error", async () => {
    const world = runRanks(
      3,
      async ({ comm, rank }) => {
        await comm.barrier();
        if (rank === 1) throw new TypeError("the data loader found a file of 0 bytes");
        await comm.barrier().catch((error: Error) => {
          throw new Error("step 7 failed", { cause: error });
        });
      },
      { backend: "tcp", graceMs: 300 },
    );
    const error = await world.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(RankFailedError);
    expect([(error as RankFailedError).rank, (error as RankFailedError).cause]).toEqual([
      1,
      expect.objectContaining({ name: "TypeError", message: "the data loader found a file of 0 bytes" }),
    ]);
  });

  it("10, ports that are taken: port 0 is the system's choice, which is told", async () => {
    vi.stubEnv("CHORALE_SECRET", "a secret of this test alone, 0123456789");
    const written = vi.spyOn(process.stderr, "write").mockImplementation(() => true);
    try {
      const nodes = { count: 1, rank: 0, rendezvous: "127.0.0.1:0" };
      await launch({ ranks: 1, backend: "tcp", nodes, run: async ({ comm }) => void (await comm.barrier()) });
      const told = written.mock.calls.map(([text]) => String(text)).join("");
      const [, port] = /^chorale: the rendezvous is at 127.0.0.1:(\d+)$/m.exec(told) ?? [];
      expect(Number(port)).toBeGreaterThan(0);
    } finally {
      written.mockRestore();
      vi.unstubAllEnvs();
    }
  });

  it("13, rank 0 as single point: it dies, and the store, its values and the world of the others go on", async () => {
    const module = new URL("../../../test/e2e/ranks/storing.ts", import.meta.url);
    const policy = { onFailure: "shrink", graceMs: 300 } as const;
    const got = await launch({ ranks: 3, backend: "tcp", isolation: "thread", module, data: { dying: 0 }, ...policy });
    const told = ["rank 0 failed (generation 1): Error: this rank dies", "ClosedError"];
    expect(got).toEqual(Array(2).fill([true, told, "step 17", "3", 2]));
  });

  it("15, sends that need everybody: two ranks talk first, while the third does something else", async () => {
    const told = await onRanks(3, async (world) => {
      const x = world.tensor("f32", [1 << 18]);
      if (world.rank === 0) await world.comm.send(x, 1);
      else if (world.rank === 1) await world.comm.recv(x, 0);
      return world.comm.stats().operations;
    });
    expect(told.map((operations) => Object.keys(operations as object))).toEqual([["send"], ["recv"], []]);
  });
});
