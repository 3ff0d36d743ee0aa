/** A member that leaves its world after its group has failed, heard by one that has not heard of the failure yet. */
import type { World } from "chorale";
import { launch } from "chorale/world";
import { expect, it } from "vitest";

/** More than the sockets' buffers take. */
const BIG_ELEMENTS = 2 ** 23;

interface Plan {
  readonly told: Int32Array;
  readonly bigElements: number;
}

/**
 * Rank 0 aborts the group while its connection to rank 2, whose thread is blocked, is full of a message: rank 2 hears of it
 * last. Rank 1 hears it at once, and leaves.
 */
async function leaveAfterFailure(world: World, { told, bigElements }: Plan): Promise<string> {
  const [sends, blocks, leaves] = [0, 1, 2];
  const { comm, rank } = world;
  const group = await comm.split(0);
  const staying = await comm.split(rank === 1 ? -1 : 0);
  if (group === undefined) throw new Error("no group");
  await group.barrier();
  const looks = async (done: (i: number) => boolean) => {
    for (let i = 0; !done(i); i++) await new Promise((resolve) => setTimeout(resolve, 1));
  };
  const isTold = (what: number) => Atomics.load(told, what) > 0;
  const big = new Float32Array(bigElements);
  if (rank === 0) {
    const sent = comm.send(big, 2);
    await looks((i) => i > 5);
    Atomics.store(told, sends, 1);
    await looks(() => isTold(blocks));
    // Until the connection is full.
    await looks((i) => i > 30);
    group.abort("enough");
    await sent;
    await staying?.barrier();
    return "sent";
  }
  const ended = group.allReduce(new Float32Array(4)).then(
    () => "done",
    (error) => `${error.code}: ${error.message}`,
  );
  if (rank === 1) {
    const code = await ended;
    await group.close().catch(() => {});
    Atomics.store(told, leaves, 1);
    Atomics.notify(told, leaves);
    return code;
  }
  await looks(() => isTold(sends));
  await looks((i) => i > 5);
  const received = comm.recv(big, 0);
  Atomics.store(told, blocks, 1);
  Atomics.wait(told, leaves, 0, 20_000);
  // Its farewell comes a moment after its program's end. Where it comes later, this rank merely hears of the failure first.
  Atomics.wait(told, leaves, 1, 300);
  const code = await ended;
  await received;
  await staying?.barrier();
  return code;
}

it("tells a group's failure to a member that hears first that another one has left (tcp)", async () => {
  const told = new Int32Array(new SharedArrayBuffer(12));
  const found = await launch({
    ranks: 3,
    backend: "tcp",
    isolation: "thread",
    timeoutMs: 60_000,
    data: { told, bigElements: BIG_ELEMENTS } satisfies Plan,
    run: leaveAfterFailure,
  });
  const aborted = expect.stringMatching(/^ABORTED: .*enough/);
  expect(found).toEqual(["sent", aborted, aborted]);
});
