/** How many collectives one batch may have, over the stand-in library: 511 go through, the 512th is refused and nothing sent. */

import { describe, expect, it } from "vitest";
import { fakeGpuFolder, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();

describe.skipIf(!available)("a batch's limit (needs a C++ compiler)", () => {
  it.each(["thread", "process"] as const)(
    "lets 511 collectives through and refuses 512 on the rank that asks: ranks as a %s, sub-groups, host memory, behind objects",
    async (isolation) => {
      const devices = fakeGpuFolder();
      const found = await launch({
        ranks: 3,
        backend: "nccl",
        isolation,
        timeoutMs: 40_000,
        backendOptions: { timeoutMs: 15_000 },
        ...(isolation === "process" ? { env: { FAKE_GPU_FOLDER: devices.path } } : {}),
        run: async (world) => {
          type Group = import("./communicator.ts").NcclCommunicator;
          const side = (await world.comm.split(0)) as Group;
          const part = (await world.comm.split(world.rank % 2)) as Group; // ranks 0 and 2, rank 1
          const x = world.tensor("f32", [64]);
          const report: unknown[] = [];
          for (const group of [world.comm as Group, part]) {
            const mine = Array.from({ length: 511 }, (_, i) => Int32Array.of(i, group.rank));
            // Every third collective is on host memory; sends and receives are not counted.
            const calls = (numCollectives: number) => (b: import("chorale").Communicator) => {
              for (let i = 0; i < numCollectives; i++) {
                const host = mine[i];
                if (i % 3 === 0 && host !== undefined) b.allReduce(host);
                else b.allReduce(x.slice((i % 2) * 32, (i % 2) * 32 + 32), { op: "max" });
              }
              for (let i = 0; i < 4 && group.size > 1; i++) {
                b.send(Int32Array.of(i), (group.rank + 1) % group.size);
                b.recv(new Int32Array(1), (group.rank + group.size - 1) % group.size);
              }
            };
            const refused = () => {
              const before = [group.stats().pending, group.stats().memory.usedBytes];
              try {
                group.batch(calls(512));
                return "taken";
              } catch (error) {
                const { pending, memory } = group.stats();
                return [String(error), pending - (before[0] ?? 0), memory.usedBytes - (before[1] ?? 0)];
              }
            };
            await group.allReduce(x);
            world.upload(x, new Float32Array(64).fill(group.rank));
            // One rank alone is refused, and the group goes on.
            if (group.rank === 0) report.push(refused());
            await group.allReduce(new Int32Array(1));
            // The first of the group makes the batch before the others have come to the objects.
            if (group.rank > 0) await side.recv(new Int32Array(1), group.ranks[0] ?? 0);
            const objects = group.gatherObjects(`rank ${group.rank}`);
            if (group.rank === 0) report.push(refused());
            const batch = group.batch(calls(511));
            for (const to of group.rank === 0 ? group.ranks.slice(1) : []) await side.send(new Int32Array(1), to);
            await batch;
            const hosts = mine.flatMap((host, i) => (i % 3 === 0 ? [host] : []));
            report.push(
              await objects,
              hosts.every(
                (host, i) => host[0] === 3 * i * group.size && host[1] === (group.size * (group.size - 1)) / 2,
              ),
              [...new Set(world.download(x))],
            );
          }
          return report;
        },
      }).finally(() => devices.remove());
      const refusal = [expect.stringMatching(/^InvalidArgumentError: .*512.*at most 511/), 0, 0];
      const [first, second, third] = found;
      expect(first).toEqual([
        refusal,
        refusal,
        ["rank 0", "rank 1", "rank 2"],
        true,
        [2],
        refusal,
        refusal,
        ["rank 0", "rank 1"],
        true,
        [1],
      ]);
      expect(second).toEqual([["rank 0", "rank 1", "rank 2"], true, [2], refusal, refusal, ["rank 0"], true, [0]]);
      expect(third).toEqual([["rank 0", "rank 1", "rank 2"], true, [2], ["rank 0", "rank 1"], true, [1]]);
    },
  );
});
