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
 * How much of an all-reduce one turn of the event loop takes at most, in time on the core: that others hold the core, and that V8
 * compiles in other threads, is no matter of ours, and on a loaded machine all turns take longer. The least of four calls, since the
 * first runs code that was never run, and V8 may collect garbage in any of them.
 */
async function longestTurn(group, tensor) {
  const ranMs = () => Number.parseInt(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8"), 10) / 1e6;
  let least = 1;
  for (let i = 0; i < 4; i++) {
    const start = ranMs();
    let [last, going, longestMs] = [start, true, 0];
    const tick = () => {
      const now = ranMs();
      longestMs = Math.max(longestMs, now - last);
      last = now;
      if (going) setImmediate(tick);
    };
    setImmediate(tick);
    await group.allReduce(tensor);
    going = false;
    least = Math.min(least, longestMs / (ranMs() - start));
  }
  return least;
}

/** In a world of three: sums of three sizes in groups that overlap, and how much of 64 MiB two ranks do in one turn of their event loops. */
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
  const longest = low === undefined ? 0 : await longestTurn(low, world.tensor("f32", [2 ** 24]));
  const apart = await differInHost(world);
  await comm.barrier();
  return { small, again, sums, choices, longest, apart };
}
