/**
 * The plans that MSCCL++'s executor is given (prepare.mjs), run as our generated kernels: graph replay, medians, results checked.
 * One JSON object a line, as `beside executor` prints. On two GPUs, after `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/mscclpp/ours.mjs FOLDER [--instances 4] [--isolation thread]
 * FOLDER has the manifest; `--instances` are those that prepare.mjs was told.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "chorale/world";
import { flagsOf, integer } from "../../dist/apps/bench/script-flags.js";
import { oneOf } from "../../dist/core/internal.js";

const config = {
  allowPositionals: true,
  options: { instances: { type: "string", default: "4" }, isolation: { type: "string", default: "thread" } },
};
const { folder, instances, isolation } = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  folder: oneOf(positionals.length === 0 ? "none" : "one", "folders", ["one"]) && positionals[0],
  instances: integer(values.instances, "--instances"),
  isolation: oneOf(values.isolation, "--isolation", ["thread", "process"]),
}));
const plans = readFileSync(join(folder, "manifest"), "utf8")
  .trim()
  .split("\n")
  .map((line) => line.split(" "));

const run = async (world, { plans, instances }) => {
  const { upload, download } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { algorithm } = await import("chorale/algorithms");
  const { comm } = world;
  const at = deviceOf(world);
  const n = comm.size;
  const value = (i, rank, turn) => ((i * 7 + rank * 3 + turn) % 61) - 30;
  const rows = [];
  for (const [name, op] of plans) {
    const program = algorithm(name).make({ numRanks: n, instances });
    for (const bytes of [16 << 10, 256 << 10, 4 << 20]) {
      const total = bytes / 4;
      const ins = op === "all_gather" ? total / n : total;
      const outs = op === "reduce_scatter" ? total / n : total;
      const [x, y] = [world.tensor("f32", [ins]), world.tensor("f32", [outs])];
      try {
        let wrong = 0;
        const check = (turn, go) => {
          upload(
            x,
            Float32Array.from({ length: ins }, (_, i) => value(i, world.rank, turn)),
            at,
          );
          upload(y, new Float32Array(outs).fill(Number.NaN), at);
          comm.barrier().wait();
          go();
          const got = download(y, at);
          for (let i = 0; i < outs; i++) {
            let want = 0;
            if (op === "all_gather") want = value(i % ins, Math.floor(i / ins), turn);
            else
              for (let rank = 0; rank < n; rank++)
                want += value(op === "all_reduce" ? i : i + world.rank * outs, rank, turn);
            if (got[i] !== want) wrong++;
          }
        };
        check(1, () => comm.run(program, { input: x, output: y }).wait());
        const calls = bytes <= 1 << 20 ? 100 : 20;
        const graph = comm.capture((group) => {
          for (let k = 0; k < calls; k++) group.run(program, { input: x, output: y });
        });
        comm.replay(graph).wait();
        const times = [];
        for (let round = 0; round < 7; round++) {
          comm.barrier().wait();
          const begin = performance.now();
          comm.replay(graph);
          comm.replay(graph).wait();
          times.push(((performance.now() - begin) * 1000) / (2 * calls));
        }
        check(2, () => comm.replay(graph).wait());
        graph.close();
        rows.push({ op, dtype: "f32", bytes, label: name, us: times.sort((a, b) => a - b)[3], wrong });
      } catch (error) {
        rows.push({ op, dtype: "f32", bytes, label: name, refused: error.message.split("\n")[0] });
      }
      world.free(x);
      world.free(y);
    }
  }
  return rows;
};

const [rows, others] = await launch({
  ranks: 2,
  backend: "cuda",
  isolation,
  run,
  data: { plans, instances },
  timeoutMs: 200_000,
});
for (const [i, row] of rows.entries()) {
  const other = others[i];
  console.log(
    JSON.stringify(
      row.us === undefined
        ? row
        : { ...row, us: Math.max(row.us, other.us ?? 0), wrong: row.wrong + (other.wrong ?? 0) },
    ),
  );
}
if (rows.some(({ wrong }) => wrong > 0) || others.some(({ wrong }) => wrong > 0)) process.exitCode = 1;
