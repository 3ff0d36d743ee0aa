/**
 * All-reduce, residual and RMSNorm in one kernel, beside our all-reduce with a kernel behind it and NCCL's with the same behind it: by
 * replay of captured calls, in turn, results checked on fresh inputs. First calls of random shapes and types, by every plan that
 * is named. Rank 0 prints each row as soon as it is measured (on stderr with --json). On two GPUs or more, after `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/residual-rms-norm.mjs [thread|process] [--ranks 2] [--dtype bf16] [--rows 1,2,...]
 *     [--hidden 4096,8192] [--cases 40] [--widest 9000] [--plans LABEL,...] [--seed N] [--choices FILE.json]
 *     [--replays 500] [--try LABEL,...] [--json]
 * --cases: how many calls are checked first, half of them by the plans in turn, of rows up to --widest; --rows none: those alone. --try: labels to
 * time beside, in which *N stands for the instances that calls have by themselves. --choices: a table in the place of this machine's own.
 */
import { readFileSync } from "node:fs";
import { launch } from "chorale/world";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const PLANS = [
  "one-shot-packet-all-reduce*2@256.lines",
  "one-shot-packet-all-reduce*8@512.sheets",
  "one-shot-packet-all-reduce*8@256.words",
  "two-phase-all-reduce*16@256",
  "streaming-all-reduce*16@512.unit64K",
];
const config = {
  allowPositionals: true,
  options: {
    ranks: { type: "string", default: "2" },
    dtype: { type: "string", default: "bf16" },
    rows: { type: "string", default: "1,2,4,8,16,32,64,128,256" },
    hidden: { type: "string", default: "4096,8192" },
    cases: { type: "string", default: "40" },
    widest: { type: "string", default: "9000" },
    replays: { type: "string", default: "500" },
    plans: { type: "string", default: PLANS.join(",") },
    seed: { type: "string", default: String(Date.now() % 100_000) },
    try: { type: "string" },
    choices: { type: "string" },
    json: { type: "boolean", default: false },
  },
};
const { values, isolation, ranks, seed, cases, widest, replays } = flagsOf(
  import.meta.url,
  config,
  ({ values, positionals }) => ({
    values,
    ranks: integer(values.ranks, "--ranks", 1),
    seed: integer(values.seed, "--seed", 0),
    cases: integer(values.cases, "--cases", 0),
    widest: integer(values.widest, "--widest", 8),
    replays: integer(values.replays, "--replays", 4),
    isolation: oneOf(positionals[0] ?? "thread", "the isolation", ["thread", "process"]),
  }),
);
const numbersOf = (text) => (text === "none" ? [] : text.split(",").map(Number));

