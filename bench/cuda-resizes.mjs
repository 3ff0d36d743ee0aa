/**
 * What it costs on two GPUs that ranks meet where the size of a call is another than before: graphs of all-reduces of one size, of
 * another, and of both in turn, replayed in turn. After `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/cuda-resizes.mjs [thread|process] [--bytes 1024,2048] [--choices FILE.json] [--json]
 * Microseconds a call, medians of 15 replays of 1,000 calls; `change` is what a change of size adds to a call.
 */
import { readFileSync } from "node:fs";
import { launch } from "chorale/world";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const config = {
  allowPositionals: true,
  options: {
    bytes: { type: "string", default: "1024,2048" },
    choices: { type: "string" },
    json: { type: "boolean", default: false },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  isolation: oneOf(positionals[0] ?? "thread", "the isolation", ["thread", "process"]),
  sizes: values.bytes.split(",").map(Number),
  choices: values.choices,
  json: values.json,
}));

const run = async (world, sizes) => {
  const { comm } = world;
  const CALLS = 1000;
  const tensors = sizes.map((bytes) => [world.tensor("f32", [bytes / 4]), world.tensor("f32", [bytes / 4])]);
  const call = (group, which) => group.allReduce(tensors[which][0], { output: tensors[which][1] });
  for (const which of [0, 1]) for (let i = 0; i < 20; i++) await call(comm, which);
  const kinds = { first: () => 0, second: () => 1, both: (i) => i % 2 };
  const graphs = Object.entries(kinds).map(([name, which]) => ({
    name,
    graph: comm.capture((group) => {
      for (let i = 0; i < CALLS; i++) call(group, which(i));
    }),
    us: [],
  }));
  for (let round = -3; round < 15; round++) {
    for (const { graph, us } of graphs) {
      await comm.barrier();
      const start = performance.now();
      comm.replay(graph).wait();
      if (round >= 0) us.push(((performance.now() - start) * 1000) / CALLS);
    }
  }
  for (const { graph } of graphs) graph.close();
  const us = Object.fromEntries(graphs.map(({ name, us }) => [name, us.sort((a, b) => a - b)[us.length >> 1]]));
  return { ...us, change: us.both - (us.first + us.second) / 2, choices: comm.stats().choices };
};

const [row] = await launch({
  ranks: 2,
  backend: "cuda",
  isolation: flags.isolation,
  ...(flags.choices && { backendOptions: { choices: JSON.parse(readFileSync(flags.choices, "utf8")) } }),
  run,
  data: flags.sizes,
  timeoutMs: 60_000,
});
if (flags.json) console.log(JSON.stringify({ isolation: flags.isolation, sizes: flags.sizes, ...row }));
else
  for (const [name, us] of Object.entries(row)) console.log(name, typeof us === "number" ? `${us.toFixed(2)} us` : us);
