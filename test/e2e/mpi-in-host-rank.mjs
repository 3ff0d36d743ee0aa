// One rank of a world that is told what serves inside the host.
import { readFileSync } from "node:fs";
import { sumsBothWays } from "./sums-both-ways.mjs";

/** Two ranks make different calls the short way, and the third none: they need not wait for it to be told. */
async function differInHost(world) {
  const { comm, rank } = world;
  const group = await comm.split(0);
  const [one, other] = [4, 8].map((count) => world.tensor("f32", [count]));
  // The first goes the long way, which makes the communicator.
  for (let i = 0; i < 2; i++) group.allReduce(one).wait();
  if (rank === 2) return "";
  try {
    return String(group.allReduce(rank === 0 ? one : other).wait());
  } catch (error) {
    return `${error.code}: ${error.message}`;
  }
}

/** In a world of three: sums of three sizes in groups that overlap, and how long 64 MiB keep the event loop of two ranks. */
export default async function serveInHost(world) {
  const { comm, rank } = world;
  const small = sumsBothWays(world);
  const low = await comm.split(rank < 2 ? 0 : -1);
  const groups = [comm, low, await comm.split(rank > 0 ? 0 : -1)];
  const sums = [];
  // All of them more than a piece of the shared memory, in all groups at once.
  for (const count of [100_003, 200_003, 300_003]) {
    const works = groups.flatMap((group, i) => {
      if (!group) return [];
      const x = new Float32Array(count).fill(rank + i + 1);
      return [
        group.allReduce(x),
        group.allGather(x.subarray(0, 5)),
        group.reduceScatter(new Float32Array(6).fill(rank)),
      ];
    });
    const found = [];
    for (const work of works.reverse()) found.unshift(Number((await work).at(-1)));
    sums.push(...found);
  }
  const { choices } = comm.stats();
  let longestMs = 0;
  if (low !== undefined) {
    const large = world.tensor("f32", [2 ** 24]);
    // The main thread's time on a core, not the clock's: how long others hold the core, and what V8 compiles in other
    // threads meanwhile, is no matter of ours.
    const ranMs = () => Number.parseInt(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8"), 10) / 1e6;
    let [last, going] = [ranMs(), true];
    const tick = () => {
      const now = ranMs();
      longestMs = Math.max(longestMs, now - last);
      last = now;
      if (going) setImmediate(tick);
    };
    setImmediate(tick);
    await low.allReduce(large);
    going = false;
  }
  const apart = await differInHost(world);
  await comm.barrier();
  return { small, sums, choices, longestMs, apart };
}
