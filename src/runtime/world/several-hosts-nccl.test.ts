/**
 * NCCL on two hosts, over the stand-in library: each host is a `launch()` of this process with devices, control segment and
 * name of its own; only the stand-in's own memory is the machine's, as NCCL's network would be.
 */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { buildFakeGpu, fakeGpuFolder } from "../../../test/helpers/fake-gpu.ts";
import { freePort } from "../../../test/support/free-port.mjs";
import type { Communicator } from "../comm/index.ts";
import { launch } from "./launch.ts";
import type { LaunchOptions } from "./launch-options.ts";

const library = buildFakeGpu();

beforeAll(() => {
  vi.stubEnv("CHORALE_SECRET", randomBytes(32).toString("hex"));
});
afterAll(() => {
  vi.unstubAllEnvs();
});

type Given = Partial<LaunchOptions<unknown, unknown, "nccl">>;

describe.skipIf(library === undefined)("a world of two hosts over NCCL (stand-in library, needs g++)", () => {
  const folder = fakeGpuFolder();
  afterAll(() => folder.remove());

  const environment = (node: number) => ({
    CHORALE_CUDA_LIBRARY: library ?? "",
    CHORALE_NCCL_LIBRARY: library ?? "",
    FAKE_GPU_FOLDER: folder.path,
    NCCL_HOSTID: `host${node}`,
    CUDA_VISIBLE_DEVICES: node === 0 ? "0,1,2,3" : "4,5,6,7",
  });

  /** Starts a world of 2 hosts. @returns what became of each */
  async function world(
    ranks: readonly [number, number],
    run: LaunchOptions<unknown, unknown>["run"],
    given: Given = {},
    ofHost: (node: number) => Given = () => ({}),
  ) {
    const port = await freePort();
    return Promise.allSettled(
      ranks.map((count, node) =>
        launch({
          ranks: count,
          backend: "nccl",
          env: environment(node),
          nodes: {
            count: 2,
            rank: node,
            rendezvous: `127.0.0.1:${port}`,
            hostTimeoutMs: 10_000,
            joinTimeoutMs: 40_000,
          },
          timeoutMs: 60_000,
          graceMs: 500,
          run,
          ...given,
          ...ofHost(node),
        } as LaunchOptions<unknown, unknown, "nccl">),
      ),
    );
  }

  it("runs collectives, batches and groups over both, and says what it cannot", { timeout: 120_000 }, async () => {
    const settled = await world([2, 2], async (world) => {
      const { deviceOf } = await import("chorale/world");
      const { comm, rank } = world;
      const x = world.tensor("f32", [3]);
      world.upload(x, Float32Array.of(1, rank, 10));
      await comm.allReduce(x);
      const gathered = await comm.allGather(Int32Array.of(rank));
      const scattered = await comm.reduceScatter(Int32Array.of(1, 2, 3, 4));
      const told = await comm.broadcastObject(rank === 3 ? { from: 3 } : undefined, { root: 3 });
      // Around the ring, so between hosts and within them; first calls of a kind, which wait for the ranks that are in them.
      const [out, into] = [Int32Array.of(rank), new Int32Array(1)];
      await comm.batch((group) => {
        group.send(out, (rank + 1) % 4);
        group.recv(into, (rank + 3) % 4);
      });
      // Calls far beyond what a lane remembers, none of them awaited by itself.
      let last = comm.allReduce(x);
      for (let i = 0; i < 300; i++) last = comm.allReduce(x, { op: "max" });
      await last;
      const across = await comm.split(rank % 2, rank);
      const within = await comm.split(rank < 2 ? 0 : 1, rank);
      const sums = [];
      if (across === undefined || within === undefined) throw new Error("no group");
      for (const group of [across, within]) sums.push(...(await group.allReduce(Int32Array.of(10 ** rank))).data);
      const mesh = world.mesh({ dp: 2, tp: 2 });
      const dp = await world.communicator(mesh, "dp");
      sums.push(...(await dp.allReduce(Int32Array.of(10 ** rank))).data);
      // On one host a send needs no batch.
      const peer = rank ^ 1;
      const mail = comm.send(Int32Array.of(rank + 100), peer);
      sums.push(...(await comm.recv(new Int32Array(1), peer)).data);
      await mail;
      const refused = await Promise.resolve()
        .then(() => comm.send(out, (rank + 2) % 4))
        .catch((error: Error) => `${error.name}: ${error.message}`);
      for (const group of [across, within, dp]) await group.close();
      return [deviceOf(world)?.device.ordinal, ...gathered.data, ...scattered.data, told, into[0], sums, refused];
    });
    const reason = settled.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
    expect(reason).toEqual([]);
    const [first, second] = settled.map((one) => (one.status === "fulfilled" ? one.value : []));
    const numbers = [
      [101, 11, 101, 101],
      [1010, 11, 1010, 100],
      [101, 1100, 101, 103],
      [1010, 1100, 1010, 102],
    ];
    expect(first).toEqual(
      [0, 1, 2, 3].map((rank) => [
        rank % 2,
        ...[0, 1, 2, 3],
        4 * (rank + 1),
        { from: 3 },
        (rank + 3) % 4,
        numbers[rank],
        expect.stringMatching(
          new RegExp(`^UnsupportedError: send with rank ${(rank + 2) % 4}, which is on another host, .*batch\\(\\)`),
        ),
      ]),
    );
    expect(second).toEqual([]);
  });

  it("tells all ranks of what the other host's did or did not do, and goes on", { timeout: 120_000 }, async () => {
    const settled = await world([2, 2], async (world) => {
      const { comm, rank } = world;
      const told: string[] = [];
      const tell = async (work: () => PromiseLike<unknown>) => {
        const error = await Promise.resolve()
          .then(work)
          .then(
            () => undefined,
            (error: Error) => error,
          );
        told.push(`${error?.name}: ${error?.message}`.split(" (last operation")[0] ?? "");
      };
      const x = world.tensor("f32", [4]);
      const groups: Communicator[] = [];
      for (let i = 0; i < 4; i++) {
        const group = await comm.split(0, rank);
        if (group !== undefined) groups.push(group);
      }
      const [sizes, cold, late, left] = groups as [Communicator, Communicator, Communicator, Communicator];
      for (const group of groups) await group.allReduce(x);
      // Warm: NCCL has the call by then.
      await tell(() => sizes.allReduce(rank === 3 ? x.slice(0, 2) : x));
      // Cold: nobody has made a call of these kinds.
      await tell(() => (rank === 1 ? cold.allGather(x) : cold.reduceScatter(x)));
      // Rank 2 comes when the others have given it up.
      if (rank === 2) await comm.barrier();
      await tell(() => late.allReduce(x, { timeoutMs: 1_500 }));
      if (rank !== 2) await comm.barrier();
      if (rank === 3) await left.close();
      else await tell(() => left.allReduce(x));
      await comm.allReduce(x);
      await comm.barrier();
      return told;
    });
    const reason = settled.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
    expect(reason).toEqual([]);
    const [told] = settled.map((one) => (one.status === "fulfilled" ? (one.value as string[][]) : []));
    const mismatch = (group: string, calls: string) =>
      expect.stringMatching(
        new RegExp(`^MismatchError: ranks of world/${group} disagree on operation #1\\n  rank ${calls}$`, "s"),
      );
    for (const [rank, heard] of (told ?? []).entries()) {
      expect(heard).toEqual([
        mismatch("split0.0", ".: all_reduce\\(f32\\[4\\], sum\\)\\n  rank 3: all_reduce\\(f32\\[2\\], sum\\)"),
        mismatch("split1.0", ".*all_gather\\(f32\\[4\\]\\).*"),
        // On a busy machine another may be late as well.
        expect.stringMatching(
          /^TimeoutError: all_reduce #1 of world\/split2\.0 did not complete within 1500 ms; arrived: ranks \[[013, ]+\], missing: ranks \[[0-9, ]*2[0-9, ]*\]/,
        ),
        ...(rank === 3
          ? []
          : [
              "RankFailedError: rank 3 failed (generation 1): it has left group world/split3.0 (its program returned, or closed the group) and will not make all_reduce #1",
            ]),
      ]);
    }
    expect(told).toHaveLength(4);
  });

  it("ends for everybody when a rank of the other host dies, and is rebuilt", { timeout: 120_000 }, async () => {
    const run: LaunchOptions<unknown, unknown>["run"] = async (first) => {
      let world = first;
      const errors: string[] = [];
      for (;;) {
        try {
          const { comm, rank, generation } = world;
          const x = world.tensor("f64", [5]);
          world.upload(x, new Float64Array(5).fill(rank + 1));
          await comm.allReduce(x);
          const pair = await comm.split(rank % 2, rank);
          await pair?.allReduce(x);
          if (generation === 1 && rank === 3) process.kill(process.pid, "SIGKILL");
          // One that looks at nothing else meanwhile.
          if (rank === 0) comm.allReduce(x).wait();
          else await comm.allReduce(x);
          return [generation, rank, [...world.download(x)], errors];
        } catch (error) {
          errors.push((error as Error).message);
          world = await world.rebuild();
        }
      }
    };
    const settled = await world([2, 2], run, { onFailure: "respawn", restarts: 2 });
    const failed = expect.stringMatching(/^rank 3 failed \(generation 1\): .*SIGKILL/);
    expect(settled).toEqual([
      {
        status: "fulfilled",
        value: [0, 1, 2, 3].map((rank) => [2, rank, Array(5).fill(80), rank === 3 ? [] : [failed]]),
      },
      { status: "fulfilled", value: [] },
    ]);
  });

  it("ends for everybody when the other host leaves", { timeout: 120_000 }, async () => {
    const leaving = new AbortController();
    const [first, second] = await world(
      [1, 2],
      async (world) => {
        const x = world.tensor("f32", [2]);
        await world.comm.allReduce(x);
        if (world.rank === 0) console.log("begun");
        for (;;) await world.comm.allReduce(x);
      },
      {},
      (node) => (node === 0 ? { onOutput: () => leaving.abort("the machine is needed") } : { signal: leaving.signal }),
    );
    expect(String(first?.status === "rejected" && first.reason)).toMatch(
      /rank [12] failed .*the launcher of host 1 .*the machine is needed/,
    );
    expect(String(second?.status === "rejected" && second.reason)).toMatch(/the machine is needed/);
  });

  it("refuses hosts that NCCL would take for one, and options of one host", { timeout: 60_000 }, async () => {
    const one = await world(
      [1, 1],
      () => 1,
      {},
      () => ({ env: { ...environment(0), NCCL_HOSTID: "same" } }),
    );
    for (const side of one) {
      expect(String(side.status === "rejected" && side.reason)).toMatch(
        /NCCL would take ranks of two hosts for ranks of one.*rank 0: NCCL_HOSTID=same, on .*rank 1: NCCL_HOSTID=same/s,
      );
    }
    const [registered] = await world([1, 1], () => 1, { backendOptions: { registerBuffers: true } });
    expect(String(registered?.status === "rejected" && registered.reason)).toMatch(
      /registerBuffers.*false in a world of several hosts/,
    );
  });
});
