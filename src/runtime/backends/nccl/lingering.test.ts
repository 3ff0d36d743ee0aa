/** Groups that fail with kernels running on all their members, ranks as threads, over the stand-in library. */
import type { World } from "chorale";
import { launch } from "chorale/world";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { buildFakeGpu, type HeldByFakeGpu, heldByFakeGpu, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const DEADLINE_MS = 10_000;
const options = { backend: "nccl", timeoutMs: 60_000, backendOptions: { timeoutMs: DEADLINE_MS } } as const;

type Group = import("./communicator.ts").NcclCommunicator;

interface Plan {
  /** Members of each group, and who fails it: the last of the others to learn of it is the last to abort it. */
  readonly groups: readonly { readonly ranks: readonly number[]; readonly by: number }[];
  readonly met: Int32Array;
  readonly deadlineMs: number;
}

/** Has every group fail while each member has a kernel of it that never ends; then looks how it ends. */
async function failTogether(world: World, { groups, met, deadlineMs }: Plan) {
  const seen: string[] = [];
  const mine: { group: Group; by: number }[] = [];
  const healthy = (await world.comm.split(0)) as Group;
  const x = world.tensor("f32", [4]);
  for (const { ranks, by } of groups) {
    const group = (await world.comm.split(ranks.includes(world.rank) ? 0 : -1)) as Group | undefined;
    if (group === undefined) continue;
    const next = (group.rank + 1) % group.size;
    const last = (group.rank + group.size - 1) % group.size;
    const y = world.tensor("f32", [4]);
    await group.batch((g) => {
      g.send(x, next);
      g.recv(y, last);
    });
    mine.push({ group, by });
  }
  await healthy.allReduce(x);
  await world.comm.barrier();
  // Nobody sends: these run until they are aborted.
  const hung = mine.map(({ group }) =>
    group
      .batch((g) => void g.recv(world.tensor("f32", [4]), (group.rank + group.size - 1) % group.size))
      .then(
        () => "done",
        (error) => error.code,
      ),
  );
  Atomics.add(met, 0, 1);
  while (Atomics.load(met, 0) < world.size);
  for (const { group, by } of mine) if (by === world.rank) group.abort("given up");
  const start = performance.now();
  seen.push(...(await Promise.all(hung)));
  await healthy.close();
  // The groups are not closed, and their kernels end all the same.
  const over = () => mine.every(({ group }) => group.stream.isDone());
  while (!over() && performance.now() - start < deadlineMs) await new Promise((resolve) => setTimeout(resolve, 1));
  if (!over()) seen.push("still runs");
  await world.comm.allReduce(world.tensor("f32", [4]));
  const { endings } = (world.comm as Group).parts.rank;
  while (endings.numRetired > 0 && performance.now() - start < deadlineMs)
    await new Promise((resolve) => setTimeout(resolve, 1));
  if (endings.numRetired > 0) seen.push("a sibling was not freed");
  if (performance.now() - start > deadlineMs / 2) seen.push("late");
  if (world.rank % 2 === 0) for (const { group } of mine) await group.close().catch(() => {});
  const sum = await world.comm.allReduce(Float32Array.of(1));
  return { seen, sum: (sum.data as Float32Array)[0] };
}

describe.skipIf(!available)("groups that linger (needs a C++ compiler)", () => {
  let before: HeldByFakeGpu;
  beforeEach(() => {
    before = heldByFakeGpu(library);
  });
  afterEach(() => {
    expect(heldByFakeGpu(library)).toEqual(before);
  });

  it.each([
    ["one group of all", 3, [{ ranks: [0, 1, 2], by: 1 }]],
    [
      "two groups of the same ranks with different last threads",
      2,
      [
        { ranks: [0, 1], by: 0 },
        { ranks: [0, 1], by: 1 },
      ],
    ],
    [
      "groups that overlap, each with its last thread in the other",
      4,
      [
        { ranks: [0, 1, 2], by: 2 },
        { ranks: [0, 1, 3], by: 3 },
        { ranks: [2, 3], by: 2 },
      ],
    ],
    [
      "a group within another, and a chain",
      4,
      [
        { ranks: [0, 1, 2, 3], by: 0 },
        { ranks: [0, 1], by: 1 },
        { ranks: [1, 2], by: 2 },
        { ranks: [2, 3], by: 2 },
      ],
    ],
  ])("ends the kernels of %s, and frees what was closed", async (_what, ranks, groups) => {
    const met = new Int32Array(new SharedArrayBuffer(4));
    const found = await launch({
      ...options,
      ranks,
      data: { groups, met, deadlineMs: DEADLINE_MS } as Plan,
      run: failTogether,
    });
    for (const [rank, { seen, sum }] of found.entries()) {
      expect(seen).toEqual(groups.filter((one) => one.ranks.includes(rank)).map(() => "ABORTED"));
      expect(sum).toBe(ranks);
    }
  });
});
