/**
 * The tcp backend against Gloo (PyTorch), ranks as processes that reach each other by sockets over loopback alone, as if each had
 * a host of its own (`hierarchy: "off"`), and against what bare sockets
 * carry here:
 *
 *   npm run build && node bench/tcp-compare.mjs [--ranks 2,4,8] [--ops all_reduce,...] [--sizes 8,1K,64K,1M,64M]
 *     [--rounds 5] [--ms 150] [--python python3] [--json FILE]
 *
 * The ranks of all contenders stay up for the whole run and take turns, size by size and round by round; those that wait
 * use no processor time. All inputs are zeros that were written, summed in f32, in place; every rank runs one thread of its
 * program, and nobody is bound to a core. About `--ms` milliseconds are timed of each size, contender and round.
 * Prints medians over the rounds of microseconds per call of the slowest rank, how much faster ours is than Gloo, and the
 * processor time of a call, of all ranks together. Without PyTorch it says so and measures ours alone.
 *
 * "of sockets": bus bandwidth (as nccl-tests define it) over what each of as many processes sends to the next one while it
 * receives from the one before, over bare connections with the same system calls, in the same run: an all-reduce that
 * moves least sends and receives as much on every rank, so 1 is all that it may use.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { busFactor } from "../dist/collectives/index.js";
import { launch } from "../dist/runtime/world/index.js";
import { serveRanks } from "./peers/served-ranks.mjs";

const config = {
  options: {
    ranks: { type: "string", default: "2,4,8" },
    ops: { type: "string", default: "all_reduce" },
    sizes: { type: "string", default: "8,1K,16K,64K,1M,16M,64M" },
    rounds: { type: "string", default: "5" },
    ms: { type: "string", default: "150" },
    python: { type: "string", default: "python3" },
    json: { type: "string" },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values }) => ({
  ranks: integers(values.ranks, "--ranks"),
  ops: values.ops.split(","),
  sizes: values.sizes.split(","),
  rounds: integer(values.rounds, "--rounds", 1),
  ms: integer(values.ms, "--ms", 1),
  python: values.python,
  json: values.json,
}));
const bytesOf = (text) => Number.parseInt(text, 10) * ({ K: 1024, M: 1024 ** 2 }[text.at(-1)] ?? 1);
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const peer = (name) => fileURLToPath(new URL(`peers/${name}`, import.meta.url));
/** What contenders do before the first figure, in calls of both sizes: V8 compiles what runs often. */
const WARM_UP = [
  { bytes: 1024, forMs: 1000 },
  { bytes: 256 * 1024, forMs: 1500 },
];

/** A process that belongs to this run. Its end is an error unless `isOver` says that it was asked to end. */
function start(words, state) {
  const child = spawn(words[0], words.slice(1), { stdio: ["ignore", "inherit", "pipe"] });
  let err = "";
  child.stderr.on("data", (chunk) => (err += chunk));
  child.on("error", (error) => state.fail(error));
  const ended = new Promise((resolve) => child.on("close", resolve));
  ended.then((code) => code !== 0 && state.fail(new Error(`${words.join(" ")}: ${err.slice(-500)}`)));
  return { ended, kill: () => child.kill() };
}

