/**
 * The plans that MSCCL++'s executor is given (prepare.mjs), run as our generated kernels: graph replay, medians, results checked.
 * One JSON object a line, as `beside executor` prints. On two GPUs, after `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/mscclpp/ours.mjs FOLDER [--instances 4] [--isolation thread] [--shapes 256,512.u8,1024]
 *     [--packet-shapes 256.words,512.lines] [--only NAME,...]
 *     [--sizes 16384,262144,4194304] [--rows FILE]
 * FOLDER has the manifest; `--instances` are those that prepare.mjs was told. Each plan runs by `comm.run`, as any program that was
 * not tuned (no shape in its row), and as kernels of the shapes that are named, those of packets where the plan sends packets. `--rows`: what rank 0
 * sees is appended there as soon as it is measured.
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { launch } from "chorale/world";
import { flagsOf, integer, integers } from "../../dist/apps/bench/script-flags.js";
import { oneOf } from "../../dist/core/internal.js";

const config = {
  allowPositionals: true,
  options: {
    instances: { type: "string", default: "4" },
    isolation: { type: "string", default: "thread" },
    shapes: { type: "string", default: "" },
    "packet-shapes": { type: "string", default: "" },
    only: { type: "string", default: "" },
    sizes: { type: "string", default: "16384,262144,4194304" },
    rows: { type: "string" },
  },
};
const { folder, instances, isolation, sizes, values } = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  values,
  folder: oneOf(positionals.length === 0 ? "none" : "one", "folders", ["one"]) && positionals[0],
  instances: integer(values.instances, "--instances"),
  isolation: oneOf(values.isolation, "--isolation", ["thread", "process"]),
  sizes: integers(values.sizes, "--sizes", 1024),
}));
const list = (text) => text.split(",").filter((word) => word !== "");
const only = list(values.only);
const plans = readFileSync(join(folder, "manifest"), "utf8")
  .trim()
  .split("\n")
  .map((line) => line.split(" "))
  .filter(([name]) => only.length === 0 || only.includes(name));

const run = async (world, { plans, instances, shapes, packetShapes, sizes, told }) => {
  const { appendFileSync } = await import("node:fs");
  const { upload, download } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { algorithm } = await import("chorale/algorithms");
  const { comm } = world;
  const at = deviceOf(world);
  const n = comm.size;
  // Values repeat after 61 elements, a period that no unit of the kernels divides; of few bits, so that sums are exact.
  const filled = (count, of) => {
    const all = new Float32Array(count);
    for (let i = 0; i < Math.min(61, count); i++) all[i] = of(i);
    for (let done = 61; done < count; done *= 2) all.copyWithin(done, 0, Math.min(done, count - done));
    return all;
  };
  const value = (i, rank, turn) => ((i * 7 + rank * 3 + turn) % 61) - 30;
  const wanted = (op, turn, ins, outs) => {
    if (op === "all_gather") {
      const all = new Float32Array(outs);
      for (let rank = 0; rank < n; rank++)
        all.set(
          filled(ins, (i) => value(i, rank, turn)),
          rank * ins,
        );
      return all;
    }
    const first = op === "reduce_scatter" ? world.rank * outs : 0;
    return filled(outs, (i) =>
      Array.from({ length: n }, (_, rank) => value(i + first, rank, turn)).reduce((a, b) => a + b),
    );
  };
  const methods = { all_reduce: "allReduce", all_gather: "allGather", reduce_scatter: "reduceScatter" };
  const rows = [];
  let warm = false;
  for (const bytes of sizes)
    for (const op of new Set(plans.map(([, op]) => op))) {
      const total = bytes / 4;
      const ins = op === "all_gather" ? total / n : total;
      const outs = op === "reduce_scatter" ? total / n : total;
      const [x, y] = [world.tensor("f32", [ins]), world.tensor("f32", [outs])];
      const poison = new Float32Array(outs).fill(Number.NaN);
      const given = [1, 2].map((turn) => filled(ins, (i) => value(i, world.rank, turn)));
      const right = [1, 2].map((turn) => Buffer.from(wanted(op, turn, ins, outs).buffer));
      const check = (turn, go) => {
        upload(x, given[turn], at);
        upload(y, poison, at);
        comm.barrier().wait();
        go();
        const { buffer, byteOffset, byteLength } = download(y, at);
        return right[turn].equals(Buffer.from(buffer, byteOffset, byteLength)) ? 0 : 1;
      };
      for (const [name] of plans.filter(([, of]) => of === op)) {
        const program = algorithm(name).make({ numRanks: n, instances });
        for (const shape of ["", ...(name.includes("packet") ? packetShapes : shapes)]) {
          const how = { output: y, algorithm: `${name}*${instances}@${shape}` };
          const call =
            shape === ""
              ? (group) => group.run(program, { input: x, output: y })
              : (group) => group[methods[op]](x, how);
          const row = { op, dtype: "f32", bytes, label: name, ...(shape === "" ? {} : { shape }) };
          try {
            let wrong = check(0, () => call(comm).wait());
            const calls = bytes <= 1 << 20 ? 100 : 20;
            const graph = comm.capture((group) => {
              for (let k = 0; k < calls; k++) call(group);
            });
            // An idle device is slow at first.
            for (let k = warm ? 1 : 100; k > 0; k--) comm.replay(graph).wait();
            warm = true;
            const times = [];
            for (let round = 0; round < 7; round++) {
              comm.barrier().wait();
              const begin = performance.now();
              comm.replay(graph);
              comm.replay(graph).wait();
              times.push(((performance.now() - begin) * 1000) / (2 * calls));
            }
            wrong += check(1, () => comm.replay(graph).wait());
            graph.close();
            rows.push({ ...row, us: times.sort((a, b) => a - b)[3], wrong });
          } catch (error) {
            rows.push({ ...row, refused: error.message.split("\n")[0] });
          }
          if (told !== undefined && world.rank === 0) appendFileSync(told, `${JSON.stringify(rows.at(-1))}\n`);
        }
      }
      world.free(x);
      world.free(y);
    }
  return rows;
};

const [rows, others] = await launch({
  ranks: 2,
  backend: "cuda",
  isolation,
  run,
  data: {
    plans,
    instances,
    shapes: list(values.shapes),
    packetShapes: list(values["packet-shapes"]),
    sizes,
    told: values.rows === undefined ? undefined : resolve(values.rows),
  },
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
