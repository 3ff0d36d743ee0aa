// One rank of a world that is told what serves inside the host.
import { readFileSync } from "node:fs";
import { callsAgain, sumsBothWays } from "./sums-both-ways.mjs";

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

/**
 * How long an all-reduce keeps the event loop, on the core: the time that others hold the core, and that V8 compiles in other
 * threads, is no matter of ours. The least of four calls, since the first runs code that was never run, and V8 may collect
 * garbage in any of them.
 */
async function longestTurnMs(group, tensor) {
  const ranMs = () => Number.parseInt(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8"), 10) / 1e6;
  let leastMs = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 4; i++) {
    let [last, going, longestMs] = [ranMs(), true, 0];
    const tick = () => {
      const now = ranMs();
      longestMs = Math.max(longestMs, now - last);
      last = now;
      if (going) setImmediate(tick);
    };
    setImmediate(tick);
    await group.allReduce(tensor);
    going = false;
    leastMs = Math.min(leastMs, longestMs);
  }
  return leastMs;
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
      // Tensors of the world can be read by other ranks of the host; one array that cannot has them all go another way.
      const isTensor = count !== 200_003 || rank !== 1;
      const x = isTensor ? world.tensor("f32", [count]) : new Float32Array(count);
      x.fill(rank + i + 1);
      return [
        group.allReduce(x),
        group.allGather((isTensor ? x.data : x).subarray(0, 5)),
        group.reduceScatter(new Float32Array(6).fill(rank)),
      ];
    });
    const found = [];
    for (const work of works.reverse()) found.unshift(Number((await work).at(-1)));
    sums.push(...found);
  }
  const { choices } = comm.stats();
  const again = callsAgain(world);
  const longestMs = low === undefined ? 0 : await longestTurnMs(low, world.tensor("f32", [2 ** 24]));
  const apart = await differInHost(world);
  await comm.barrier();
  return { small, again, sums, choices, longestMs, apart };
}
