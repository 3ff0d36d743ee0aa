/**
 * Times chorale's compiler on the conformance programs, beside the MSCCL++ DSL where its times are given:
 *   npm run build && node bench/compile/compile.mjs --data DIR [--reference REFERENCE.json] [--write bench/results/compile.md]
 * DIR holds programs.jsonl.gz; REFERENCE.json comes from reference.py, run on the same machine at the same time. Both
 * sides build, lower and print each program in one process, several times; the best CPU time of each counts, so that
 * other work on the machine does not.
 * Then the 64-rank packet all-reduce (4,032 channels, 85 MB of JSON), each run in a process of its own.
 */
import { spawnSync } from "node:child_process";
import { createReadStream, readFileSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { createGunzip } from "node:zlib";
import { build } from "esbuild";
import { flagsOf } from "../../dist/apps/bench/script-flags.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const config = { options: { data: { type: "string" }, reference: { type: "string" }, write: { type: "string" } } };
const values = flagsOf(import.meta.url, config, (parsed) => parsed.values);
const bundle = async (contents, name) => {
  const outfile = join(root, ".cache", name);
  const stdin = { contents, resolveDir: root, loader: "ts" };
  await build({ stdin, bundle: true, platform: "node", format: "esm", target: "node20", outfile, logLevel: "error" });
  return outfile;
};

const lines = [];
if (values.data !== undefined) {
  const file = await bundle('export { replayToText } from "./test/mscclpp/replay-trace.ts";', "bench-compile.mjs");
  const { replayToText } = await import(pathToFileURL(file).href);
  const reference = new Map(values.reference === undefined ? [] : JSON.parse(readFileSync(values.reference, "utf8")));
  const programs = [];
  const stream = createReadStream(join(values.data, "programs.jsonl.gz")).pipe(createGunzip());
  for await (const line of createInterface({ input: stream })) programs.push(JSON.parse(line));
  /** CPU milliseconds of this process, all its threads: garbage collection included, other processes not. */
  const cpu = () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e3;
  };
  const batch = (trace, times) => {
    const begin = cpu();
    for (let i = 0; i < times; i++) replayToText(trace);
    return (cpu() - begin) / times;
  };
  for (const { trace } of programs) batch(trace, 1);
  const rows = programs.map(({ id, trace }) => {
    const times = Math.max(1, Math.min(50, Math.round(3 / Math.max(0.01, batch(trace, 3)))));
    const best = Math.min(...Array.from({ length: 5 }, () => batch(trace, times)));
    return { id, ms: best, theirs: reference.get(id), calls: trace.calls.length };
  });
  const mean = (list) => Math.exp(list.reduce((sum, x) => sum + Math.log(x), 0) / list.length);
  const pairs = rows.filter((row) => row.theirs !== undefined);
  const ratios = pairs.map((row) => row.theirs / row.ms).sort((a, b) => a - b);
  lines.push(
    `${rows.length} programs, geometric mean ${mean(rows.map((row) => row.ms)).toFixed(3)} ms a program (chorale).`,
  );
  if (pairs.length > 0) {
    const at = (q) => ratios[Math.floor(q * (ratios.length - 1))].toFixed(1);
    lines.push(
      `MSCCL++ DSL 0.9.0: geometric mean ${mean(pairs.map((row) => row.theirs)).toFixed(3)} ms. **chorale is ${mean(ratios).toFixed(1)} times as fast** (geometric mean; least ${at(0)}, median ${at(0.5)}, most ${at(1)}).`,
      "",
      "| program | calls | MSCCL++ ms | chorale ms | times |",
      "|---|---|---|---|---|",
      ...[...pairs]
        .sort((a, b) => b.theirs - a.theirs)
        .slice(0, 15)
        .map(
          (row) =>
            `| ${row.id} | ${row.calls} | ${row.theirs.toFixed(2)} | ${row.ms.toFixed(3)} | ${(row.theirs / row.ms).toFixed(1)} |`,
        ),
    );
  }
}

const big = await bundle(
  `import { stream } from "./src/apps/cli/stream.ts";
import { mscclppAllReducePackets } from "./src/authoring/algorithms/mscclpp-programs.ts";
import { writeMscclpp } from "./src/authoring/language/index.ts";
const begin = performance.now();
const program = mscclppAllReducePackets({ numRanks: 64 });
const built = performance.now();
let bytes = 0;
stream(process.argv[2], (sink) => { writeMscclpp(program, (piece) => { bytes += piece.length; sink(piece); }, { compat: "mscclpp" }); });
const end = performance.now();
const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
console.log(JSON.stringify({ build: built - begin, write: end - built, total: end - begin, cpu: (userCPUTime + systemCPUTime) / 1e3, rss: maxRSS / 1024, bytes }));`,
  "bench-compile-64.mjs",
);
const runs = Array.from({ length: 5 }, () =>
  JSON.parse(
    spawnSync(process.execPath, [big, join(tmpdir(), "chorale-allreduce-64.json")], { encoding: "utf8" }).stdout,
  ),
).sort((a, b) => a.total - b.total);
const [best] = runs;
lines.push(
  "",
  `64-rank packet all-reduce: build ${best.build.toFixed(0)} ms, compile and write ${best.write.toFixed(0)} ms, total ${best.total.toFixed(0)} ms (best of 5; CPU time of the whole process ${best.cpu.toFixed(0)} ms), peak resident memory ${Math.max(...runs.map((r) => r.rss)).toFixed(0)} MB, ${(best.bytes / 1e6).toFixed(1)} MB written.`,
  "",
  `Load average during the run: ${loadavg()
    .map((x) => x.toFixed(1))
    .join(", ")}. Node ${process.version}.`,
);
console.log(lines.join("\n"));
if (values.write !== undefined) {
  const head =
    "# Compile time\n\n`node bench/compile/compile.mjs --data DIR --reference REFERENCE.json --write bench/results/compile.md` (see its header; REFERENCE.json from `bench/compile/reference.py`).\n\n";
  writeFileSync(values.write, `${head}${lines.join("\n")}\n`);
}
