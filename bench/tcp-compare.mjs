/**
 * The tcp backend against Gloo (PyTorch), ranks as processes on pretended hosts that reach each other by sockets over loopback,
 * and against what bare sockets carry here:
 *
 *   npm run build && node bench/tcp-compare.mjs [--layouts 2x1,4x1,8x1] [--ops all_reduce,...|all] [--sizes 8,1K,64K,1M,64M]
 *     [--rounds 5] [--ms 150] [--against DIST] [--python python3] [--json FILE]
 *
 * A layout is HOSTSxRANKS: 2x4 are two launchers of four ranks each. Where each host has one rank, sockets alone are used
 * (`hierarchy: "off"`); elsewhere what a program gets that asks for nothing.
 *
 * The ranks of all contenders stay up for all operations of a layout and take turns, size by size and round by round; those that
 * wait use no processor time. All inputs are zeros that were written, f32; every rank runs one thread of its program, and nobody
 * is bound to a core. A size is that of the larger of a rank's buffers; below four bytes a rank, parts are of one element. About
 * `--ms` milliseconds are timed of each size, contender and round. Prints medians over the rounds of microseconds per call of the
 * slowest rank, how much faster ours is than Gloo, and the processor time of a call, of all ranks together. Without PyTorch it
 * says so and measures ours alone; "-" is what this PyTorch's Gloo does not have.
 *
 * "of sockets", where each host has one rank: bus bandwidth (as nccl-tests define it) over what each of as many processes sends
 * to the next one while it receives from the one before, over bare connections with the same system calls, in the same run: an
 * all-reduce that moves least sends and receives as much on every rank, so 1 is all that it may use. There the connections carry a
 * block of 1 MiB again and again, which stays in the cache; "of memory" is the same over connections that send and receive all of
 * memory as large as the tensor, and "socket cpu" the processor time of that, of all ranks together.
 *
 * `--against` names the dist/ folder of another build of ours, whose ranks take turns with all others: a second table has that build's
 * time over this one's and the same of processor time, as medians of the rounds and the intervals that hold them with 95 % by the
 * sign test. Waits are how often all ranks together gave up their core of themselves, in a call.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { busFactor } from "../dist/collectives/index.js";
import { oneOf } from "../dist/core/internal.js";
import { InvalidArgumentError } from "../dist/index.js";
import { freePort } from "../test/support/free-port.mjs";
import { OPERATIONS } from "./peers/operations.mjs";
import { serveRanks } from "./peers/served-ranks.mjs";
import { intervalOf, median } from "./sign-test.mjs";

const config = {
  options: {
    layouts: { type: "string", default: "2x1,4x1,8x1" },
    ops: { type: "string", default: "all_reduce" },
    sizes: { type: "string", default: "8,1K,16K,64K,1M,16M,64M" },
    rounds: { type: "string", default: "5" },
    ms: { type: "string", default: "150" },
    against: { type: "string" },
    python: { type: "string", default: "python3" },
    json: { type: "string" },
  },
};
const layoutOf = (text) => {
  const [, hosts, perHost] = /^([1-9]\d*)x([1-9]\d*)$/.exec(text) ?? [];
  if (hosts === undefined) throw new InvalidArgumentError("--layouts", text, "HOSTSxRANKS, such as 2x4");
  return { hosts: Number(hosts), perHost: Number(perHost), ranks: hosts * perHost };
};
const flags = flagsOf(import.meta.url, config, ({ values }) => ({
  layouts: values.layouts.split(",").map(layoutOf),
  ops: values.ops === "all" ? OPERATIONS : values.ops.split(",").map((op) => oneOf(op, "--ops", OPERATIONS)),
  sizes: values.sizes.split(","),
  rounds: integer(values.rounds, "--rounds", 1),
  ms: integer(values.ms, "--ms", 1),
  against: values.against,
  python: values.python,
  json: values.json,
}));
const bytesOf = (text) => Number.parseInt(text, 10) * ({ K: 1024, M: 1024 ** 2 }[text.at(-1)] ?? 1);
const rate = (bytes, us) => (us === undefined ? undefined : bytes / us / 1000);
const peer = (name) => fileURLToPath(new URL(`peers/${name}`, import.meta.url));
const BUILDS = new Map([["ours", new URL("../dist/", import.meta.url)]]);
if (flags.against !== undefined) BUILDS.set("before", pathToFileURL(`${resolve(flags.against)}/`));
process.env.CHORALE_SECRET ??= randomBytes(32).toString("hex");
/** What contenders do before the first figure of an operation, in calls of both sizes: V8 compiles what ran often, not what ran long. */
const WARM_UP = [
  { bytes: 1024, forMs: 600, calls: 4000 },
  { bytes: 256 * 1024, forMs: 900, calls: 1000 },
];
/** Where the machine is busy: it is as long for all contenders. */
const MOST_WARM_UP_MS = 2500;

