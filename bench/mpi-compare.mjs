/**
 * The threads backend, or shm, against MPI libraries, or builds of it against each other, in one run and interleaved round by round:
 *
 *   node bench/mpi-compare.mjs --ranks 2,4,8,16 --peer "Open MPI=mpirun --bind-to core -n {n} ./peer-openmpi" \
 *     --peer "MPICH=mpiexec.mpich -bind-to core -n {n} ./peer-mpich" [options]
 *
 * Each --peer is NAME=COMMAND, which starts {n} ranks of bench/peers/openmpi-peer.c as that library's mpicc compiled it
 * (`mpicc.mpich -O2 -o peer-mpich bench/peers/openmpi-peer.c`). Nothing else is needed, so that it also runs on a host
 * without network, from a folder with dist/, bench/ and the two programs.
 *
 *   --backend shm,threads   ours, each as a contender; the first one is compared. Default: threads
 *   --lib NAME=DIR      another build of ours to measure beside this one (its dist/ folder); may be repeated
 *   --ops, --sizes      default: all, and 64 B to 16 MiB       --rounds 3, --repeats 7, --calls 0.5: see threads-micro.mjs
 *   --warm 20000        and --warm-ms 300: see threads-micro.mjs
 *   --prefix "WORDS"    put before our command, such as `taskset -c 0-15`
 *   --json FILE         all medians
 *
 * Prints microseconds per call (medians over the rounds), and how much faster ours is than the better of the peers, with
 * what is asked of it. Exits 1 when something is missed.
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { targetOf } from "./peers/mpi-targets.mjs";

const OPS = "all_reduce,broadcast,reduce,all_gather,reduce_scatter,all_to_all,gather,scatter";
const config = {
  options: {
    ranks: { type: "string", default: "2" },
    peer: { type: "string", multiple: true, default: [] },
    backend: { type: "string", default: "threads" },
    lib: { type: "string", multiple: true, default: [] },
    ops: { type: "string", default: OPS },
    sizes: { type: "string", default: "64,1K,4K,16K,64K,256K,1M,4M,16M" },
    rounds: { type: "string", default: "3" },
    repeats: { type: "string", default: "7" },
    calls: { type: "string", default: "0.5" },
    warm: { type: "string", default: "20000" },
    "warm-ms": { type: "string", default: "300" },
    prefix: { type: "string", default: "" },
    json: { type: "string" },
  },
};
const micro = fileURLToPath(new URL("threads-micro.mjs", import.meta.url));
const own = fileURLToPath(new URL("../dist/", import.meta.url));
const bytesOf = (text) => Number.parseInt(text, 10) * ({ K: 1024, M: 1024 ** 2 }[text.at(-1)] ?? 1);
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const named = (text, flag) => {
  const at = text.indexOf("=");
  if (at < 1) throw new Error(`${flag} takes NAME=VALUE, not ${text}`);
  return { name: text.slice(0, at), value: text.slice(at + 1) };
};

/** Runs a command, and gives what it printed. */
function output(words) {
  const run = spawnSync(words[0], words.slice(1), { encoding: "utf8", timeout: 300_000, maxBuffer: 2 ** 26 });
  if (run.status !== 0) throw new Error(`${words.join(" ")}: ${run.error ?? ""} ${run.stderr.slice(-1500)}`);
  return run.stdout;
}

const values = flagsOf(import.meta.url, config, ({ values: words }) => ({
  ...words,
  worlds: integers(words.ranks, "--ranks"),
  rounds: integer(words.rounds, "--rounds"),
}));
const { ops, sizes, repeats, calls, warm } = values;
const prefix = values.prefix.split(" ").filter((word) => word !== "");

const mpiCalls = (bytes) => Math.max(3, Math.round(Math.min(5000, (2 ** 26 / bytes) * 0.25) * Math.min(1, 2 * calls)));
const builds = [{ name: "chorale", value: own }, ...values.lib.map((text) => named(text, "--lib"))];
const backends = values.backend.split(",");
const ours = builds
  .flatMap((build) => backends.map((backend) => ({ ...build, backend })))
  .map(({ name, value, backend }) => ({
    name: backends.length === 1 ? name : `${name} ${backend}`,
    run: (n) => {
      const lib = pathToFileURL(`${resolve(value)}/`).href;
      const args = [
        "--backend",
        backend,
        "--ranks",
        String(n),
        "--ops",
        ops,
        "--sizes",
        sizes,
        "--repeats",
        repeats,
        "--calls",
        calls,
        "--warm",
        warm,
        "--warm-ms",
        values["warm-ms"],
      ];
      const lines = output([...prefix, process.execPath, micro, "--lib", lib, ...args])
        .trim()
        .split("\n");
      return lines.map((line) => line.split(" ")).map(([, op, , bytes, us]) => [op, Number(bytes), Number(us)]);
    },
  }));
const peers = values.peer
  .map((text) => named(text, "--peer"))
  .map(({ name, value }) => ({
    name,
    run: (n) => {
      const command = value.replaceAll("{n}", String(n)).split(" ");
      const work = sizes.split(",").map((text) => `${bytesOf(text)}:${mpiCalls(bytesOf(text))}:7`);
      const rows = output([...command, ops, ...work])
        .split("\n")
        .filter((line) => line.startsWith('{"op"'));
      return rows.map((line) => JSON.parse(line)).map(({ op, sizeBytes, timeUs }) => [op, sizeBytes, timeUs]);
    },
  }));
const contenders = [...ours, ...peers];
const us = (t) => (t === undefined ? "-" : t >= 100 ? t.toFixed(0) : t.toFixed(2));

let missed = 0;
const results = [];
for (const n of values.worlds) {
  const times = new Map();
  for (let round = 0; round < values.rounds; round++) {
    for (let i = 0; i < contenders.length; i++) {
      const { name, run } = contenders[(i + round) % contenders.length];
      const began = performance.now();
      const rows = run(n);
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      process.stderr.write(`${n} ranks, round ${round + 1} of ${values.rounds}: ${name} took ${seconds} s\n`);
      for (const [op, bytes, time] of rows) {
        const key = `${op} ${bytes} ${name}`;
        times.set(key, [...(times.get(key) ?? []), time]);
      }
    }
  }
  console.log(`\n${n} ranks, ${availableParallelism()} cores (us per call, medians of ${values.rounds} rounds)`);
  console.log(["op", "bytes", ...contenders.map(({ name }) => name), "ratio", "target"].join(" | "));
  for (const op of ops.split(",")) {
    for (const text of sizes.split(",")) {
      const bytes = bytesOf(text);
      const medians = contenders.map(({ name }) => {
        const list = times.get(`${op} ${bytes} ${name}`);
        return list === undefined ? undefined : median(list);
      });
      const best = Math.min(...medians.slice(ours.length).filter((t) => t !== undefined));
      const is = medians[0];
      const target = targetOf(op, n, bytes, availableParallelism());
      const isMet = !Number.isFinite(best) || target.isMet(is, best);
      if (!isMet) missed++;
      const ratio = Number.isFinite(best) ? `${(best / is).toFixed(2)}x` : "-";
      const verdict = Number.isFinite(best) ? `${isMet ? "met" : "MISSED"} ${target.text}` : "";
      console.log([op, bytes, ...medians.map(us), ratio, verdict].join(" | "));
      results.push({
        ranks: n,
        op,
        bytes,
        times: Object.fromEntries(contenders.map(({ name }, i) => [name, medians[i]])),
      });
    }
  }
}
console.log(`\n${missed} targets missed`);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(results, null, 1)}\n`);
process.exitCode = missed > 0 ? 1 : 0;
