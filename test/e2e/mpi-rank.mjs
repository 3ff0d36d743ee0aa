// One rank under mpirun: `mpirun -n N node mpi-rank.mjs CHORALE_URL WHAT`.
const [, , url, what] = process.argv;
const { joinWorld } = await import(url);
const world = await joinWorld({ timeoutMs: 2500 });
const { comm } = world;
const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);
const failure = (error) => `${error.code}: ${error.message.replaceAll("\n", " ")}`;
switch (what) {
  case "sum": {
    const x = new Float32Array(4).fill(world.rank + 1);
    await comm.allReduce(x);
    const pair = await comm.split(world.rank % 2);
    const y = pair.allReduce(BigInt64Array.of(BigInt(world.rank))).wait();
    say(`rank ${world.rank} of ${world.size}: ${x[0]}, ${y.data[0]}, ${world.backend}`);
    break;
  }
  case "mismatch":
    try {
      await comm.allReduce(new Float32Array(world.rank === 0 ? 4 : 8));
    } catch (error) {
      say(`rank ${world.rank}: ${failure(error)}`);
    }
    break;
  case "never":
    if (world.rank === 1) await new Promise((resolve) => setTimeout(resolve, 1500));
    else {
      try {
        await comm.barrier({ timeoutMs: 700 });
      } catch (error) {
        say(`rank ${world.rank}: ${failure(error)}`);
      }
    }
    break;
  case "die":
    await comm.barrier();
    if (world.rank === 1) process.kill(process.pid, "SIGKILL");
    await comm.barrier();
    break;
  case "rebuild":
    try {
      await world.rebuild();
    } catch (error) {
      say(`rank ${world.rank}: ${failure(error)}`);
    }
    break;
}
await world.close().catch(() => {});
