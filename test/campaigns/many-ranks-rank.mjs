/** What each rank of many-ranks.mjs does: every collective at three sizes, with other data on each rank, checked whole. */
import { say } from "./draws-and-waits.mjs";

/** What rank `r` has at element `i`: differs between ranks, and sums stay exact. */
const elementOf = (r, i) => ((r * 31 + i * 7) % 97) - 48;
const COUNTS = [1, 300, 5_000];

export default async function run(world) {
  const { comm, rank, size } = world;
  say({ kind: "joined", rank, at: Date.now() });
  const all = Array.from({ length: size }, (_, r) => r);
  const sum = (i) => all.reduce((total, r) => total + elementOf(r, i), 0);
  const filled = (count, of = (i) => elementOf(rank, i)) => {
    const x = world.tensor("i32", [count]);
    for (let i = 0; i < count; i++) x.data[i] = of(i);
    return x;
  };
  let calls = 0;
  /** Awaits a call and compares what this rank has got, if it gets anything. */
  const expect = async (what, work, expected) => {
    const got = await work;
    calls++;
    for (let i = 0; expected !== undefined && i < got.data.length; i++) {
      if (got.data[i] !== expected(i))
        throw new Error(`WRONG: ${what} on rank ${rank}: element ${i} is ${got.data[i]}, not ${expected(i)}`);
    }
  };
  for (const count of COUNTS) {
    const root = count % size;
    const isRoot = rank === root;
    const partOf = (i) => elementOf(Math.floor(i / count), i % count);
    const whole = filled(count * size);
    const output = world.tensor("i32", [count]);
    await expect(`all_reduce of ${count}`, comm.allReduce(filled(count)), sum);
    await expect(`broadcast of ${count}`, comm.broadcast(filled(count), { root }), (i) => elementOf(root, i));
    await expect(`reduce of ${count}`, comm.reduce(filled(count), { root }), isRoot ? sum : undefined);
    await expect(`all_gather of ${count}`, comm.allGather(filled(count)), partOf);
    await expect(`reduce_scatter of ${count}`, comm.reduceScatter(whole), (i) => sum(rank * count + i));
    await expect(`all_to_all of ${count}`, comm.allToAll(whole), (i) =>
      elementOf(Math.floor(i / count), rank * count + (i % count)),
    );
    await expect(`gather of ${count}`, comm.gather(filled(count), { root }), isRoot ? partOf : undefined);
    // The root's own part is its output; the others receive theirs.
    const scattered = comm.scatter(isRoot ? whole : output, isRoot ? { root, output } : { root });
    await expect(`scatter of ${count}`, scattered, (i) => elementOf(root, rank * count + i));
    const previous = (rank + size - 1) % size;
    const got = world.tensor("i32", [count]);
    const sending = comm.send(filled(count), (rank + 1) % size);
    await expect(`recv of ${count}`, comm.recv(got, previous), (i) => elementOf(previous, i));
    await sending;
  }
  // Ranks with unequal shares, some of them empty.
  const counts = all.map((r) => (r + 1) % 3);
  const owners = counts.flatMap((n, r) => Array(n).fill(r));
  await expect(
    "all_gather_v",
    comm.allGatherV(
      filled(counts[rank], () => rank),
      { counts },
    ),
    (i) => owners[i],
  );
  const before = counts.slice(0, rank).reduce((a, b) => a + b, 0);
  const summed = comm.reduceScatterV(filled(owners.length), { counts });
  await expect("reduce_scatter_v", summed, (i) => sum(before + i));
  const toNext = all.map((r) => (r === (rank + 1) % size ? 3 : 0));
  const fromPrevious = all.map((r) => (r === (rank + size - 1) % size ? 3 : 0));
  const passed = comm.allToAllV(filled(3), { sendCounts: toNext, recvCounts: fromPrevious });
  await expect("all_to_all_v", passed, (i) => elementOf((rank + size - 1) % size, i));

  const objects = await comm.gatherObjects({ rank });
  if (objects.some((one, r) => one.rank !== r)) throw new Error("WRONG: gathered objects");
  const word = await comm.broadcastObject(rank === 3 % size ? "word" : undefined, { root: 3 % size });
  if (word !== "word") throw new Error("WRONG: a broadcast object");
  const half = await comm.split(rank % 2, rank);
  await expect("all_reduce of a half", half.allReduce(filled(2, () => 1)), () => half.size);
  await half.close();
  await comm.barrier();
  say({ kind: "done", rank, calls: calls + 4, at: Date.now() });
}