/** One of our ranks: runs what the socket says. Sent as text: sees nothing of this file. */
async function serve(world, { path }) {
  const { connect } = await import("node:net");
  const { createInterface } = await import("node:readline");
  const methods = { all_reduce: "allReduce", broadcast: "broadcast", reduce: "reduce", all_gather: "allGather" };
  const names = { ...methods, reduce_scatter: "reduceScatter", all_to_all: "allToAll", gather: "gather" };
  const parent = connect(path);
  const say = (value) => parent.write(`${JSON.stringify(value)}\n`);
  say({ who: "ours", rank: world.rank });
  const tensors = new Map();
  for await (const line of createInterface({ input: parent })) {
    const { op, bytes, warm, iterations } = JSON.parse(line);
    const count = Math.max(1, Math.floor(bytes / 4));
    const part = Math.max(1, Math.floor(count / world.size));
    // Kept from round to round: none pays for fresh pages, nor for those that were freed.
    if (!tensors.has(bytes)) {
      tensors.set(bytes, [world.tensor("f32", [count]), world.tensor("f32", [part * world.size])]);
      for (const { data } of tensors.get(bytes)) data.fill(0);
    }
    const [input, output] = tensors.get(bytes);
    const [method, parts] = [names[op], (tensor) => tensor.data.subarray(0, part * world.size)];
    const call =
      {
        all_gather: () => world.comm.allGather(input.data.subarray(0, part), { output: parts(output) }),
        reduce_scatter: () => world.comm.reduceScatter(parts(input), { output: output.data.subarray(0, part) }),
        all_to_all: () => world.comm.allToAll(parts(input), { output: parts(output) }),
      }[op] ?? (() => world.comm[method](input, {}));
    for (let i = 0; i < warm; i++) call().wait();
    world.comm.barrier().wait();
    const before = process.cpuUsage();
    const began = performance.now();
    for (let i = 0; i < iterations; i++) call().wait();
    const us = ((performance.now() - began) * 1000) / iterations;
    const { user, system } = process.cpuUsage(before);
    say({ us, cpuUs: (user + system) / iterations });
  }
}

/** Starts all contenders of so many ranks. */
async function startAll(ranks, folder, hasGloo) {
  const path = join(folder, `ranks-${ranks}`);
  const server = await serveRanks(path);
  const state = {};
  const failed = new Promise((_, reject) => {
    state.fail = reject;
  });
  failed.catch(() => {});
  const all = Array.from({ length: ranks }, (_, rank) => rank);
  const children = [
    ...all.map((rank) => start([process.execPath, peer("socket-ring.mjs"), rank, ranks, path].map(String), state)),
    ...(hasGloo ? all : []).map((rank) =>
      start(
        [flags.python, peer("gloo_peer.py"), rank, ranks, join(folder, `store-${ranks}`), "serve", path].map(String),
        state,
      ),
    ),
  ];
  const world = launch({ ranks, backend: "tcp", backendOptions: { hierarchy: "off" }, data: { path }, run: serve });
  world.catch(state.fail);
  const contenders = new Map();
  try {
    for (const who of hasGloo ? ["sockets", "ours", "gloo"] : ["sockets", "ours"]) {
      contenders.set(who, await Promise.race([server.meet(who, ranks), failed]));
    }
    const { ports } = contenders.get("sockets");
    await contenders.get("sockets").run({ ports });
  } catch (error) {
    for (const { kill } of children) kill();
    throw error;
  }
  return {
    run: (who, value) => Promise.race([contenders.get(who).run(value), failed]),
    async end() {
      for (const one of contenders.values()) one.end();
      await Promise.race([Promise.all([world, ...children.map(({ ended }) => ended)]), failed]);
      server.close();
    },
  };
}

