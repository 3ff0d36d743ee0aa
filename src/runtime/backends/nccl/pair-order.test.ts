/** Sends and receives over the stand-in library: their order, and batches of them that not every member makes. */

import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();

describe.skipIf(!available)("sends and receives over NCCL (needs a C++ compiler)", () => {
  it("fetches messages in order when a later one is seen first", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      timeoutMs: 20_000,
      run: async (world) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const { control } = comm.parts.queue.options;
        await comm.barrier();
        if (comm.rank === 0) {
          for (let i = 0; i < 3; i++) await comm.send(Float32Array.of(10 + i), 1);
          await comm.barrier();
          while (control.acknowledged(1) < 3) await new Promise((resolve) => setImmediate(resolve));
          // Acknowledged is acknowledged: nothing is taken back.
          await comm.barrier();
          return control.acknowledged(1);
        }
        await comm.barrier();
        // The messages arrive between two looks: the first look at message 0 does not see it.
        const mail = control.mail.bind(control);
        let looks = 0;
        control.mail = (from, number) => (number === 0 && looks++ === 0 ? undefined : mail(from, number));
        const into = [0, 1, 2].map(() => new Float32Array(1));
        const works = into.map((array) => comm.recv(array, 0));
        for (const work of works) await work;
        await comm.barrier();
        return into.map((array) => array[0]);
      },
    });
    expect(found).toEqual([3, [10, 11, 12]]);
  });

  it("runs batches of sends and receives that only some members make, or that chain members together", async () => {
    const found = await launch({
      ranks: 4,
      timeoutMs: 20_000,
      backend: "nccl",
      run: async (world) => {
        const { comm } = world;
        const { rank } = comm;
        await comm.barrier();
        const into = new Float32Array(1);
        const soon = { timeoutMs: 10_000 };
        // Only 0 and 1 know of the first, so that the numbers of later sends differ between members.
        if (rank === 0) await comm.batch((group) => void group.send(Float32Array.of(7), 1, soon));
        if (rank === 1) await comm.batch((group) => void group.recv(into, 0, soon));
        const chained = new Float32Array(1);
        await comm.batch((group) => {
          if (rank < 3) void group.send(Float32Array.of(rank), rank + 1, soon);
          if (rank > 0) void group.recv(chained, rank - 1, soon);
        });
        await comm.barrier(soon);
        return [into[0], chained[0]];
      },
    });
    expect(found).toEqual([
      [0, 0],
      [7, 0],
      [0, 1],
      [0, 2],
    ]);
  });

  it("lets a send be received after an all-to-all that was made behind it", async () => {
    const found = await launch({
      ranks: 2,
      timeoutMs: 20_000,
      backend: "nccl",
      run: async (world) => {
        const { comm } = world;
        const [mine, theirs, into] = [Float32Array.of(1, 2), new Float32Array(2), new Float32Array(2)];
        const sent = comm.rank === 0 ? comm.send(mine, 1) : undefined;
        await comm.allToAllV(mine, { output: theirs, sendCounts: [1, 1], recvCounts: [1, 1] });
        if (comm.rank === 1) await comm.recv(into, 0);
        await sent;
        // Counts that do not fit are seen all the same.
        const counts = { sendCounts: [1, 1], recvCounts: comm.rank === 0 ? [1, 1] : [2, 1] };
        const wrong = await Promise.resolve()
          .then(() => comm.allToAllV(mine, counts))
          .then(() => "not seen", String);
        return [[...theirs], [...into], wrong.split("\n")[0]];
      },
    }).catch(String);
    const wrong = expect.stringMatching(/MismatchError/);
    expect(found).toEqual([
      [[1, 1], [0, 0], wrong],
      [[2, 2], [1, 2], wrong],
    ]);
  });
});
