/**
 * One rank under mpirun: `mpirun -n N node mpi-rank.mjs CHORALE_URL WHAT…`. What each case finds is one line, which begins
 * with the case and the rank. Cases that end a group have one of their own, so that the world lives on for the next.
 */
import { callsAgain, sumsBothWays } from "./sums-both-ways.mjs";

const [, , url, ...whats] = process.argv;
const { joinWorld } = await import(url);
const world = await joinWorld({ timeoutMs: 20_000 });
const { comm, rank } = world;

/** @param run gives what is to be said; a failure is said in its words */
const CASES = {
  sum: async () => {
    const x = new Float32Array(4).fill(rank + 1);
    await comm.allReduce(x);
    const pair = await comm.split(rank % 2);
    const y = pair.allReduce(BigInt64Array.of(BigInt(rank))).wait();
    return `of ${world.size}: ${x[0]}, ${y.data[0]}, ${world.backend}`;
  },
  small: () => sumsBothWays(world),
  again: () => callsAgain(world),
  // MPI may need the sender for a large message, which has nothing to wait for but others.
  sent: async () => {
    const x = new Float32Array(100_000).fill(rank + 1);
    if (rank === 0) await comm.send(x, 1);
    if (rank === 1) await comm.recv(x, 0);
    await comm.barrier();
    return x.at(-1);
  },
  mismatch: async () => {
    const pair = await comm.split(rank < 2 ? 0 : -1);
    await pair?.allReduce(new Float32Array(rank === 0 ? 4 : 8));
  },
  never: async () => {
    const group = await comm.split(0);
    await comm.barrier();
    try {
      if (rank !== 1) await group.barrier({ timeoutMs: 700 });
    } finally {
      // Until then rank 1 has not left the group.
      await comm.barrier();
    }
  },
  order: async () => {
    const states = new Set();
    for (let i = 0; i < 20; i++) {
      const works = [comm.allReduce(new Float32Array(5000)), comm.broadcast(new Float32Array(100), { root: i % 2 })];
      comm.barrier().wait();
      for (const work of works) {
        states.add(work.state);
        await work;
      }
    }
    return [...states].join();
  },
  rebuild: () => world.rebuild(),
  die: async () => {
    await comm.barrier();
    if (rank === 1) process.kill(process.pid, "SIGKILL");
    await comm.barrier();
  },
};
for (const what of whats) {
  let said;
  try {
    said = await CASES[what]();
  } catch (error) {
    said = `${error.code}: ${error.message.replaceAll("\n", " ")}`;
  }
  if (said !== undefined) process.stdout.write(`${what} ${rank} ${said}\n`);
}
await world.close().catch(() => {});
