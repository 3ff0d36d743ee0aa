/**
 * Millions of small collectives on the GPUs of one host, each on other data, so that a result of an earlier call is noticed:
 *   1. in graphs of thousands of calls, replayed back to back; 2. call by call; 3. two groups of the same ranks at once, whose
 *   calls every rank issues in an order of its own. Whole outputs are poisoned before and compared after every round.
 *   node test/campaigns/device-soak.mjs [--backend cuda] [--isolation thread|process] [--ranks 2] [--graph 10000000] [--direct 300000]
 *     [--racing 200000] [--rooted] [--seconds 120] [--choices FILE.json] [--json]   (after npm run build)
 * With --rooted: broadcast, reduce, gather and scatter, of every root in turn, in the place of the others.
 * Exits 1 for a wrong result or a call that fails. Three fifths of `--seconds` are for the graphs, a fifth for each of the others;
 * a phase ends early when they are over. With `--json` a line tells of each round.
 */
import { readFileSync } from "node:fs";
import { launch, parseBackend, parseIsolation } from "chorale/world";
import { flagsOf, integer } from "../../dist/apps/bench/script-flags.js";

const config = {
  options: {
    backend: { type: "string", default: "cuda" },
    isolation: { type: "string", default: "thread" },
    ranks: { type: "string", default: "2" },
    graph: { type: "string", default: "10000000" },
    direct: { type: "string", default: "300000" },
    racing: { type: "string", default: "200000" },
    rooted: { type: "boolean", default: false },
    seconds: { type: "string", default: "120" },
    choices: { type: "string" },
    json: { type: "boolean", default: false },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values }) => ({
  backend: parseBackend(values.backend, "--backend"),
  isolation: parseIsolation(values.isolation, "--isolation"),
  ranks: integer(values.ranks, "--ranks", 2),
  graph: integer(values.graph, "--graph", 0),
  direct: integer(values.direct, "--direct", 0),
  racing: integer(values.racing, "--racing", 0),
  rooted: values.rooted,
  seconds: integer(values.seconds, "--seconds"),
  choices: values.choices,
  json: values.json,
}));

