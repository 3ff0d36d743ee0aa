// One rank of mpi-hosts.mjs: `node mpi-hosts-rank.mjs CHORALE_URL RANKS_BY_HOST CHOICES`. Prints one line of JSON.
import { networkInterfaces } from "node:os";

const [, , url, counts, choices] = process.argv;
const perHost = counts.split(",").map(Number);
const { joinWorld } = await import(url);
const world = await joinWorld({ timeoutMs: 30_000 });
const { comm, rank, size } = world;
const wrong = [];
const check = (what, found, wanted) => {
  if (found !== wanted) wrong.push(`${what}: ${found} instead of ${wanted}`);
};
const isEven = new Set(perHost).size === 1;
const hostOf = perHost.flatMap((count, host) => Array(count).fill(host));
const mesh = isEven ? world.mesh({ host: perHost.length, local: perHost[0] }) : undefined;
const groups = {
  world: comm,
  local: mesh ? await world.communicator(mesh, "local") : await comm.split(hostOf[rank]),
  across: mesh ? await world.communicator(mesh, "host") : await comm.split(rank - hostOf.indexOf(hostOf[rank])),
};
for (const count of [1, 1000, 300_000]) {
  for (const [name, group] of Object.entries(groups)) {
    const { ranks } = group;
    const sum = ranks.reduce((total, one) => total + one + 1, 0);
    const x = await group.allReduce(new Float32Array(count).fill(rank + 1));
    check(`sum of ${count} over ${name}`, x.at(count - 1), sum);
    const half = await group.allReduce(world.tensor("bf16", [count]).fill(rank + 1));
    check(`bf16 sum of ${count} over ${name}`, half.at(count - 1), sum);
    const root = ranks.length - 1;
    const given = await group.broadcast(new Float32Array(count).fill(rank), { root });
    check(`broadcast of ${count} over ${name}`, given.at(count - 1), ranks[root]);
    const most = await group.reduce(new Int32Array(count).fill(rank), { op: "max", root });
    if (ranks[root] === rank) check(`maximum of ${count} over ${name}`, most.at(count - 1), Math.max(...ranks));
    const all = await group.allGather(new Int32Array(count).fill(rank));
    check(`ranks of ${name}`, String(ranks.map((_, i) => all.at(i * count))), String(ranks));
    const part = await group.reduceScatter(new Float64Array(count * ranks.length).fill(rank + 1));
    check(`scattered sum of ${count} over ${name}`, part.at(count - 1), sum);
  }
}
const served = comm.stats().choices ?? {};
// Where two members share a host, the exchange serves what it is told to, of which small floats' sums are not.
const byExchange = choices === "exchange" && Math.max(...perHost) > 1;
check("all-reduces served by the exchange", served["all_reduce exchange"] ?? 0, byExchange ? 3 : 0);
check("broadcasts served by the exchange", served["broadcast exchange"] ?? 0, byExchange ? 3 : 0);
const next = (rank + 1) % size;
const token = new Int32Array(1);
const [, got] = await Promise.all([comm.send(Int32Array.of(rank), next), comm.recv(token, (rank + size - 1) % size)]);
check("token from the rank before", got.at(0), (rank + size - 1) % size);
const address = networkInterfaces().eth0?.find(({ family }) => family === "IPv4")?.address;
process.stdout.write(`${JSON.stringify({ rank, size, address, coords: mesh?.coordsOf(rank) ?? null, wrong })}\n`);
await world.close();