/** A process that belongs to this run. Its end is an error unless it ends with 0. */
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
async function serve(world, { path, who }) {
  const { connect } = await import("node:net");
  const { createInterface } = await import("node:readline");
  const parent = connect(path);
  const say = (value) => parent.write(`${JSON.stringify(value)}\n`);
  say({ who, rank: world.rank });
  const { comm, rank, size } = world;
  const tensors = new Map();
  for await (const line of createInterface({ input: parent })) {
    const { op, bytes, warm, iterations } = JSON.parse(line);
    const count = Math.max(1, Math.floor(bytes / 4));
    const part = Math.max(1, Math.floor(count / size));
    // Kept from round to round: none pays for fresh pages, nor for those that were freed.
    if (!tensors.has(bytes)) {
      const length = Math.max(count, part * size);
      tensors.set(bytes, [world.tensor("f32", [length]), world.tensor("f32", [length])]);
      for (const { data } of tensors.get(bytes)) data.fill(0);
    }
    const [source, target] = tensors.get(bytes).map(({ data }) => data);
    const [whole, parts, one] = [source.subarray(0, count), source.subarray(0, part * size), source.subarray(0, part)];
    const [allParts, onePart] = [target.subarray(0, part * size), target.subarray(0, part)];
    const atRoot = rank === 0 ? { output: allParts } : {};
    const [next, previous] = [(rank + 1) % size, (rank + size - 1) % size];
    const call = {
      all_reduce: () => comm.allReduce(whole).wait(),
      broadcast: () => comm.broadcast(whole).wait(),
      reduce: () => comm.reduce(whole).wait(),
      all_gather: () => comm.allGather(one, { output: allParts }).wait(),
      reduce_scatter: () => comm.reduceScatter(parts, { output: onePart }).wait(),
      all_to_all: () => comm.allToAll(parts, { output: allParts }).wait(),
      gather: () => comm.gather(one, atRoot).wait(),
      scatter: () => (rank === 0 ? comm.scatter(parts, { output: onePart }) : comm.scatter(onePart)).wait(),
      send() {
        const sent = comm.send(whole, next);
        comm.recv(target.subarray(0, count), previous).wait();
        sent.wait();
      },
    }[op];
    for (let i = 0; i < warm; i++) call();
    comm.barrier().wait();
    const before = process.resourceUsage();
    const began = performance.now();
    for (let i = 0; i < iterations; i++) call();
    const us = ((performance.now() - began) * 1000) / iterations;
    const after = process.resourceUsage();
    const of = (key) => (after[key] - before[key]) / iterations;
    say({ us, cpuUs: of("userCPUTime") + of("systemCPUTime"), waits: of("voluntaryContextSwitches") });
  }
}

