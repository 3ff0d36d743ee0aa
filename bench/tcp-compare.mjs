/**
 * The tcp backend against Gloo (PyTorch), ranks as processes of this host over loopback, in turn within one run, and
 * against what a bare socket carries here:
 *
 *   npm run build && node bench/tcp-compare.mjs [--ranks 2,4,8] [--ops all_reduce,...] [--sizes 8,1K,64K,1M,64M]
 *     [--rounds 3] [--python python3] [--json FILE]
 *
 * Prints microseconds per call (medians over the rounds; of the slowest rank) and how much faster ours is than Gloo. Without
 * PyTorch it says so and measures ours alone. The share of the socket's bandwidth is the bus bandwidth (as nccl-tests
 * define it) over what one process writes to another through one connection with the same system calls.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { busFactor } from "../dist/collectives/index.js";
import { launch } from "../dist/runtime/world/index.js";

const config = {
  options: {
    ranks: { type: "string", default: "2,4" },
    ops: { type: "string", default: "all_reduce" },
    sizes: { type: "string", default: "8,1K,16K,64K,1M,16M,64M" },
    rounds: { type: "string", default: "3" },
    python: { type: "string", default: "python3" },
    json: { type: "string" },
  },
};
const usage =
  "node bench/tcp-compare.mjs [--ranks 2,4] [--ops OP,...] [--sizes 8,1K,...] [--rounds N] [--python P] [--json FILE]";
const flags = flagsOf({ name: "tcp-compare.mjs", usage }, config, ({ values }) => ({
  ranks: integers(values.ranks, "--ranks"),
  ops: values.ops.split(","),
  sizes: values.sizes.split(","),
  rounds: integer(values.rounds, "--rounds", 1),
  python: values.python,
  json: values.json,
}));
const bytesOf = (text) => Number.parseInt(text, 10) * ({ K: 1024, M: 1024 ** 2 }[text.at(-1)] ?? 1);
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
/** About as long for every size. */
const iterationsOf = (bytes) => Math.max(3, Math.min(1000, Math.floor(64e6 / Math.max(bytes, 64_000))));

/** One process: what it prints. */
function run(words, env = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(words[0], words.slice(1), {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    let [out, err] = ["", ""];
    child.stdout.on("data", (chunk) => (out += chunk));
    child.stderr.on("data", (chunk) => (err += chunk));
    child.on("error", reject);
    child.on("close", (code) =>
      code === 0 ? resolve(out) : reject(new Error(`${words.join(" ")}: ${err.slice(-500)}`)),
    );
  });
}

/** Microseconds per call of every size, of ours. */
async function ours(op, ranks, sizes) {
  const all = await launch({
    ranks,
    backend: "tcp",
    data: { op, cases: sizes.map((bytes) => [bytes, iterationsOf(bytes)]) },
    run: async (world, { op, cases }) => {
      const methods = { all_reduce: "allReduce", broadcast: "broadcast", reduce: "reduce", all_gather: "allGather" };
      const method = { ...methods, reduce_scatter: "reduceScatter", all_to_all: "allToAll" }[op];
      const times = [];
      for (const [bytes, iterations] of cases) {
        const count = Math.max(world.size, Math.floor(bytes / 4 / world.size) * world.size);
        const input = world.tensor("f32", [op === "all_gather" ? count / world.size : count]);
        const output = world.tensor("f32", [op === "reduce_scatter" ? count / world.size : count]);
        const options = op === "all_reduce" || op === "broadcast" || op === "reduce" ? { op: "max" } : { output };
        if (op === "broadcast") delete options.op;
        for (let i = 0; i < Math.ceil(iterations / 10); i++) world.comm[method](input, options).wait();
        world.comm.barrier().wait();
        const began = performance.now();
        for (let i = 0; i < iterations; i++) world.comm[method](input, options).wait();
        times.push(((performance.now() - began) * 1000) / iterations);
      }
      return times;
    },
  });
  return sizes.map((_, i) => Math.max(...all.map((times) => times[i])));
}

/** The same of Gloo, which tells the mean of the ranks; NaN where it does not have the operation. */
async function gloo(op, ranks, sizes, folder) {
  const script = fileURLToPath(new URL("peers/gloo_peer.py", import.meta.url));
  const store = join(folder, `store-${Math.random().toString(36).slice(2)}`);
  const cases = sizes.map((bytes) => `${bytes}:${iterationsOf(bytes)}`);
  const texts = await Promise.all(
    Array.from({ length: ranks }, (_, rank) => run([flags.python, script, `${rank}`, `${ranks}`, store, op, ...cases])),
  );
  const rows = texts[0]
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  return sizes.map((_, i) => rows[i]?.timeUs ?? Number.NaN);
}

/** What one process sends another over one connection, GB/s. */
async function socketGBps() {
  const total = 2 ** 30;
  const server = createServer((socket) => {
    let left = total;
    socket.on("data", (chunk) => {
      left -= chunk.length;
      if (left <= 0) socket.end("x");
    });
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const text = `
    const { connect } = require("node:net");
    const s = connect(${server.address().port}, "127.0.0.1"), b = Buffer.alloc(1 << 20);
    let left = ${total / 2 ** 20}, t = 0;
    const go = () => { while (left-- > 0) if (!s.write(b)) return s.once("drain", go); };
    s.on("connect", () => { t = performance.now(); go(); }).on("data", () => { console.log(performance.now() - t); s.end(); });`;
  const ms = Number(await run([process.execPath, "-e", text]));
  server.close();
  return total / ms / 1e6;
}

const folder = mkdtempSync(join(tmpdir(), "chorale-tcp-compare-"));
try {
  let hasGloo = true;
  await run([flags.python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"]).catch(() => {
    hasGloo = false;
    console.log(`SKIPPED Gloo: ${flags.python} has no PyTorch with it (apt-get install python3-torch)`);
  });
  const socket = await socketGBps();
  console.log(`one connection between two processes: ${socket.toFixed(2)} GB/s\n`);
  const rows = [];
  const sizes = flags.sizes.map(bytesOf);
  for (const op of flags.ops) {
    for (const ranks of flags.ranks) {
      const [mine, theirs] = [[], []];
      for (let round = 0; round < flags.rounds; round++) {
        mine.push(await ours(op, ranks, sizes));
        if (hasGloo) theirs.push(await gloo(op, ranks, sizes, folder));
      }
      console.log(
        `${op}, ${ranks} ranks\n      bytes      ours us      Gloo us     faster   busbw GB/s   of the socket`,
      );
      for (const [i, bytes] of sizes.entries()) {
        const us = median(mine.map((row) => row[i]));
        const peer = hasGloo ? median(theirs.map((row) => row[i])) : undefined;
        const busbw = (bytes / us / 1000) * busFactor(op, ranks);
        rows.push({ op, ranks, bytes, us, glooUs: peer, busbwGBps: busbw, socketGBps: socket });
        const cells = [us.toFixed(1), peer?.toFixed(1) ?? "-", peer === undefined ? "-" : (peer / us).toFixed(2)];
        const share = (busbw / socket).toFixed(2);
        console.log([bytes, ...cells, busbw.toFixed(3), share].map((cell) => String(cell).padStart(11)).join("  "));
      }
    }
  }
  if (flags.json !== undefined) writeFileSync(flags.json, `${JSON.stringify(rows, null, 2)}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
