/**
 * Runs plans on two GPUs and compares what their buffers hold with what the CPU executor left there (prepare.ts), bit for bit.
 *   node bench/device-programs/run.mjs FILE.json.gz [thread|process] [--worlds 14] [--seconds 100] [--backend cuda]
 * (after npm run build.) So many worlds share the plans, each in a process of its own: most of the time NVRTC compiles, and ten
 * worlds of threads in one process once did not end, nobody knows why. After `--seconds` no plan is begun, and half as long later
 * what still runs is killed; the line then says how far each world came. Exits 1 when something differs, a world does not end,
 * a plan does not run, or none was begun.
 */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { gunzipSync } from "node:zlib";
import { launch, parseBackend, parseIsolation } from "chorale/world";
import { flagsOf, integer } from "../../dist/apps/bench/script-flags.js";
import { oneOf } from "../../dist/core/internal.js";

const config = {
  allowPositionals: true,
  options: {
    worlds: { type: "string", default: "14" },
    world: { type: "string" },
    seconds: { type: "string", default: "100" },
    backend: { type: "string", default: "cuda" },
  },
};
const { file, isolation, numWorlds, world, seconds, backend } = flagsOf(
  import.meta.url,
  config,
  ({ values, positionals }) => ({
    file: oneOf(positionals.length === 0 ? "none" : "one", "files", ["one"]) && positionals[0],
    isolation: parseIsolation(positionals[1] ?? "thread", "the isolation"),
    numWorlds: integer(values.worlds, "--worlds"),
    world: values.world === undefined ? undefined : integer(values.world, "--world", 0),
    seconds: integer(values.seconds, "--seconds"),
    backend: parseBackend(values.backend, "--backend"),
  }),
);
const begin = performance.now();

const run = async (world, { text, seconds }) => {
  const jobs = JSON.parse(text, (_, value) =>
    typeof value === "string" && /^\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value,
  );
  const { upload, download } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { provePlan } = await import("chorale/verifier");
  const { writeSync } = await import("node:fs");
  // A line at once, also while this thread waits for a kernel.
  const tell = (line) => writeSync(1, `${JSON.stringify({ rank: world.rank, ...line })}\n`);
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
  const end = performance.now() + 1000 * seconds;
  for (const { name, plan: given, cases } of jobs) {
    const { data } = await comm.allReduce(Int32Array.of(performance.now() > end ? 1 : 0), { op: "max" });
    if (data[0] === 1) break;
    const plan = freeze(given);
    const { ok } = provePlan(plan);
    for (const { dtype, count, layouts, before, after } of cases) {
      const { sizes, input, output, shared } = layouts[world.rank];
      const tensors = sizes.map((size) => (size > 0 ? world.tensor(dtype, [size]) : undefined));
      let wrong;
      tell({ begin: name, dtype, count });
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
      tell({ name, dtype, count, wrong });
    }
  }
};

/** Plans of one world, in this process. */
async function runWorld(k) {
  const lists = JSON.parse(gunzipSync(readFileSync(file)).toString());
  const text = JSON.stringify(lists.filter((_, i) => i % numWorlds === k));
  await launch({
    ranks: 2,
    backend,
    isolation,
    run,
    data: { text, seconds },
    timeoutMs: 1500 * seconds,
    // What hangs is told by its own group, before this process is killed.
    ...(backend === "cuda" && { backendOptions: { timeoutMs: 400 * seconds } }),
  });
}

/** A process for world `k`. @returns what it told, and where it stood when it was ended, if it was */
function startWorld(k) {
  const options = ["--worlds", `${numWorlds}`, "--world", `${k}`, "--seconds", `${seconds}`, "--backend", backend];
  const child = spawn(process.execPath, [process.argv[1], file, isolation, ...options], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const found = [];
  const at = [];
  let stderr = "";
  let late = false;
  createInterface({ input: child.stdout }).on("line", (told) => {
    // Lines of ranks that are processes say first whose they are.
    const line = told.replace(/^\[\d+\] /, "");
    if (!line.startsWith('{"rank"')) return;
    const { rank, begin: name, ...row } = JSON.parse(line);
    at[rank] = name === undefined ? `after ${row.name}` : `in ${name} ${row.dtype} ${row.count}`;
    if (name === undefined) found.push(row);
  });
  child.stderr.on("data", (data) => {
    stderr = (stderr + data).slice(-2000);
  });
  const timer = setTimeout(() => {
    late = true;
    child.kill("SIGKILL");
  }, 1500 * seconds);
  return new Promise((done) => {
    child.on("close", (code) => {
      clearTimeout(timer);
      const error = late ? "killed, it did not end" : code === 0 ? undefined : stderr.trim().slice(0, 400);
      done({ found, failed: error === undefined ? undefined : { world: k, error, at } });
    });
  });
}

async function runWorlds() {
  const worlds = await Promise.all(Array.from({ length: numWorlds }, (_, k) => startWorld(k)));
  const all = worlds.flatMap(({ found }) => found);
  const failed = worlds.flatMap((one) => one.failed ?? []);
  const wrong = all.filter((one) => one.wrong !== undefined);
  const plans = new Set(all.map(({ name }) => name));
  const random = [...plans].filter((name) => name.startsWith("random")).length;
  console.log(
    JSON.stringify({
      isolation,
      of: JSON.parse(gunzipSync(readFileSync(file)).toString()).length,
      plans: plans.size,
      random,
      programs: plans.size - random,
      runs: Math.floor(all.length / 2),
      wrong: wrong.length,
      first: wrong.slice(0, 8),
      failed,
      seconds: Math.round((performance.now() - begin) / 1000),
    }),
  );
  if (wrong.length > 0 || failed.length > 0 || plans.size === 0) process.exitCode = 1;
}

await (world === undefined ? runWorlds() : runWorld(world));