/** Starts ranks of a build of ours. @returns what ends with them */
async function launchOurs(who, dist, { hosts, perHost, ranks }, path) {
  const { launch } = await import(new URL("runtime/world/index.js", dist).href);
  const ours = { backend: "tcp", data: { path, who }, run: serve };
  if (perHost === 1) return [launch({ ...ours, ranks, backendOptions: { hierarchy: "off" } })];
  if (hosts === 1) return [launch({ ...ours, ranks })];
  const rendezvous = `127.0.0.1:${await freePort()}`;
  return Array.from({ length: hosts }, (_, rank) =>
    launch({ ...ours, ranks: perHost, nodes: { count: hosts, rank, rendezvous } }),
  );
}

/** Starts all contenders of a layout. */
async function startAll(layout, folder, hasGloo) {
  const { ranks } = layout;
  const path = join(folder, `ranks-${layout.hosts}x${layout.perHost}`);
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
      start([flags.python, peer("gloo_peer.py"), rank, ranks, `${path}-store`, "serve", path].map(String), state),
    ),
  ];
  const worlds = [];
  for (const [who, dist] of BUILDS) worlds.push(...(await launchOurs(who, dist, layout, path)));
  for (const world of worlds) world.catch(state.fail);
  const contenders = new Map();
  try {
    for (const who of ["sockets", ...BUILDS.keys(), ...(hasGloo ? ["gloo"] : [])]) {
      contenders.set(who, await Promise.race([server.meet(who, ranks), failed]));
    }
    const { ports } = contenders.get("sockets");
    await contenders.get("sockets").run({ ports });
  } catch (error) {
    for (const { kill } of children) kill();
    throw error;
  }
  return {
    async run(who, value) {
      try {
        return await Promise.race([contenders.get(who).run(value), failed]);
      } catch (error) {
        // A rank that is gone is soon known with its reason.
        await Promise.race([failed, setTimeout(3000)]);
        throw error;
      }
    },
    async end() {
      for (const one of contenders.values()) one.end();
      await Promise.race([Promise.all([...worlds, ...children.map(({ ended }) => ended)]), failed]);
      server.close();
    },
  };
}

/** Median microseconds and processor time of every size, of each contender. */
async function measure(op, { hosts, perHost, ranks }, sizes, contenders, hasGloo) {
  const whos = [...BUILDS.keys(), ...(hasGloo ? ["gloo"] : [])];
  const samples = new Map(["sockets", "memory", ...whos].map((who) => [who, sizes.map(() => [])]));
  const iterations = new Map();
  for (const who of whos) {
    for (const { bytes, forMs, calls } of WARM_UP) {
      const began = performance.now();
      for (let made = 0; made < calls || performance.now() - began < forMs; made += 20) {
        if (performance.now() - began > MOST_WARM_UP_MS) break;
        if ((await contenders.run(who, { op, bytes, warm: 0, iterations: 20 })).us < 0) break;
      }
    }
  }
  for (let round = 0; round < flags.rounds; round++) {
    for (const [i, bytes] of sizes.entries()) {
      const turned = whos.map((_, nth) => whos[(nth + round) % whos.length]);
      const order = i % 2 === 0 ? turned : turned.toReversed();
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
      if (bytes >= 2 ** 20 && perHost === 1) {
        const calls = Math.max(2, Math.round(2 ** 26 / bytes));
        for (const [who, isWhole] of [
          ["sockets", false],
          ["memory", true],
        ]) {
          samples.get(who)[i].push(await contenders.run("sockets", { bytes, isWhole, warm: 1, iterations: calls }));
        }
      }
    }
  }
  const of = (who, i, key) => {
    const values = (samples.get(who)?.[i] ?? []).map((one) => one[key]);
    return values.length === 0 ? undefined : median(values);
  };
  return sizes.map((bytes, i) => ({
    op,
    hosts,
    perHost,
    bytes,
    us: of("ours", i, "us"),
    cpuUs: of("ours", i, "cpuUs"),
    glooUs: of("gloo", i, "us"),
    glooCpuUs: of("gloo", i, "cpuUs"),
    busbwGBps: (bytes / of("ours", i, "us") / 1000) * busFactor(op, ranks),
    socketGBps: rate(bytes, of("sockets", i, "us")),
    memoryGBps: rate(bytes, of("memory", i, "us")),
    socketCpuUs: of("memory", i, "cpuUs"),
    before: flags.against === undefined ? undefined : beforeOver(samples.get("before")[i], samples.get("ours")[i]),
  }));
}

