/**
 * The tcp backend on pretended hosts, with shared memory inside hosts and without, in turn within one run:
 *
 *   npm run build && node bench/tcp-hosts.mjs [--hosts 2] [--ranks 2] [--ops all_reduce,...] [--sizes 1K,64K,1M,16M] [--rounds 3]
 *
 * Each host is a launcher of its own on this machine, with so many ranks; they reach each other over loopback. Prints medians
 * over the rounds: microseconds per call of the slowest rank, and the processor time of a call, of all ranks together, which says
 * more where a machine has fewer cores than ranks. `bench/tcp-compare.mjs` measures Gloo.
 */
import { randomBytes } from "node:crypto";
import { loadavg } from "node:os";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { launch } from "../dist/runtime/world/index.js";
import { freePort } from "../test/support/free-port.mjs";

const config = {
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    ops: { type: "string", default: "all_reduce,broadcast,all_gather,reduce,reduce_scatter" },
    sizes: { type: "string", default: "1K,64K,1M,16M" },
    rounds: { type: "string", default: "3" },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values }) => ({
  hosts: integer(values.hosts, "--hosts"),
  ranks: integer(values.ranks, "--ranks"),
  ops: values.ops.split(","),
  sizes: values.sizes.split(","),
  rounds: integer(values.rounds, "--rounds"),
}));
const bytesOf = (text) => Number.parseInt(text, 10) * ({ K: 1024, M: 1024 ** 2 }[text.at(-1)] ?? 1);
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
process.env.CHORALE_SECRET ??= randomBytes(32).toString("hex");

/** What each rank does; sent as text. */
async function measure(world, { cases }) {
  const methods = { all_reduce: "allReduce", broadcast: "broadcast", all_gather: "allGather", reduce: "reduce" };
  const all = { ...methods, reduce_scatter: "reduceScatter" };
  const rows = [];
  for (const { op, bytes } of cases) {
    const count = Math.max(1, Math.floor(bytes / 4 / world.size)) * world.size;
    const input = world.tensor("f32", [op === "all_gather" ? count / world.size : count]);
    const output = world.tensor("f32", [op === "reduce_scatter" ? count / world.size : count]);
    input.data.fill(0);
    output.data.fill(0);
    const options = op === "all_gather" || op === "reduce_scatter" ? { output } : {};
    const iterations = Math.max(4, Math.min(200, Math.floor(24e6 / Math.max(bytes, 64_000))));
    const call = () => world.comm[all[op]](input, options).wait();
    for (let i = 0; i < Math.max(3, iterations / 4); i++) call();
    world.comm.barrier().wait();
    const before = process.cpuUsage();
    const began = performance.now();
    for (let i = 0; i < iterations; i++) call();
    const us = ((performance.now() - began) * 1000) / iterations;
    const { user, system } = process.cpuUsage(before);
    rows.push({ us, cpuUs: (user + system) / iterations });
    world.free(input);
    world.free(output);
  }
  return rows;
}

/** By case: the slowest rank's time, and the processor time of all. */
async function run(hierarchy, cases) {
  const rendezvous = `127.0.0.1:${await freePort()}`;
  const world = { ranks: flags.ranks, backend: "tcp", backendOptions: { hierarchy }, data: { cases }, run: measure };
  const [all] = await Promise.all(
    Array.from({ length: flags.hosts }, (_, rank) =>
      launch(flags.hosts === 1 ? world : { ...world, nodes: { count: flags.hosts, rank, rendezvous } }),
    ),
  );
  return cases.map((_, i) => ({
    us: Math.max(...all.map((rows) => rows[i].us)),
    cpuUs: all.reduce((sum, rows) => sum + rows[i].cpuUs, 0),
  }));
}

const cases = flags.ops.flatMap((op) => flags.sizes.map((size) => ({ op, size, bytes: bytesOf(size) })));
const load = loadavg()[0];
const rounds = { off: [], on: [] };
for (let round = 0; round < flags.rounds; round++) {
  for (const mode of ["off", "on"]) rounds[mode].push(await run(mode, cases));
}
const ranks = `${flags.hosts} host${flags.hosts === 1 ? "" : "s"} of ${flags.ranks} ranks`;
console.log(
  `${ranks}, medians of ${flags.rounds} rounds, load ${load.toFixed(1)} before, ${loadavg()[0].toFixed(1)} after`,
);
console.log(
  "| operation | size | sockets, us | hierarchical, us | faster | processor time: sockets, us | hierarchical, us |",
);
console.log("|---|---|---|---|---|---|---|");
for (const [i, { op, size }] of cases.entries()) {
  const of = (mode, key) => median(rounds[mode].map((rows) => rows[i][key]));
  const [flat, mine] = [of("off", "us"), of("on", "us")];
  const cells = [flat, mine].map((us) => us.toFixed(0));
  const cpu = ["off", "on"].map((mode) => of(mode, "cpuUs").toFixed(0));
  console.log(`| ${[op, size, ...cells, `${(flat / mine).toFixed(2)}x`, ...cpu].join(" | ")} |`);
}
