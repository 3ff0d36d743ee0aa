/**
 * What an all-reduce takes between ranks that nobody bound to cores, as `launch` starts them: `node bench/rank-cores.mjs
 * [options]` after `npm run build`. Worlds start anew for each round, as where the system puts their threads is chance.
 *
 *   --ranks 2   --sizes 64,1K,4K,32K,1M   --rounds 5   --calls 4000   --backend threads
 *   --lib DIR   a build (its dist/ folder) to measure beside this one, round by round in turn; may be repeated
 *
 * One line per (build, size): the median over the rounds of rank 0's medians in us, the least and the most of them, calls being
 * timed one by one; then, on Linux, the sleeps of rank 0 per call. The first quarter of a world's calls of a size is not counted.
 */
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";

const config = {
  options: {
    ranks: { type: "string", default: "2" },
    sizes: { type: "string", default: "64,1K,4K,32K,1M" },
    rounds: { type: "string", default: "5" },
    calls: { type: "string", default: "4000" },
    backend: { type: "string", default: "threads" },
    lib: { type: "string", multiple: true, default: [] },
  },
};
const bytesOf = (text) => {
  const unit = { K: 1024, M: 1024 ** 2 }[text.at(-1)];
  return 4 * Math.ceil((integer(unit === undefined ? text : text.slice(0, -1), "--sizes") * (unit ?? 1)) / 4);
};
const options = flagsOf(import.meta.url, config, ({ values }) => ({
  ranks: integer(values.ranks, "--ranks", 2),
  sizes: values.sizes.split(",").map(bytesOf),
  rounds: integer(values.rounds, "--rounds"),
  calls: integer(values.calls, "--calls", 8),
  backend: values.backend,
  libs: [
    ...values.lib.map((folder) => pathToFileURL(`${resolve(folder)}/`).href),
    new URL("../dist/", import.meta.url).href,
  ],
}));

async function measure({ launch }, { ranks, backend, sizes, calls }) {
  const [rows] = await launch({
    ranks,
    backend,
    data: { sizes, calls },
    run: (world, data) => {
      const fs = process.getBuiltinModule("node:fs");
      const sleeps = () => {
        try {
          const text = fs.readFileSync("/proc/thread-self/status", "utf8");
          return Number(/^voluntary_ctxt_switches:\s*(\d+)/m.exec(text)?.[1] ?? Number.NaN);
        } catch {
          return Number.NaN;
        }
      };
      return data.sizes.map((bytes) => {
        const tensor = world.tensor("f32", [bytes / 4]);
        tensor.data.fill(0);
        const times = [];
        let before = Number.NaN;
        const first = data.calls >> 2;
        for (let i = 0; i < data.calls; i++) {
          if (i === first) before = sleeps();
          const began = performance.now();
          world.comm.allReduce(tensor).wait();
          if (i >= first) times.push((performance.now() - began) * 1e3);
        }
        const sleepsPerCall = (sleeps() - before) / times.length;
        return { medianUs: times.sort((a, b) => a - b)[times.length >> 1], sleepsPerCall };
      });
    },
  });
  return rows;
}

const builds = [];
for (const href of options.libs)
  builds.push({ name: fileURLToPath(href), lib: await import(new URL("index.js", href).href), rounds: [] });
for (let round = 0; round < options.rounds; round++) {
  for (const build of builds) build.rounds.push(await measure(build.lib, options));
}
const sorted = (values) => values.toSorted((a, b) => a - b);
console.log(
  `${options.ranks} ranks, ${options.backend}, all_reduce f32, ${options.rounds} worlds\nbuild bytes median_us (least, most) sleeps_per_call`,
);
for (const { name, rounds } of builds) {
  for (const [i, bytes] of options.sizes.entries()) {
    const times = sorted(rounds.map((rows) => rows[i].medianUs));
    const sleeps = sorted(rounds.map((rows) => rows[i].sleepsPerCall));
    const [least, median, most] = [times[0], times[times.length >> 1], times.at(-1)].map((us) => us.toFixed(2));
    console.log(`${name} ${bytes} ${median} (${least}, ${most}) ${sleeps[sleeps.length >> 1].toFixed(2)}`);
  }
}
