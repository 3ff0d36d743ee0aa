// One rank of mpi-hosts.mjs: `node mpi-hosts-rank.mjs CHORALE_URL HOSTS`. Prints one line of JSON.
import { networkInterfaces } from "node:os";

const [, , url, hosts] = process.argv;
const { joinWorld } = await import(url);
const world = await joinWorld({ timeoutMs: 30_000 });
const { comm, rank, size } = world;
const mesh = world.mesh({ host: Number(hosts), local: size / Number(hosts) });
const wrong = [];
const check = (what, found, wanted) => {
  if (found !== wanted) wrong.push(`${what}: ${found} instead of ${wanted}`);
};
const local = await world.communicator(mesh, "local");
const across = await world.communicator(mesh, "host");
const at = mesh.coordsOf(rank);
for (const count of [1, 1000, 300_000]) {
  for (const [name, group] of Object.entries({ world: comm, local, across })) {
    const sum = group.ranks.reduce((total, one) => total + one + 1, 0);
    const x = await group.allReduce(new Float32Array(count).fill(rank + 1));
    check(`sum of ${count} over ${name}`, x.at(count - 1), sum);
    const half = await group.allReduce(world.tensor("bf16", [count]).fill(rank + 1));
    check(`bf16 sum of ${count} over ${name}`, half.at(count - 1), sum);
    const all = await group.allGather(Int32Array.of(rank));
    check(`ranks of ${name}`, String([...all.data]), String(group.ranks));
  }
}
// What MPI serves alone has no choices to count.
check("calls served", JSON.stringify(comm.stats().choices), undefined);
const next = (rank + 1) % size;
const token = new Int32Array(1);
const [, got] = await Promise.all([comm.send(Int32Array.of(rank), next), comm.recv(token, (rank + size - 1) % size)]);
check("token from the rank before", got.at(0), (rank + size - 1) % size);
const address = networkInterfaces().eth0?.find(({ family }) => family === "IPv4")?.address;
process.stdout.write(`${JSON.stringify({ rank, size, address, coords: at, wrong })}\n`);
await world.close();
