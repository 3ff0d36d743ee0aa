/**
 * Calls of the cuda backend that other algorithms serve when they are captured, on the GPUs of one host:
 *   1. Each operation and size as a direct call and from a graph, out of place, in place and at odd places, on fresh inputs and poisoned
 *      outputs, all elements compared.
 *   2. One rank captures a call which the others make directly, before them and after, of operations that another algorithm served in
 *      graphs: all ranks must hear of it at once, and the world must go on.
 *   node test/campaigns/captured-calls.mjs [--isolation process|thread] [--ranks 2] [--ops all_reduce,all_gather,reduce_scatter]
 *     [--sizes BYTES,...] [--choices FILE.json] [--seconds 60] [--json]   (after npm run build)
 * Exits 1 for a wrong result, a call that fails, and a mismatch that is told late, otherwise or not to all. Sizes are left out when
 * `--seconds` are over.
 */
import { readFileSync } from "node:fs";
import { launch, parseIsolation } from "chorale/world";
import { flagsOf, integer } from "../../dist/apps/bench/script-flags.js";

const config = {
  options: {
    isolation: { type: "string", default: "process" },
    ranks: { type: "string", default: "2" },
    ops: { type: "string", default: "all_reduce,all_gather,reduce_scatter" },
    sizes: { type: "string", default: "9437184,16777216,31457296,67108864" },
    choices: { type: "string" },
    seconds: { type: "string", default: "60" },
    json: { type: "boolean", default: false },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values }) => ({
  isolation: parseIsolation(values.isolation, "--isolation"),
  ranks: integer(values.ranks, "--ranks", 2),
  ops: values.ops.split(","),
  sizes: values.sizes.split(",").map((size) => integer(size, "--sizes", 1)),
  choices: values.choices,
  seconds: integer(values.seconds, "--seconds", 1),
  json: values.json,
}));

const run = async (world, { ops, sizes, seconds }) => {
  const { comm, rank } = world;
  const n = comm.size;
  const began = performance.now();
  const K = 2654435761;
  /** Element `i` of a rank's input in a turn: a line, so that sums are one too. */
  const line = (count, from, start) => {
    const made = new Uint32Array(count);
    for (let i = 0, value = start >>> 0; i < count; i++, value = (value + from) >>> 0) made[i] = value;
    return made;
  };
  const startOf = (one, turn) => Math.imul(one + 7, 40503) + Math.imul(turn + 1, 977);
  const sumOfStarts = (turn) => Array.from({ length: n }, (_, one) => startOf(one, turn)).reduce((a, b) => a + b, 0);
  const wanted = (op, part, turn) => {
    if (op === "all_gather") {
      const all = new Uint32Array(n * part);
      for (let one = 0; one < n; one++) all.set(line(part, K, startOf(one, turn)), one * part);
      return all;
    }
    const skipped = op === "reduce_scatter" ? Math.imul(Math.imul(n, K), rank * part) : 0;
    return line(part, Math.imul(n, K), sumOfStarts(turn) + skipped);
  };
  const rows = [];
  const METHOD = { all_reduce: "allReduce", all_gather: "allGather", reduce_scatter: "reduceScatter" };
  let turn = 0;
  for (const bytes of sizes)
    for (const op of ops)
      for (const how of ["out of place", "in place", "at odd places"]) {
        const over = performance.now() > began + 1000 * seconds;
        const { data } = await comm.allReduce(Int32Array.of(over ? 1 : 0), { op: "max" });
        if (data[0] === 1) continue;
        const skip = how === "at odd places" ? 3 : 0;
        const part = Math.floor(bytes / 4 / (op === "all_reduce" ? 1 : n)) - (skip > 0 ? 1 : 0);
        const ins = op === "reduce_scatter" ? n * part : part;
        const outs = op === "all_gather" ? n * part : part;
        const whole = [world.tensor("u32", [ins + skip]), world.tensor("u32", [outs + skip])];
        const [apart, target] = whole.map((tensor) => tensor.slice(skip));
        const [input, output] =
          how !== "in place"
            ? [apart, target]
            : op === "all_reduce"
              ? [apart, apart]
              : op === "all_gather"
                ? [target.slice(rank * part, (rank + 1) * part), target]
                : [apart, apart.slice(rank * part, (rank + 1) * part)];
        const call = (group) => group[METHOD[op]](input, { output });
        const fill = () => {
          turn++;
          world.upload(target, new Uint32Array(outs).fill(0xdeadbeef));
          world.upload(input, line(ins, K, startOf(rank, turn)));
        };
        const check = () => {
          const [got, want] = [world.download(output), wanted(op, part, turn)];
          let wrong = 0;
          for (let i = 0; i < outs; i++) if (got[i] !== want[i]) wrong++;
          return wrong;
        };
        const served = (before) => {
          const after = comm.stats().choices ?? {};
          const found = Object.keys(after).filter((key) => key.startsWith(`${op} `) && after[key] !== before[key]);
          return found.map((key) => key.slice(op.length + 1)).join(", ");
        };
        let before = { ...comm.stats().choices };
        fill();
        await call(comm);
        let wrong = check();
        const direct = served(before);
        before = { ...comm.stats().choices };
        const graph = comm.capture((group) => void call(group));
        const captured = served(before);
        for (let replays = 0; replays < 2; replays++) {
          fill();
          await comm.replay(graph);
          wrong += check();
        }
        fill();
        await call(comm);
        wrong += check();
        graph.close();
        for (const tensor of whole) world.free(tensor);
        rows.push({ op, bytes, how, direct, captured, wrong });
      }
  return rows;
};

