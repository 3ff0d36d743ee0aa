/** When a call's place in the program is taken, which costs more than a small collective, and that errors name it anyhow. */
import { expect, it, vi } from "vitest";
import { TimeoutError } from "../../../core/index.ts";
import { attachThreads, createThreadsHost } from "./index.ts";

/** More than a program's first calls, whose sites are always taken, and those after which it counts as one that waits. */
const MANY = 200;

/** Rank 0 calls, and rank 1 comes later. */
function pair(timeoutMs: number) {
  const handle = createThreadsHost({ ranks: 2 });
  const [a, b] = [attachThreads(handle, 0, { timeoutMs }), attachThreads(handle, 1)];
  return {
    call: () => a.world.barrier(),
    come: () => b.world.barrier().wait(),
    /** A call that the program blocks for. */
    block(): void {
      const work = a.world.barrier();
      expect(() => work.wait({ timeoutMs: 0.001 })).toThrow(TimeoutError);
      b.world.barrier().wait();
      work.wait();
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([a.close(), b.close()]);
    },
  };
}

it("takes no call's site once a program blocks for its calls, until it awaits one", async () => {
  await using ranks = pair(20_000);
  const captures = vi.spyOn(Error, "captureStackTrace");
  const issue = () => {
    captures.mockClear();
    const work = ranks.call();
    return { work, isTaken: captures.mock.calls.length > 0 };
  };
  const end = async (work: PromiseLike<void>) => {
    const ended = work.then();
    ranks.come();
    await ended;
  };
  for (let i = 0; i < MANY; i++) ranks.block();
  const blocking = issue();
  expect(blocking.isTaken).toBe(false);
  await end(blocking.work);
  const awaited = issue();
  expect(awaited.isTaken).toBe(true);
  await end(awaited.work);
});

it("names where a program waits for a call whose site was not taken", async () => {
  await using ranks = pair(300);
  for (let i = 0; i < MANY; i++) ranks.block();
  expect(() => ranks.call().wait()).toThrow(/within 300 ms.*called at .*call-sites\.test\.ts/);
});

it("names where an awaited call was made, from behind the frames of chorale's own", async () => {
  await using ranks = pair(300);
  await expect(ranks.call()).rejects.toThrow(/within 300 ms.*called at .*call-sites\.test\.ts/);
});