/** What another build took over what this one did, and how often both waited. */
function beforeOver(before, ours) {
  const over = (key) => {
    const ratios = before.map((one, round) => one[key] / ours[round][key]);
    const sorted = ratios.toSorted((a, b) => a - b);
    const at = intervalOf(sorted.length);
    return { median: median(sorted), from: sorted[at], to: sorted.at(-1 - at) };
  };
  const all = (samples, key) => median(samples.map((one) => one[key]));
  const [us, cpuUs] = ["us", "cpuUs"].map((key) => all(before, key));
  return { us, cpuUs, time: over("us"), cpu: over("cpuUs"), waits: [all(before, "waits"), all(ours, "waits")] };
}

/** Whether this Python has Gloo. */
async function findGloo() {
  const state = { fail: () => {} };
  const check = "import torch.distributed as d; assert d.is_gloo_available()";
  return (await start([flags.python, "-c", check], state).ended) === 0;
}

function print({ bytes, us, cpuUs, glooUs, glooCpuUs, socketCpuUs, busbwGBps, socketGBps, memoryGBps }) {
  const shares = [socketGBps, memoryGBps].map((most) => (most === undefined ? "-" : (busbwGBps / most).toFixed(2)));
  const ratio = glooUs === undefined ? "-" : (glooUs / us).toFixed(2);
  const times = [us, glooUs].map((value) => value?.toFixed(1) ?? "-");
  const cpuTimes = [cpuUs, glooCpuUs, socketCpuUs].map((value) => value?.toFixed(0) ?? "-");
  const cells = [bytes, ...times, ratio, ...cpuTimes, busbwGBps.toFixed(3), ...shares];
  const widths = [10, 12, 12, 9, 12, 12, 12, 12, 12, 12];
  console.log(cells.map((cell, i) => String(cell).padStart(widths[i])).join(""));
}

function printBefore({ bytes, us, cpuUs, before }) {
  const over = ({ median, from, to }) => `${median.toFixed(2)} (${from.toFixed(2)}-${to.toFixed(2)})`;
  const times = [before.us.toFixed(1), us.toFixed(1), over(before.time)];
  const cpuTimes = [before.cpuUs.toFixed(0), cpuUs.toFixed(0), over(before.cpu)];
  const cells = [bytes, ...times, ...cpuTimes, ...before.waits.map((value) => value.toFixed(1))];
  const widths = [10, 12, 12, 18, 12, 12, 18, 14, 11];
  console.log(cells.map((cell, i) => String(cell).padStart(widths[i])).join(""));
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
  for (const layout of flags.layouts) {
    const contenders = await startAll(layout, folder, hasGloo);
    const over = layout.ranks > availableParallelism() ? ": more ranks than cores" : "";
    const hosts = layout.hosts === 1 ? "1 host" : `${layout.hosts} hosts`;
    for (const op of flags.ops) {
      console.log(`\n${op}, ${hosts} of ${layout.perHost === 1 ? "1 rank" : `${layout.perHost} ranks`}${over}`);
      console.log(
        "     bytes     ours us     Gloo us   faster    ours cpu    Gloo cpu  socket cpu  busbw GB/s  of sockets   of memory",
      );
      const measured = await measure(op, layout, sizes, contenders, hasGloo);
      for (const row of measured) print(row);
      rows.push(...measured);
      if (flags.json !== undefined) writeFileSync(flags.json, `${JSON.stringify(rows, null, 2)}\n`);
      if (flags.against === undefined) continue;
      console.log(
        "     bytes   before us     ours us        before/ours  before cpu    ours cpu        before/ours  before waits  our waits",
      );
      for (const row of measured) printBefore(row);
    }
    await contenders.end();
  }
  console.log(`\nload ${loadavg()[0]?.toFixed(1)} after it`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
