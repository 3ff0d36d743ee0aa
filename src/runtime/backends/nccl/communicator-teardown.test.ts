/** How worlds over NCCL end, over the stand-in library: nothing stays behind, and nothing hangs. */
import { Worker } from "node:worker_threads";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  buildFakeGpu,
  type HeldByFakeGpu,
  heldByFakeGpu,
  NOTHING_HELD,
  useFakeGpu,
} from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";
import type { NcclHandle } from "./nccl-handle.ts";
import { createNcclHost } from "./nccl-host.ts";
import { reapNccl } from "./reap.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const useNew = buildFakeGpu({ nccl: "new" }) ?? "";
const backend = new URL("../../../../.cache/dev/runtime/backends/nccl/index.js", import.meta.url).href;

/** Runs `body(backend, rank, say)` as rank `rank` of `handle` on a thread of its own, which then stays. */
function rankThread(handle: NcclHandle, rank: number, body: string, options = "{}", path = library) {
  const code = `
    const { parentPort, workerData } = require("node:worker_threads");
    const say = (text) => parentPort.postMessage(text);
    parentPort.on("message", () => {});
    import(workerData.module).then(async ({ attachNccl }) => {
      const backend = attachNccl(workerData.handle, workerData.rank, { timeoutMs: 20_000, ...${options} });
      const { world } = backend;
      try { ${body} } catch (error) { say(String(error.code ?? error)); }
    });`;
  const env = { ...process.env, CHORALE_CUDA_LIBRARY: path, CHORALE_NCCL_LIBRARY: path };
  const worker = new Worker(code, { eval: true, env, workerData: { module: backend, handle, rank } });
  const said: string[] = [];
  let wake = () => {};
  worker.on("message", (text: string) => {
    said.push(text);
    wake();
  });
  worker.on("error", (error) => {
    said.push(`crash: ${error.message}`);
    wake();
  });
  const heard = async (text: string) => {
    while (!said.includes(text)) {
      if (said.some((line) => line.startsWith("crash"))) throw new Error(said.join("; "));
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  return { worker, heard, said };
}

describe.skipIf(!available)("ends of NCCL worlds (needs a C++ compiler)", () => {
  let before: HeldByFakeGpu;
  beforeEach(() => {
    before = heldByFakeGpu(library);
  });
  afterEach(() => {
    expect(heldByFakeGpu(library)).toEqual(before);
  });

  it("starts from nothing", () => {
    expect(before).toEqual(NOTHING_HELD);
  });

  it("leaves nothing behind after groups, graphs, host memory and resources that the program forgot", async () => {
    await launch({
      ranks: 3,
      backend: "nccl",
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { CudaEvent, CudaStream, PinnedBuffer } = await import("chorale/device");
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [1000]);
        for (let i = 0; i < 3; i++) {
          const group = (await comm.split(0, comm.rank)) as import("./communicator.ts").NcclCommunicator;
          await group.allReduce(x, { op: group.preMulSum(0.5) });
          await group.allReduce(new Float64Array(10));
          group.capture((g) => void g.allReduce(x, { op: g.preMulSum(0.5) }));
          if (i > 0) await group.close();
        }
        const device = deviceOf(world)?.device;
        if (device === undefined) throw new Error("no device");
        CudaEvent.create(device).record(CudaStream.create(device));
        PinnedBuffer.create(device, 10);
      },
    });
  });

  it("hangs behind no kernel when a group fails while others go on", async () => {
    const errors = await launch({
      ranks: 3,
      backend: "nccl",
      run: async (world) => {
        const { comm } = world;
        const codes: string[] = [];
        for (let i = 0; i < 4; i++) {
          const group = await comm.split(0, comm.rank);
          if (group === undefined) throw new Error("no group");
          await group.barrier();
          // A warm call of all but one: its kernels run until they are aborted.
          if (comm.rank !== 1) await (async () => group.barrier({ timeoutMs: 60 }))().catch((e) => codes.push(e.code));
          await comm.allReduce(Float32Array.of(comm.rank));
          if (comm.rank === 1) await (async () => group.barrier())().catch((e) => codes.push(e.code));
          // The other ranks go on with the world while the last one frees the group.
          await group.close().catch(() => {});
        }
        for (let i = 0; i < 20; i++) await comm.allReduce(Float32Array.of(i));
        return codes;
      },
    });
    expect(errors).toEqual(Array(3).fill(Array(4).fill("TIMEOUT")));
  });

  it("abandons a world with work pending at once, and refuses everything of it afterwards", async () => {
    const handle = createNcclHost({ ranks: 2 });
    const body = `
      const x = backend.tensor("f32", [100]);
      await world.allReduce(x);
      const group = await world.split(0, backend.rank);
      await group.allReduce(x);
      const graph = world.capture((g) => void g.allReduce(x));
      // Who leaves does so when the other one has seen the end of everything before.
      const told = new Promise((resolve) => parentPort.once("message", resolve));
      say("ready");
      if (backend.rank === 0) await told;
      const lone = backend.rank === 0 ? [world.allReduce(x), group.barrier(), group.send(x, 1)] : [];
      // Rank 0 goes first; the other is told by it.
      while (backend.rank === 1 && backend.failure === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
      if (backend.rank === 1) say(backend.failure.code + " " + backend.failure.rank + ": " + backend.failure.cause);
      if (backend.rank === 1) try { world.barrier(); } catch (e) { say("refused " + e.code); }
      const began = performance.now();
      backend.abandon(new Error("enough"));
      backend.abandon(new Error("twice"));
      if (performance.now() - began > 10_000) say("slow");
      const codes = await Promise.all(lone.map((work) => work.then(() => "done", (e) => e.code)));
      const refused = [
        () => world.allReduce(x), () => backend.tensor("f32", [1]), () => backend.download(x), () => backend.upload(x, new Float32Array(100)),
        () => world.replay(graph), () => group.split(0), () => group.shrink([1 - backend.rank]), () => world.capture(() => {}), () => world.orderBefore(world.stream),
        () => world.synchronize(), () => backend.device.device.memoryInfo(), () => backend.free(x),
      ].map((fn) => { try { fn(); return "accepted"; } catch (e) { return e.code; } });
      await world.close().catch((e) => say("close " + e.code));
      await backend.close();
      say(JSON.stringify({ codes, refused: [...new Set(refused)] }));
      say("over");`;
    const ranks = [0, 1].map((rank) => rankThread(handle, rank, body));
    await Promise.all(ranks.map((rank) => rank.heard("ready")));
    ranks[0]?.worker.postMessage("go");
    await Promise.all(ranks.map((rank) => rank.heard("over")));
    await Promise.all(ranks.map((rank) => rank.worker.terminate()));
    for (const [rank, { said }] of ranks.entries()) {
      expect(said).not.toContain("slow");
      if (rank === 1) expect(said.slice(1, 3)).toEqual(["RANK_FAILED 0: enough", "refused RANK_FAILED"]);
      const { codes, refused } = JSON.parse(said.find((line) => line.startsWith("{")) ?? "{}");
      expect(codes).toEqual(rank === 0 ? ["ABORTED", "ABORTED", "ABORTED"] : []);
      expect(refused.sort()).toEqual(rank === 0 ? ["ABORTED", "CLOSED"] : ["CLOSED", "RANK_FAILED"]);
    }
  });

  const killed = [
    [
      "while it waits for a peer",
      `await world.allReduce(x); const work = world.allReduce(x); say("ready"); await work;`,
    ],
    ["in a loop of collectives", `for (let i = 0; ; i++) { await world.allReduce(x); if (i === 5) say("ready"); }`],
    [
      "with graphs, groups and pinned memory",
      `
      await world.allReduce(new Float32Array(100)); await world.allReduce(x); const g = await world.split(0, backend.rank); await g.allReduce(x);
      world.capture((c) => void c.allReduce(x)); say("ready"); if (backend.rank === 1) await g.allReduce(x);`,
    ],
  ] as const;
  it.each(spread(killed, 3))("reaps what a killed thread held %s", async (_what, work) => {
    const handle = createNcclHost({ ranks: 2 });
    const body = `const x = backend.tensor("f32", [3_000_000]); ${work}`;
    const victim = rankThread(handle, 1, body);
    const survivor = rankThread(
      handle,
      0,
      `
      const x = backend.tensor("f32", [3_000_000]);
      parentPort.on("message", () => { backend.abandon(new Error("rank 1 is dead")); say("over"); });
      ${work.replace("const work = world.allReduce(x);", "await new Promise(() => {});")}`,
    );
    await Promise.all([victim.heard("ready"), work.includes("const work") ? undefined : survivor.heard("ready")]);
    await victim.worker.terminate();
    survivor.worker.postMessage("abandon");
    await survivor.heard("over");
    await survivor.worker.terminate();
    expect(heldByFakeGpu(library).communicators).toBeGreaterThan(0);
    const reaped = reapNccl(handle, 1);
    expect(reaped.communicator).toBeGreaterThan(0);
    expect(reaped.memory).toBeGreaterThan(0);
    expect(reaped.unknown).toBe(0);
    // Again: nothing is freed twice.
    expect(Object.values(reapNccl(handle, 1)).every((count) => count === 0)).toBe(true);
  });

  const kinds: readonly [string, string, string][] = [
    ["non-blocking communicators", "{ blocking: false }", library],
    ["NCCL that can revoke", "{}", useNew],
    ["registered buffers of NCCL's own memory", "{ registerBuffers: true }", library],
  ];
  it.each(spread(kinds, 3))(
    "opens, splits, fails, closes and leaves nothing behind with %s",
    async (_what, options, path) => {
      const counts = heldByFakeGpu(path);
      const handle = createNcclHost({ ranks: 3 });
      const body = `
      const x = backend.tensor("f32", [1000]);
      backend.upload(x, new Float32Array(1000).fill(backend.rank + 1));
      await world.allReduce(x);
      if (backend.download(x)[999] !== 6) say("wrong sum");
      const group = await world.split(0, backend.rank);
      await group.allReduce(x);
      const host = await group.allReduce(new Float32Array(5).fill(backend.rank));
      if (host.data[4] !== 3) say("wrong sum on the host: " + host.data);
      const ranks = await group.gatherObjects({ rank: backend.rank });
      if (ranks[2].rank !== 2) say("wrong objects");
      const parts = backend.tensor("f32", [3000]);
      await group.allGatherV(x.slice(0, backend.rank + 1), { counts: [1, 2, 3], output: parts.slice(0, 6) });
      if (backend.download(parts)[5] !== 18) say("wrong parts: " + backend.download(parts).slice(0, 6));
      await group.close();
      const failing = await world.split(0, backend.rank);
      await failing.allReduce(x);
      if (backend.rank > 0) await failing.allReduce(x, { timeoutMs: 100 }).then(() => say("accepted"), (e) => say(e.code));
      await world.barrier();
      for (let i = 0; i < 10; i++) await world.allReduce(x);
      await failing.close().catch(() => {});
      await world.allReduce(x).wait;
      await backend.close();
      say("over");`;
      const ranks = [0, 1, 2].map((rank) => rankThread(handle, rank, body, options, path));
      await Promise.all(ranks.map((rank) => rank.heard("over")));
      await Promise.all(ranks.map((rank) => rank.worker.terminate()));
      expect(ranks.map(({ said }) => said)).toEqual([["over"], ["TIMEOUT", "over"], ["TIMEOUT", "over"]]);
      expect(heldByFakeGpu(path)).toEqual({ ...counts, ...(path === useNew ? { revoked: counts.revoked + 2 } : {}) });
    },
  );
});
