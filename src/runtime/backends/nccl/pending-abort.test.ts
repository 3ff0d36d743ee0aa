/** Groups that fail with kernels running on all their members, over the stand-in library. */
import type { World } from "chorale";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  buildFakeGpu,
  fakeGpuFolder,
  type HeldByFakeGpu,
  heldByFakeGpu,
  useFakeGpu,
} from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
/** What is ended by it, and not by a failure, takes so long: far longer than a rank of a busy machine waits for its turn. */
const DEADLINE_MS = 60_000;
const options = { backend: "nccl", timeoutMs: 170_000, backendOptions: { timeoutMs: DEADLINE_MS } } as const;
/** More than the world's, whose error says more. */
const PATIENT = { timeout: 200_000 };

type Group = import("./communicator.ts").NcclCommunicator;

interface Plan {
  /** Members of each group, and who fails it: the last of the others to learn of it is the last to abort it. */
  readonly groups: readonly { readonly ranks: readonly number[]; readonly by: number }[];
  /** Where threads meet. */
  readonly met?: Int32Array;
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
  if (met === undefined) await world.comm.barrier();
  else {
    Atomics.add(met, 0, 1);
    while (Atomics.load(met, 0) < world.size);
  }
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

interface Stress {
  readonly seed: number;
  readonly rounds: number;
  readonly met: Int32Array;
  readonly deadlineMs: number;
}

/** Makes, fails and closes random groups, round after round, while the world works. */
async function failAtRandom(world: World, { seed, rounds, met, deadlineMs }: Stress) {
  const hows = ["all", "some", "one", "mismatch", "deadline", "throw"] as const;
  // The same numbers on all ranks.
  let state = seed;
  const random = (below: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const seen: string[] = [];
  const closing: Promise<void>[] = [];
  const { deviceOf } = await import("chorale/world");
  const at = deviceOf(world);
  if (at === undefined) throw new Error("no device");
  const call = at.device.call.bind(at.device);
  let round = 0;
  const within = async (call: () => unknown, what: string) => {
    const start = performance.now();
    const code = await (async () => call())().then(
      () => "done",
      (error) => error.code ?? String(error),
    );
    if (performance.now() - start > 0.8 * deadlineMs)
      seen.push(`round ${round}: ${what} took ${performance.now() - start} ms`);
    return code as string;
  };
  for (; round < rounds; round++) {
    const works: Promise<string>[] = [];
    const mine: { group: Group; fails: () => void; closesAt: number }[] = [];
    const numGroups = 1 + random(3);
    for (let i = 0; i < numGroups; i++) {
      const size = 2 + random(world.size - 1);
      const members = Array.from({ length: world.size }, (_, rank) => rank);
      while (members.length > size) members.splice(random(members.length), 1);
      const how = hows[random(hows.length)];
      const by = members[random(members.length)];
      const [silent, closesAt] = [random(size), random(3)];
      const group = (await world.comm.split(members.includes(world.rank) ? 0 : -1)) as Group | undefined;
      if (group === undefined) continue;
      const [x, y] = [world.tensor("f32", [64]), world.tensor("f32", [64])];
      const ring = { next: (group.rank + 1) % size, last: (group.rank + size - 1) % size };
      await group.batch((g) => {
        g.send(x, ring.next);
        g.recv(y, ring.last);
      });
      await group.allReduce(x);
      const options = how === "deadline" ? { timeoutMs: 50 } : {};
      const makes = how === "some" ? group.rank !== silent : how === "one" ? group.rank === silent : true;
      const fails = () => {
        if (how === "mismatch") {
          works.push(within(() => group.allReduce(world.rank === by ? y.slice(0, 3) : y), how));
        } else if (how === "throw") {
          const counts = Array.from({ length: size }, () => 16);
          const call = () => group.allToAllV(x.slice(0, 16 * size), { sendCounts: counts, recvCounts: counts });
          works.push(within(call, how));
        } else if (world.rank === by && how !== "deadline") group.abort("at random");
      };
      // Nobody sends: it runs until it is aborted.
      const hang = () => group.batch((g) => void g.recv(y, ring.last), options);
      if (how !== "throw" && makes) works.push(within(hang, `${how}: a call that hangs`));
      mine.push({ group, fails, closesAt });
    }
    const before = world.comm.allReduce(world.tensor("f32", [8]));
    Atomics.add(met, 0, 1);
    while (Atomics.load(met, 0) < world.size * (round + 1));
    at.device.call = (symbol, operation, ...rest) => {
      if (operation === "own part") throw new Error("no copy");
      call(symbol, operation, ...rest);
    };
    for (const one of mine) one.fails();
    for (const { group, closesAt } of mine) if (closesAt === 0) closing.push(group.close().catch(() => {}));
    for (const code of await Promise.all(works))
      if (code === "done") seen.push(`round ${round}: a call came to its end`);
    at.device.call = call;
    if ((await within(() => before, "the world's call before")) !== "done") seen.push("the world failed");
    for (let i = 0; i < 3; i++) {
      const sum = Float32Array.of(world.rank);
      await within(() => world.comm.allReduce(sum), "the world's call");
      if (sum[0] !== (world.size * (world.size - 1)) / 2) seen.push(`wrong sum ${sum[0]}`);
    }
    // Some only on some ranks: the rest is closed with the world.
    for (const { group, closesAt } of mine) {
      if (closesAt === 1 || (closesAt === 2 && world.rank % 2 === 0)) closing.push(group.close().catch(() => {}));
    }
  }
  await Promise.all(closing);
  await world.comm.barrier();
  return seen;
}

describe.skipIf(!available)("groups that linger (needs a C++ compiler)", PATIENT, () => {
  let before: HeldByFakeGpu;
  beforeEach(() => {
    before = heldByFakeGpu(library);
  });
  afterEach(() => {
    expect(heldByFakeGpu(library)).toEqual(before);
  });

  const shapes: [what: string, ranks: number, groups: Plan["groups"]][] = [
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
  ];
  it.each(spread(shapes, 2))("ends the kernels of %s, and frees what was closed", async (_what, ranks, groups) => {
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

  it("ends the kernels of two groups whose members are processes, and frees what was closed", async () => {
    const folder = fakeGpuFolder();
    try {
      const groups = [0, 1].map((by) => ({ ranks: [0, 1], by }));
      const found = await launch({
        ...options,
        ranks: 2,
        isolation: "process",
        env: { FAKE_GPU_FOLDER: folder.path },
        data: { groups, deadlineMs: DEADLINE_MS } as Plan,
        run: failTogether,
      });
      expect(found).toEqual(Array(2).fill({ seen: ["ABORTED", "ABORTED"], sum: 2 }));
    } finally {
      folder.remove();
    }
  });

  it("goes on after groups that fail at random", async () => {
    const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
    const found = await launch({
      ...options,
      ranks: 3 + (seed % 2),
      data: { seed, rounds: 8, met: new Int32Array(new SharedArrayBuffer(4)), deadlineMs: DEADLINE_MS } as Stress,
      run: failAtRandom,
    });
    for (const seen of found) expect(seen, `CHORALE_SEED=${seed}`).toEqual([]);
    expect(heldByFakeGpu(library), `CHORALE_SEED=${seed}`).toEqual(before);
  });
});