const run = async (
  world,
  { helper, table, dtype, rows, hidden, cases, widest, replays, plans, tried, seed, isolation, json },
) => {
  const { CheckedCall } = await import(helper);
  const { headOf, rowOf } = await import(table);
  const { writeSync } = await import("node:fs");
  const { comm } = world;
  // At once, also from a thread: what was measured is not lost when a time limit ends the run.
  const say = (line) => {
    if (world.rank === 0) writeSync(json ? 2 : 1, `${line}\n`);
  };
  const found = { checked: 0, wrong: 0, refused: [], rows: [] };
  const TYPES = ["f32", "f16", "bf16"];
  const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
  // What ranks have differently, beside what is wrong on this one.
  const faultsOf = async (one) => {
    const bits = one.results().map((array) => {
      let hash = 0;
      for (const byte of new Uint8Array(array.buffer, array.byteOffset, array.byteLength))
        hash = (Math.imul(hash, 31) + byte) | 0;
      return hash;
    });
    const all = await comm.gatherObjects([...bits, one.wrong()]);
    const differs = all.some(([a, b]) => a !== bits[0] || b !== bits[1]);
    return all.reduce((sum, [, , wrong]) => sum + wrong, differs ? 1 : 0);
  };
  let state = seed;
  const below = (n) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return (state >>> 8) % n;
  };
  for (let i = 0; i < cases; i++) {
    const shape = { dtype: TYPES[below(3)], weight: TYPES[below(3)], rows: 1 + below(20), hidden: 1 + below(widest) };
    if (below(2) === 0) shape.hidden = 8 * (1 + below(widest >> 3));
    const one = new CheckedCall(world, {
      ...shape,
      seed: seed + i,
      inPlace: below(3) === 0,
      shift: [0, 8, 1][below(3)],
    });
    one.fill();
    await comm.barrier();
    const algorithm = i % 2 === 0 ? plans[(i / 2) % plans.length] : undefined;
    const options = { ...(algorithm !== undefined && { algorithm }), fuse: below(8) !== 0 };
    try {
      await one.issue(comm, options);
      found.wrong += await faultsOf(one);
      found.checked++;
    } catch (error) {
      if (error.code !== "UNSUPPORTED" && error.code !== "INVALID_ARGUMENT") throw error;
      found.refused.push(`${algorithm}: ${error.message}`);
    }
    one.free();
  }
  say(
    `ranks as ${isolation === "process" ? "processes" : "threads"}, seed ${seed}: ${found.checked} calls checked, ${found.wrong} elements wrong`,
  );
  for (const why of found.refused) say(`refused: ${why}`);
  const CONTENDERS = [
    ["ours + kernel", () => ({ fuse: false })],
    ["nccl + kernel", () => ({ algorithm: "nccl", fuse: false })],
    ["one kernel", () => ({})],
    // By the kernel of the all-reduce, whose blocks meet before the norm.
    ["blocks meet", ([ours]) => ({ algorithm: ours.served })],
    ...tried.map((label) => [
      label,
      ([, , one]) => ({ algorithm: label.replace("*N", /[*]\d+/.exec(one.served)?.[0] ?? "") }),
    ]),
  ];
  if (rows.length > 0) say(headOf(CONTENDERS.map(([label]) => label)));
  for (const width of hidden)
    for (const count of rows) {
      const one = new CheckedCall(world, { dtype, rows: count, hidden: width, seed });
      const bytes = count * width * (dtype === "f32" ? 4 : 2);
      // Calls of a graph.
      const repeat = bytes <= 256 << 10 ? replays : replays >> 2;
      const contenders = [];
      for (const [label, optionsOf] of CONTENDERS) {
        const options = optionsOf(contenders);
        one.fill();
        await comm.barrier();
        const before = { ...comm.stats().choices };
        await one.issue(comm, options);
        const after = comm.stats().choices ?? {};
        const served = Object.keys(after).find((key) => after[key] !== before[key]) ?? "nccl";
        const graph = comm.capture((group) => {
          for (let k = 0; k < repeat; k++) one.issue(group, options);
        });
        // What replays give is checked, not what the call did.
        one.fill();
        await comm.barrier();
        await comm.replay(graph);
        const wrong = await faultsOf(one);
        contenders.push({ label, served: served.replace("all_reduce ", ""), wrong, graph, times: [] });
      }
      // An idle device is slow at first.
      if (found.rows.length === 0) for (let k = 0; k < 20; k++) comm.replay(contenders[2].graph).wait();
      for (let turn = 0; turn < 7; turn++)
        for (const { graph, times } of contenders) {
          await comm.barrier();
          const begin = performance.now();
          comm.replay(graph);
          comm.replay(graph).wait();
          times.push(((performance.now() - begin) * 1000) / (2 * repeat));
        }
      const measured = contenders.map(({ label, served, wrong, graph, times }) => {
        graph.close();
        return { dtype, rows: count, hidden: width, bytes, label, served, wrong, us: median(times) };
      });
      say(rowOf(measured));
      found.rows.push(...measured);
      one.free();
    }
  return found;
};

const choices = values.choices === undefined ? {} : { choices: JSON.parse(readFileSync(values.choices, "utf8")) };
const fileOf = (file) => new URL(`residual-rms-norm/${file}`, import.meta.url).href;
const data = {
  helper: fileOf("checked-call.mjs"),
  table: fileOf("row-table.mjs"),
  dtype: values.dtype,
  rows: numbersOf(values.rows),
  hidden: numbersOf(values.hidden),
  cases,
  widest,
  replays,
  plans: values.plans.split(","),
  tried: values.try === undefined ? [] : values.try.split(","),
  seed,
  isolation,
  json: values.json,
};
const [found] = await launch({
  ranks,
  backend: "cuda",
  backendOptions: choices,
  isolation,
  run,
  data,
  timeoutMs: 400_000,
});
if (values.json) console.log(JSON.stringify({ ...found, seed, isolation, ranks }));
if (found.wrong > 0 || found.rows.some(({ wrong }) => wrong > 0)) process.exitCode = 1;
