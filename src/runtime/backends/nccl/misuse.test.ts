/**
 * Random programs that go on using what is closed, aborted, freed or failed, over the stand-in library: every refusal is
 * one of chorale's errors, nothing crashes or hangs, and nothing stays behind. The seed is printed with a failure.
 */

import { afterAll, describe, expect, it } from "vitest";
import { buildFakeGpu, heldByFakeGpu, NOTHING_HELD, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const first = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const PROGRAMS = Number(process.env["CHORALE_PROGRAMS"] ?? 6);

describe.skipIf(!available)("misuse of what has ended (needs a C++ compiler)", () => {
  afterAll(() => {
    expect(heldByFakeGpu(library)).toEqual(NOTHING_HELD);
  });

  it.each(Array.from({ length: PROGRAMS }, (_, i) => first + i))(
    "is refused by name, seed %i",
    async (seed) => {
      const results = await launch({
        ranks: 2,
        backend: "nccl",
        data: { seed },
        timeoutMs: 60_000,
        run: async (world, { seed }) => {
          type Group = import("./communicator.ts").NcclCommunicator;
          const { deviceOf } = await import("chorale/world");
          const { CudaEvent, CudaStream, PinnedBuffer, CudaModule, deviceTensor, MemoryPool } = await import(
            "chorale/device"
          );
          let state = seed >>> 0 || 1;
          const random = (below: number) => {
            state ^= state << 13;
            state ^= state >>> 17;
            state ^= state << 5;
            return (state >>> 0) % below;
          };
          const at = deviceOf(world);
          if (at === undefined) throw new Error("no device");
          const { device } = at;
          const root = world.comm as Group;
          const groups: Group[] = [];
          const tensors = [world.tensor("f32", [64])];
          const graphs: import("chorale/device").CudaGraph[] = [];
          const streams = [CudaStream.create(device)];
          const events = [CudaEvent.create(device)];
          const pinned = [PinnedBuffer.create(device, 64)];
          const pools = [new MemoryPool(device)];
          const modules = [CudaModule.load(device, ".version 8.0 // fake image")];
          const one = <T>(list: readonly T[]): T => list[random(list.length)] as T;
          const group = () => (groups.length === 0 || random(6) === 0 ? root : one(groups));
          const soon = { timeoutMs: 300 };
          const foreign: string[] = [];
          const codes = new Set<string>();
          const moves: readonly ((g: Group) => unknown)[] = [
            (g) => g.allReduce(one(tensors), soon),
            (g) => g.allReduce(one(tensors), { ...soon, op: g.preMulSum(2) }),
            (g) => g.allGather(one(tensors), soon),
            (g) => g.barrier(soon),
            (g) => g.allReduce(new Float32Array(8), soon),
            (g) => g.batch((b) => void b.allReduce(one(tensors))),
            (g) => (g.rank === 0 ? g.send(one(tensors), 1, soon) : g.recv(one(tensors), 0, soon)),
            (g) => g.broadcastObject({ seed }, soon),
            async (g) => {
              const made = (await g.split(0, g.rank)) as Group | undefined;
              if (made !== undefined) groups.push(made);
            },
            async (g) => {
              if (g !== root) await g.close();
            },
            (g) => {
              if (g !== root) g.abort("misuse");
            },
            (g) => void graphs.push(g.capture((c) => void c.allReduce(one(tensors)))),
            (g) => (graphs.length === 0 ? undefined : g.replay(one(graphs), soon)),
            () => (graphs.length === 0 ? undefined : one(graphs).close()),
            () => (graphs.length === 0 ? undefined : one(graphs).launch(one(streams))),
            () => void tensors.push(world.tensor("f32", [64])),
            () => world.free(one(tensors)),
            () => world.download(one(tensors)),
            () => world.upload(one(tensors), new Float32Array(64)),
            (g) => g.orderBefore(one(streams)),
            (g) => g.orderAfter(one(streams)),
            (g) => g.synchronize(soon),
            () => void streams.push(CudaStream.create(device)),
            () => one(streams).close(),
            () => one(streams).synchronize(),
            () => one(events).record(one(streams)),
            () => one(events).close(),
            () => one(events).isDone(),
            () => void events.push(CudaEvent.create(device)),
            () => new Uint8Array(one(pinned).buffer).fill(1),
            () => one(pinned).close(),
            () => void pinned.push(PinnedBuffer.create(device, 64)),
            () => one(pools).close(),
            () => void tensors.push(deviceTensor(one(pools), one(streams), "f32", [64])),
            () => one(modules).kernel("illegal_address"),
            () => one(modules).close(),
            (g) => (g === root ? undefined : g.stats()),
          ];
          for (let step = 0; step < 120; step++) {
            const move = one(moves);
            const g = group();
            try {
              await (async () => move(g))();
            } catch (error) {
              const { code, name } = error as { code?: string; name: string };
              if (code === undefined || code === "INVARIANT") foreign.push(`step ${step}: ${name}: ${String(error)}`);
              else codes.add(code);
            }
          }
          return { foreign, codes: [...codes] };
        },
      }).catch((error: Error & { code?: string }) => [
        { foreign: error.code === undefined ? [String(error)] : [], codes: [error.code ?? ""], ended: String(error) },
      ]);
      for (const { foreign, codes } of results) {
        expect(foreign, `seed ${seed}`).toEqual([]);
        expect(codes.length, `seed ${seed}: nothing was refused`).toBeGreaterThan(0);
      }
    },
    90_000,
  );
});
