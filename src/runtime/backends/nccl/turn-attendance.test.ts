/** Turns that members begin together, where the program of one of them is at work, over the stand-in library. */
import type { World } from "chorale";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { buildFakeGpu, type HeldByFakeGpu, heldByFakeGpu, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const options = { backend: "nccl", ranks: 3, timeoutMs: 60_000, backendOptions: { timeoutMs: 40_000 } } as const;

interface Plan {
  /** Whether the group that is to be freed has failed, with kernels that run on both of its members. */
  readonly fails: boolean;
  /** What ranks tell each other: see blockAfterOffer. */
  readonly told: Int32Array;
}

/**
 * Rank 1 offers itself to free a group with rank 0, then its thread blocks until rank 0 has come on with rank 2. Rank 0
 * offers itself only now, for a call with rank 2 has run on its device so far.
 */
async function blockAfterOffer(world: World, { fails, told }: Plan) {
  const [ended, blocks, goesOn] = [0, 1, 2];
  const { comm, rank } = world;
  const group = (await comm.split(rank === 2 ? -1 : 0)) as import("./communicator.ts").NcclCommunicator | undefined;
  const other = await comm.split(rank === 1 ? -1 : 0);
  const [x, y] = [world.tensor("f32", [4]), world.tensor("f32", [4])];
  await group?.batch((g) => {
    g.send(x, 1 - g.rank);
    g.recv(y, 1 - g.rank);
  });
  await other?.barrier();
  await comm.barrier();
  const looks = async (done: (i: number) => boolean) => {
    for (let i = 0; !done(i); i++) await new Promise((resolve) => setTimeout(resolve, 1));
  };
  const isTold = (what: number) => Atomics.load(told, what) > 0;
  if (rank === 2) {
    await looks(() => isTold(blocks));
    await other?.barrier();
    await other?.barrier();
    return [];
  }
  const running = other?.barrier();
  // Nobody sends: it runs until it is aborted.
  const hung = fails ? group?.batch((g) => void g.recv(y, 1 - g.rank)) : undefined;
  const failed = hung?.then(
    () => "done",
    (error) => error.code as string,
  );
  Atomics.add(told, ended, 1);
  await looks(() => Atomics.load(told, ended) >= 2);
  if (fails && rank === 1) group?.abort("given up");
  const code = await failed;
  if (!fails) await group?.close();
  Atomics.add(told, ended, 1);
  await looks(() => Atomics.load(told, ended) === 4);
  if (rank === 1) {
    // Long enough to offer itself: it looks every 10 ms at least.
    await looks((i) => i > 30);
    Atomics.store(told, blocks, 1);
    return [code, Atomics.wait(told, goesOn, 0, 18_000) !== "timed-out"];
  }
  await running;
  await looks((i) => i > 30);
  await other?.barrier();
  Atomics.store(told, goesOn, 1);
  Atomics.notify(told, goesOn);
  return [code];
}

describe.skipIf(!available)("turns of ranks whose programs are at work (needs a C++ compiler)", () => {
  let before: HeldByFakeGpu;
  beforeEach(() => {
    before = heldByFakeGpu(library);
  });
  afterEach(() => {
    expect(heldByFakeGpu(library)).toEqual(before);
  });

  it.each([
    ["a group that was closed is to be freed", false],
    ["the kernels of a group that failed are to be ended", true],
  ])("keep no other rank from its calls when %s", async (_what, fails) => {
    const told = new Int32Array(new SharedArrayBuffer(12));
    const found = await launch({ ...options, data: { fails, told }, run: blockAfterOffer });
    const code = fails ? "ABORTED" : undefined;
    expect(found).toEqual([[code], [code, true], []]);
  });
});