/** Median microseconds and processor time of every size, of each contender. */
async function measure(op, ranks, sizes, folder, hasGloo) {
  const contenders = await startAll(ranks, folder, hasGloo);
  const whos = hasGloo ? ["ours", "gloo"] : ["ours"];
  const samples = new Map(["sockets", ...whos].map((who) => [who, sizes.map(() => [])]));
  const iterations = new Map();
  for (const who of whos) {
    for (const { bytes, forMs } of WARM_UP) {
      for (const began = performance.now(); performance.now() - began < forMs; ) {
        await contenders.run(who, { op, bytes, warm: 0, iterations: 50 });
      }
    }
  }
  for (let round = 0; round < flags.rounds; round++) {
    for (const [i, bytes] of sizes.entries()) {
      const order = (round + i) % 2 === 0 ? whos : whos.toReversed();
      for (const who of order) {
        const name = `${who} ${i}`;
        if (!iterations.has(name)) {
          const { us } = await contenders.run(who, { op, bytes, warm: 1, iterations: 2 });
          iterations.set(name, us < 0 ? 0 : Math.max(2, Math.min(5000, Math.round((flags.ms * 1000) / us))));
        }
        const calls = iterations.get(name);
        if (calls === 0) continue;
        samples
          .get(who)
          [i].push(await contenders.run(who, { op, bytes, warm: Math.ceil(calls / 10), iterations: calls }));
      }
      if (bytes >= 2 ** 20) {
        const calls = Math.max(2, Math.round(2 ** 26 / bytes));
        samples.get("sockets")[i].push(await contenders.run("sockets", { bytes, warm: 1, iterations: calls }));
      }
    }
  }
  await contenders.end();
  const of = (who, i, key) => {
    const values = (samples.get(who)?.[i] ?? []).map((one) => one[key]);
    return values.length === 0 ? undefined : median(values);
  };
  return sizes.map((bytes, i) => ({
    op,
    ranks,
    bytes,
    us: of("ours", i, "us"),
    cpuUs: of("ours", i, "cpuUs"),
    glooUs: of("gloo", i, "us"),
    glooCpuUs: of("gloo", i, "cpuUs"),
    busbwGBps: (bytes / of("ours", i, "us") / 1000) * busFactor(op, ranks),
    socketGBps: of("sockets", i, "us") === undefined ? undefined : bytes / of("sockets", i, "us") / 1000,
  }));
}

/** Whether this Python has Gloo. */
async function findGloo() {
  const state = { fail: () => {} };
  const check = "import torch.distributed as d; assert d.is_gloo_available()";
  return (await start([flags.python, "-c", check], state).ended) === 0;
}

const folder = mkdtempSync(join(tmpdir(), "chorale-tcp-compare-"));
try {
  const hasGloo = await findGloo();
  if (!hasGloo) console.log(`SKIPPED Gloo: ${flags.python} has no PyTorch with it (apt-get install python3-torch)`);
  const [cpu] = cpus();
  const load = loadavg()[0]?.toFixed(1);
  console.log(
    `${new Date().toISOString().slice(0, 16)}, ${cpu?.model}, ${availableParallelism()} cores, load ${load} before the run, Node ${process.version}`,
  );
  const sizes = flags.sizes.map(bytesOf);
  const rows = [];
  for (const op of flags.ops) {
    for (const ranks of flags.ranks) {
      const over = ranks > availableParallelism() ? ": more ranks than cores" : "";
      console.log(`\n${op}, ${ranks} ranks${over}`);
      console.log("     bytes     ours us     Gloo us   faster    ours cpu    Gloo cpu  busbw GB/s  of sockets");
      for (const row of await measure(op, ranks, sizes, folder, hasGloo)) {
        rows.push(row);
        const { bytes, us, cpuUs, glooUs, glooCpuUs, busbwGBps, socketGBps } = row;
        const share = socketGBps === undefined ? "-" : (busbwGBps / socketGBps).toFixed(2);
        const ratio = glooUs === undefined ? "-" : (glooUs / us).toFixed(2);
        const times = [us, glooUs].map((value) => value?.toFixed(1) ?? "-");
        const cpuTimes = [cpuUs, glooCpuUs].map((value) => value?.toFixed(0) ?? "-");
        const cells = [bytes, ...times, ratio, ...cpuTimes, busbwGBps.toFixed(3), share];
        const widths = [10, 12, 12, 9, 12, 12, 12, 12];
        console.log(cells.map((cell, i) => String(cell).padStart(widths[i])).join(""));
      }
    }
  }
  console.log(`\nload ${loadavg()[0]?.toFixed(1)} after it`);
  if (flags.json !== undefined) writeFileSync(flags.json, `${JSON.stringify(rows, null, 2)}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