const run = async (world, { graph: wanted, direct, racing, rooted, seconds, json }) => {
  const { upload, download } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { writeSync } = await import("node:fs");
  const { comm } = world;
  const at = deviceOf(world);
  const n = comm.size;
  const began = performance.now();
  /** Calls of a round, each on its own piece of the buffers, of a length of its own. */
  const CALLS = 5000;
  const LENGTHS = [1, 3, 8, 33, 64, 100, 256];
  const makeSet = (salt) => {
    const pieces = [];
    let size = 0;
    for (let k = 0; k < CALLS; k++) {
      const part = LENGTHS[(k * 5 + salt) % LENGTHS.length];
      const op = (
        rooted ? ["broadcast", "reduce", "gather", "scatter"] : ["allReduce", "allReduce", "allGather", "reduceScatter"]
      )[(k + (k >> 3)) % 4];
      const root = rooted ? (k >> 2) % n : undefined;
      const isRoot = root === world.rank;
      const ins = op === "reduceScatter" ? n * part : op === "scatter" ? (isRoot ? n * part : 0) : part;
      const outs =
        op === "allGather"
          ? n * part
          : op === "gather"
            ? isRoot
              ? n * part
              : 0
            : op === "reduce" && !isRoot
              ? 0
              : part;
      // Pieces begin at units of 16 bytes; what lies between is never written.
      pieces.push({ op, part, from: size, ins, outs, root });
      size += Math.ceil((n * part) / 4) * 4;
    }
    const [x, y] = [world.tensor("u32", [size]), world.tensor("u32", [size])];
    const value = (i, rank, turn) =>
      (Math.imul(i + 1, 2654435761) + Math.imul(rank + 7, 40503) + Math.imul(turn, 97)) >>> 0;
    const poison = new Uint32Array(size).fill(0xdeadbeef);
    const slices = pieces.map(({ from, ins, outs }) => [
      ins === 0 ? undefined : x.slice(from, from + ins),
      outs === 0 ? undefined : y.slice(from, from + outs),
    ]);
    const begin = (turn) => {
      upload(
        x,
        Uint32Array.from({ length: size }, (_, i) => value(i, world.rank, turn)),
        at,
      );
      upload(y, poison, at);
    };
    const wanted = (turn) => {
      const want = poison.slice();
      for (const { op, part, from, outs, root } of pieces)
        for (let i = 0; i < outs; i++) {
          let sum = 0;
          if (op === "broadcast") sum = value(from + i, root, turn);
          else if (op === "scatter") sum = value(from + world.rank * part + i, root, turn);
          else if (op === "allGather" || op === "gather") sum = value(from + (i % part), Math.floor(i / part), turn);
          else
            for (let r = 0; r < n; r++)
              sum += value(from + i + (op === "reduceScatter" ? world.rank * part : 0), r, turn);
          want[from + i] = sum >>> 0;
        }
      return want;
    };
    const wrong = (want) => {
      const got = download(y, at);
      let count = 0;
      for (let i = 0; i < size; i++) if (got[i] !== want[i]) count++;
      return count;
    };
    const issue = (group, k) => {
      const [input, output] = slices[k];
      const { op, root } = pieces[k];
      const options = { ...(input !== undefined && output !== undefined && { output }), ...(rooted && { root }) };
      return group[op](input ?? output, options);
    };
    return { x, y, begin, wanted, wrong, issue, poison };
  };
  const told = {};
  /** At once, also where the next call never ends. */
  const tell = (phase, calls, wrong) => {
    if (json && world.rank === 0) writeSync(1, `${JSON.stringify({ progress: phase, calls, wrong })}\n`);
  };
  const enough = async (share) => {
    const over = performance.now() > began + 1000 * seconds * share;
    const { data } = await comm.allReduce(Int32Array.of(over ? 1 : 0), { op: "max" });
    return data[0] === 1;
  };

  if (wanted > 0) {
    const set = makeSet(1);
    set.begin(0);
    for (let k = 0; k < CALLS; k++) set.issue(comm, k).wait();
    let wrong = set.wrong(set.wanted(0));
    const graph = comm.capture((group) => {
      for (let k = 0; k < CALLS; k++) set.issue(group, k);
    });
    let calls = 0;
    let us = 0;
    for (let turn = 1; calls < wanted; turn++) {
      if (turn > 1 && (await enough(0.6))) break;
      // Back to back: the same data again and again, then other data. Poison in between needs no host.
      set.begin(turn);
      await comm.barrier();
      const start = performance.now();
      const times = 50;
      for (let k = 1; k < times; k++) comm.replay(graph);
      comm.replay(graph).wait();
      us += (performance.now() - start) * 1000;
      calls += times * CALLS;
      wrong += set.wrong(set.wanted(turn));
      tell("graph", calls, wrong);
    }
    graph.close();
    told.graph = { calls, wrong, usACall: us / calls };
  }

  if (direct > 0) {
    const set = makeSet(2);
    let [calls, wrong, us] = [0, 0, 0];
    for (let turn = 0; calls < direct; turn++) {
      if (turn > 0 && (await enough(0.8))) break;
      set.begin(turn);
      await comm.barrier();
      const start = performance.now();
      let last;
      for (let k = 0; k < CALLS; k++) last = set.issue(comm, k);
      last.wait();
      us += (performance.now() - start) * 1000;
      calls += CALLS;
      wrong += set.wrong(set.wanted(turn));
      tell("direct", calls, wrong);
    }
    told.direct = { calls, wrong, usACall: us / calls };
  }

  if (racing > 0) {
    const groups = [await comm.split(0, comm.rank), await comm.split(0, comm.rank)];
    const sets = [makeSet(3), makeSet(4)];
    let [calls, wrong] = [0, 0];
    for (let turn = 0; calls < racing; turn++) {
      if (turn > 0 && (await enough(1))) break;
      for (const set of sets) set.begin(turn);
      await comm.barrier();
      const at = [0, 0];
      const last = [];
      let state = (turn * 7919 + world.rank * 104729 + 1) >>> 0;
      // Every rank takes turns of its own between the groups; within a group the order is the same.
      while (at[0] < CALLS || at[1] < CALLS) {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        const which = at[0] === CALLS ? 1 : at[1] === CALLS ? 0 : state >>> 31;
        const many = Math.min(1 + ((state >>> 20) & 31), CALLS - at[which]);
        for (let k = 0; k < many; k++) last[which] = sets[which].issue(groups[which], at[which]++);
        // What a group's queue holds back goes on. Not for a call's end: a peer may wait for one of the other group just then, and
        // each would be for ever at a call that the other has not made.
        if ((state & 0xf00) === 0) await new Promise(setImmediate);
      }
      for (const one of last) await one;
      calls += 2 * CALLS;
      for (const set of sets) wrong += set.wrong(set.wanted(turn));
      tell("racing", calls, wrong);
    }
    told.racing = { calls, wrong, choices: groups.map((group) => group.stats().choices) };
    for (const group of groups) await group.close();
  }
  return { ...told, choices: comm.stats().choices };
};

let ranks;
try {
  ranks = await launch({
    ranks: flags.ranks,
    backend: flags.backend,
    isolation: flags.isolation,
    ...(flags.choices && { backendOptions: { choices: JSON.parse(readFileSync(flags.choices, "utf8")) } }),
    run,
    data: flags,
    timeoutMs: (flags.seconds + 120) * 1000,
  });
} catch (error) {
  console.log(JSON.stringify({ isolation: flags.isolation, error: error.message }));
  process.exit(1);
}
const [first] = ranks;
const phases = ["graph", "direct", "racing"].filter((phase) => first[phase] !== undefined);
const wrong = ranks.flatMap((rank) => phases.map((phase) => rank[phase].wrong)).reduce((a, b) => a + b, 0);
if (flags.json) console.log(JSON.stringify({ isolation: flags.isolation, wrong, ...first }));
else {
  for (const phase of phases) {
    const { calls, usACall } = first[phase];
    console.log(`${phase}: ${calls} calls${usACall === undefined ? "" : `, ${usACall.toFixed(2)} us each`}`);
  }
  console.log(`wrong elements: ${wrong}`);
}
if (wrong > 0) process.exitCode = 1;
