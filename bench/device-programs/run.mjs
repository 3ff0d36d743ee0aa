/**
 * Runs plans on two GPUs and compares what their buffers hold with what the CPU executor left there (prepare.ts), bit for bit.
 *   node bench/device-programs/run.mjs FILE.json.gz [thread|process] [--worlds 8] [--backend cuda]   (after npm run build)
 * So many worlds share the plans: most of the time NVRTC compiles. Exits 1 when something differs, or a plan does not run that
 * no rule refuses: among processes, plans that reach other ranks' buffers.
 */
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { launch, parseBackend, parseIsolation } from "chorale/world";
import { flagsOf, integer } from "../../dist/apps/bench/script-flags.js";
import { oneOf } from "../../dist/core/internal.js";

const config = {
  allowPositionals: true,
  options: { worlds: { type: "string", default: "8" }, backend: { type: "string", default: "cuda" } },
};
const { file, isolation, numWorlds, backend } = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  file: oneOf(positionals.length === 0 ? "none" : "one", "files", ["one"]) && positionals[0],
  isolation: parseIsolation(positionals[1] ?? "thread", "the isolation"),
  numWorlds: integer(values.worlds, "--worlds"),
  backend: parseBackend(values.backend, "--backend"),
}));
const lists = JSON.parse(gunzipSync(readFileSync(file)).toString());

const run = async (world, { text }) => {
  const jobs = JSON.parse(text, (_, value) =>
    typeof value === "string" && /^\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value,
  );
  const { upload, download } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { provePlan } = await import("chorale/verifier");
  const freeze = (value) => {
    if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
      for (const inner of Object.values(value)) freeze(inner);
      Object.freeze(value);
    }
    return value;
  };
  const { comm } = world;
  const at = deviceOf(world);
  const arrays = { u32: Uint32Array, f32: Float32Array };
  const found = [];
  for (const { name, plan: given, cases } of jobs) {
    const plan = freeze(given);
    const { ok } = provePlan(plan);
    for (const { dtype, count, layouts, before, after } of cases) {
      const { sizes, input, output, shared } = layouts[world.rank];
      const tensors = sizes.map((size) => (size > 0 ? world.tensor(dtype, [size]) : undefined));
      let wrong;
      try {
        if (!ok) throw new Error("the verifier refuses it here");
        tensors.forEach((one, region) => {
          if (one !== undefined) upload(one, arrays[dtype].from(before[world.rank][region]), at);
        });
        await comm.barrier();
        const part = ([region, from, size]) =>
          size === 0 || tensors[region] === undefined ? undefined : tensors[region].slice(from, from + size);
        const [x, y] = [part(input), part(output)];
        const operands =
          shared === undefined
            ? { ...(x !== undefined && { input: x }), ...(y !== undefined && { output: y }) }
            : { [shared]: tensors[0] };
        comm.run(plan, { ...operands, dtype }).wait();
        tensors.forEach((one, region) => {
          if (one === undefined) return;
          const got = download(one, at);
          const want = arrays[dtype].from(after[world.rank][region]);
          const bad = want.findIndex((value, i) => value !== got[i]);
          if (bad >= 0) wrong ??= `element ${bad} of buffer ${region} is ${got[bad]}, not ${want[bad]}`;
        });
      } catch (error) {
        wrong = error.message.split("\n")[0];
      }
      await comm.barrier().catch(() => {});
      for (const one of tensors) if (one !== undefined) world.free(one);
      found.push({ name, dtype, count, wrong });
    }
  }
  return found;
};

const begin = performance.now();
const worlds = await Promise.all(
  Array.from({ length: numWorlds }, (_, k) =>
    launch({
      ranks: 2,
      backend,
      isolation,
      run,
      data: { text: JSON.stringify(lists.filter((_, i) => i % numWorlds === k)) },
      timeoutMs: 300_000,
    }).catch((error) => [[{ name: `world ${k}`, wrong: error.message }]]),
  ),
);
const all = worlds.flatMap((ranks) => ranks.flat());
const REFUSED = /among processes/;
const refused = new Set(all.filter(({ wrong }) => REFUSED.test(wrong ?? "")).map(({ name }) => name));
const wrong = all.filter((one) => one.wrong !== undefined && !REFUSED.test(one.wrong));
const plans = new Set(all.map(({ name }) => name));
const random = [...plans].filter((name) => name.startsWith("random")).length;
console.log(
  JSON.stringify({
    isolation,
    plans: plans.size,
    random,
    programs: plans.size - random,
    runs: all.length / 2,
    refused: refused.size,
    wrong: wrong.length,
    first: wrong.slice(0, 8),
    seconds: Math.round((performance.now() - begin) / 1000),
  }),
);
if (wrong.length > 0) process.exitCode = 1;