/** One rank captures what the others call. Each time in a world of its own, as a device has room for the kernels of one group alone. */
const mismatch = async (world, { op, bytes, when }) => {
  const { rank } = world;
  const METHOD = { all_reduce: "allReduce", all_gather: "allGather", reduce_scatter: "reduceScatter" };
  const group = await world.comm.split(0);
  const n = group.size;
  const part = Math.floor(bytes / 4 / (op === "all_reduce" ? 1 : n));
  const [ins, outs] = [op === "reduce_scatter" ? n * part : part, op === "all_gather" ? n * part : part];
  const [x, y] = [world.tensor("u32", [ins]), world.tensor("u32", [outs])];
  await group[METHOD[op]](x, { output: y });
  await group.barrier();
  if ((rank === 0) === (when === "after")) await new Promise((resolve) => setTimeout(resolve, 200));
  const start = performance.now();
  let said = "nothing";
  try {
    if (rank === 0) group.capture((one) => void one[METHOD[op]](x, { output: y })).close();
    else await group[METHOD[op]](x, { output: y });
  } catch (error) {
    said = `${error.code}: ${error.message}`;
  }
  const seconds = (performance.now() - start) / 1000;
  await group.close().catch(() => {});
  const { data } = await world.comm.allReduce(Int32Array.of(1));
  return { said, seconds, goesOn: data[0] === n };
};

const inWorld = (run, data) =>
  launch({
    ranks: flags.ranks,
    backend: "cuda",
    isolation: flags.isolation,
    ...(flags.choices && { backendOptions: { choices: JSON.parse(readFileSync(flags.choices, "utf8")) } }),
    run,
    data,
    timeoutMs: (flags.seconds + 60) * 1000,
  });
const rows = [];
const failures = [];
try {
  const ranks = await inWorld(run, flags);
  rows.push(...ranks[0].map((row, i) => ({ ...row, wrong: ranks.reduce((sum, one) => sum + one[i].wrong, 0) })));
  for (const op of flags.ops)
    for (const when of ["before", "after"]) {
      const bytes = rows.find((row) => row.op === op && row.direct !== row.captured)?.bytes;
      if (bytes === undefined) continue;
      const told = await inWorld(mismatch, { op, bytes, when });
      rows.push({ op, bytes, how: `rank 0 captures ${when} the others call`, ...told[0], wrong: 0 });
      for (const [rank, { said, seconds, goesOn }] of told.entries()) {
        const isRight = /^MISMATCH: .*all of them capture a call, or none does\n {2}rank 0: .* in a capture\n/.test(
          said,
        );
        if (isRight && seconds < 5 && goesOn) continue;
        failures.push(
          `rank ${rank}: ${op}, ${when}: ${said} after ${seconds.toFixed(1)} s; the world ${goesOn ? "goes on" : "ends"}`,
        );
      }
    }
} catch (error) {
  failures.push(error.message);
}
const wrong = rows.reduce((sum, row) => sum + row.wrong, 0);
if (flags.json) console.log(JSON.stringify({ isolation: flags.isolation, wrong, failures, rows }));
else {
  for (const { op, bytes, how, direct, captured, said, seconds, wrong } of rows) {
    const what =
      said === undefined
        ? `${direct || "nccl"}; captured ${captured || "nccl"}; wrong ${wrong}`
        : `${said.split("\n")[0]} (${seconds.toFixed(2)} s)`;
    console.log(`${op} ${bytes} ${how}: ${what}`);
  }
  console.log(`wrong elements: ${wrong}; not told as they should be: ${failures.length}`);
  for (const text of failures) console.log(text);
}
if (wrong > 0 || failures.length > 0) process.exitCode = 1;
