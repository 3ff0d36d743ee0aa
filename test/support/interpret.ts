/**
 * Runs a plan on numbers, one operation at a time, in a random interleaving of all strands and port proxies. A plain
 * oracle for tests: memory is sequentially consistent and operations are atomic, so it finds wrong results, missing
 * synchronisation (by luck, hence many runs) and deadlocks, and knows nothing of the compiler.
 */
import {
  collectiveChunks,
  type ExecutionPlan,
  type Op,
  placeOf,
  planPostcondition,
  type Range,
  type SimpleOp,
} from "chorale/plan";
import { Random } from "../oracle/random.ts";

interface Cell {
  value: number;
  packet: boolean;
}

/** What lies in the inputs, and how two numbers are combined. */
interface Numbers {
  readonly input: (rank: number, chunk: number) => number;
  readonly combine: Readonly<Record<string, (a: number, b: number) => number>>;
}
const WHOLE: Numbers["combine"] = {
  sum: (a, b) => a + b,
  min: (a, b) => Math.min(a, b),
  max: (a, b) => Math.max(a, b),
};

/** Runs a plan once. @returns undefined when every output is right, else what is wrong, in words */
export function interpret(plan: ExecutionPlan, seed: number): string | undefined {
  const input = (rank: number, chunk: number) => (((rank * 7919 + chunk * 104729 + seed * 31) % 99991) + 1) * 3;
  const read = run(plan, seed, { input, combine: WHOLE });
  if (typeof read === "string") return read;
  const op = WHOLE[plan.collective.reduceOp ?? "sum"] ?? ((a: number, b: number) => a + b);
  for (const [rank, chunks] of (planPostcondition(plan) ?? []).entries()) {
    for (const [index, value] of chunks.entries()) {
      if (value === null) continue;
      const refs = value.kind === "copy" ? [value.from] : value.from;
      const expected = refs.map((ref) => input(ref.rank, ref.chunk)).reduce(op);
      const actual = read(rank, index);
      if (actual !== expected) return `rank ${rank} output ${index} is ${actual}, expected ${expected}`;
    }
  }
  return undefined;
}

/** Runs a plan once on `input`, with sums rounded to f32 after each step. @returns every rank's output */
export function f32Outputs(
  plan: ExecutionPlan,
  seed: number,
  input: (rank: number, chunk: number) => number,
): readonly (readonly number[])[] {
  const combine = { sum: (a: number, b: number) => Math.fround(a + b) };
  const read = run(plan, seed, { input: (rank, chunk) => Math.fround(input(rank, chunk)), combine });
  if (typeof read === "string") throw new Error(read);
  return plan.ranks.map((rank, r) => Array.from({ length: rank.output.chunks }, (_, index) => read(r, index)));
}

/** @returns what an output chunk holds at the end, or what went wrong before */
function run(
  plan: ExecutionPlan,
  seed: number,
  { input, combine }: Numbers,
): string | ((rank: number, index: number) => number) {
  const random = new Random(seed);
  const next = () => random.fraction();
  const memory = new Map<string, Cell>();
  const key = (rank: number, r: { buffer: Range["buffer"]; index: number }) => {
    const place = placeOf(plan, rank, r.buffer, r.index);
    return `${rank} ${place.buffer} ${place.index}`;
  };
  const sizes = collectiveChunks(plan.collective, plan.options.instances);
  plan.ranks.forEach((rank, r) => {
    for (let i = 0; i < (sizes?.[r]?.input ?? rank.input.chunks); i++)
      memory.set(key(r, { buffer: "input", index: i }), { value: input(r, i), packet: false });
  });
  const read = (rank: number, r: Range, i: number, packet = false): number => {
    const cell = memory.get(key(rank, { buffer: r.buffer, index: r.index + i }));
    return cell === undefined || cell.packet !== packet ? Number.NaN : cell.value;
  };
  const write = (rank: number, r: Range, i: number, value: number, packet = false) => {
    memory.set(key(rank, { buffer: r.buffer, index: r.index + i }), { value, packet });
  };
  const arrived = (rank: number, r: Range): boolean =>
    Array.from(
      { length: r.size },
      (_, i) => memory.get(key(rank, { buffer: r.buffer, index: r.index + i }))?.packet === true,
    ).every(Boolean);
  const counters = new Map<string, number>();
  const add = (name: string, n: number) => counters.set(name, (counters.get(name) ?? 0) + n);
  const channel = (rank: number, kind: "memory" | "port", id: number, sending: boolean) => {
    const peers = plan.ranks[rank]?.channels[kind] ?? [];
    const peer = peers[id] ?? -1;
    const ordinal = peers.slice(0, id).filter((p) => p === peer).length;
    return sending ? `${kind} ${rank} ${peer} ${ordinal}` : `${kind} ${peer} ${rank} ${ordinal}`;
  };
  plan.ranks.forEach((rank, r) => {
    rank.semaphores.forEach((s, id) => {
      add(`semaphore ${r} ${id}`, s.initialValue);
    });
  });
  const proxies: (() => void)[][] = plan.ranks.map(() => []);
  const barriers = new Map<string, { met: number; round: number }>();

  interface Run {
    readonly rank: number;
    readonly ops: readonly Op[];
    at: number;
    inner: number;
    waiting?: number;
  }
  const runs: Run[] = plan.ranks.flatMap((rank, r) =>
    rank.strands.map((strand) => ({ rank: r, ops: strand.ops, at: 0, inner: 0 })),
  );

  /** Does one operation if it can. */
  const step = (run: Run, op: SimpleOp): boolean => {
    const rank = run.rank;
    const share = (i: number) => !("tbg" in op) || op.tbg === undefined || i % op.tbg.size === op.tbg.index;
    switch (op.kind) {
      case "nop":
        return true;
      case "barrier": {
        const name = `${rank} ${op.barrier}`;
        const state = barriers.get(name) ?? { met: 0, round: 0 };
        if (run.waiting === undefined) {
          run.waiting = state.round;
          state.met++;
          if (state.met === op.numStrands) {
            state.met = 0;
            state.round++;
          }
          barriers.set(name, state);
        }
        if (state.round === run.waiting) return false;
        delete run.waiting;
        return true;
      }
      case "copy":
        if (op.format === "unpack" && !arrived(rank, op.src)) return false;
        for (let i = 0; i < op.src.size; i++)
          if (share(i)) write(rank, op.dst, i, read(rank, op.src, i, op.format === "unpack"), op.format === "pack");
        return true;
      case "get":
        op.src.forEach((src, k) => {
          for (let i = 0; i < src.size; i++) if (share(i)) write(rank, op.dst[k] as Range, i, read(src.rank, src, i));
        });
        return true;
      case "put": {
        if (op.format === "forward" && !op.src.every((src) => arrived(rank, src))) return false;
        const act = () => {
          op.dst.forEach((dst, k) => {
            const src = (op.src[k] ?? op.src[0]) as Range;
            for (let i = 0; i < dst.size; i++)
              if (share(i)) write(dst.rank, dst, i, read(rank, src, i, op.format === "forward"), op.format !== "plain");
          });
          if (op.notify !== "none") for (const id of op.channels) add(channel(rank, "port", id, true), 1);
        };
        if (op.channelKind === "memory") act();
        else {
          proxies[rank]?.push(act);
          if (op.notify === "signal-flush") while ((proxies[rank]?.length ?? 0) > 0) proxies[rank]?.shift()?.();
        }
        return true;
      }
      case "reduce": {
        if (op.packets && !op.src.slice(1).every((src) => arrived(rank, src))) return false;
        const both = combine[op.op] ?? ((a, b) => a + b);
        for (let i = 0; i < op.dst.size; i++) {
          if (!share(i)) continue;
          const values = [
            ...op.src.map((src, k) => read(rank, src, i, op.packets && k > 0)),
            ...op.remoteSrc.map((src) => read(src.rank, src, i)),
          ];
          const value = values.reduce(both);
          write(rank, op.dst, i, value);
          if (op.packetDst !== undefined) write(rank, op.packetDst, i, value, true);
          for (const dst of op.remoteDst) write(dst.rank, dst, i, value, op.packets);
        }
        return true;
      }
      case "signal":
        for (const id of op.channels) {
          if (op.channelKind === "port") proxies[rank]?.push(() => add(channel(rank, "port", id, true), 1));
          else add(channel(rank, "memory", id, true), 1);
        }
        return true;
      case "wait": {
        const names = op.channels.map((id) => channel(rank, op.channelKind, id, false));
        if (!names.every((name) => (counters.get(name) ?? 0) > 0)) return false;
        for (const name of names) add(name, -1);
        return true;
      }
      case "flush":
        while ((proxies[rank]?.length ?? 0) > 0) proxies[rank]?.shift()?.();
        return true;
      case "acquire": {
        const names = op.semaphores.map((id) => `semaphore ${rank} ${id}`);
        if (!names.every((name) => (counters.get(name) ?? 0) > 0)) return false;
        for (const name of names) add(name, -1);
        return true;
      }
      case "release":
        for (const id of op.semaphores) add(`semaphore ${rank} ${id}`, 1);
        return true;
      case "switch-reduce":
      case "switch-broadcast":
      case "switch-reduce-broadcast": {
        const id = op.kind === "switch-broadcast" ? op.dst.channel : op.src.channel;
        const group = plan.ranks[rank]?.channels.switch[id];
        if (group === undefined) return true;
        const on = (r: number, range: { index: number; size: number }, i: number) => ({
          rank: r,
          range: { buffer: group.buffer, ...range },
          i,
        });
        if (op.kind === "switch-broadcast") {
          if (op.format === "forward" && !arrived(rank, op.src)) return false;
          for (const r of group.ranks)
            for (let i = 0; i < op.src.size; i++)
              write(
                r,
                on(r, op.dst, i).range,
                i,
                read(rank, op.src, i, op.format === "forward"),
                op.format === "forward",
              );
          return true;
        }
        const both = combine[op.op] ?? ((a, b) => a + b);
        for (let i = 0; i < op.src.size; i++) {
          const value = group.ranks.map((r) => read(r, on(r, op.src, i).range, i)).reduce(both);
          if (op.kind === "switch-reduce") write(rank, op.dst, i, value);
          else for (const r of group.ranks) write(r, on(r, op.dst, i).range, i, value);
        }
        return true;
      }
    }
  };

  let live = runs.filter((run) => run.ops.length > 0);
  let stuck = 0;
  // Some runs prefer few strands for long, others mix finely.
  const sticky = next() < 0.5 ? 0.9 : 0.1;
  let chosen: Run | undefined;
  while (live.length > 0) {
    const busy = proxies.filter((queue) => queue.length > 0);
    if (busy.length > 0 && (next() < 0.2 || stuck > 0)) {
      busy[Math.floor(next() * busy.length)]?.shift()?.();
      stuck = 0;
    }
    if (chosen === undefined || next() > sticky || stuck > 0) chosen = live[Math.floor(next() * live.length)] as Run;
    if (stuck > 0 && stuck >= live.length * 2) {
      const able = live.find((run) => tryStep(run));
      if (able === undefined && proxies.every((queue) => queue.length === 0)) {
        return `deadlock: ${live.map((run) => `rank ${run.rank} at ${run.at} (${run.ops[run.at]?.kind})`).join(", ")}`;
      }
      stuck = able === undefined ? stuck : 0;
    } else if (tryStep(chosen)) stuck = 0;
    else {
      stuck++;
      chosen = undefined;
    }
    live = live.filter((run) => run.at < run.ops.length);
    if (chosen !== undefined && chosen.at >= chosen.ops.length) chosen = undefined;
  }
  for (const queue of proxies) while (queue.length > 0) queue.shift()?.();

  function tryStep(run: Run): boolean {
    const op = run.ops[run.at];
    if (op === undefined) return false;
    if (op.kind === "pipeline") {
      const inner = op.body[run.inner];
      if (inner !== undefined && !step(run, inner)) return false;
      run.inner++;
      if (run.inner >= op.body.length) {
        run.inner = 0;
        run.at++;
      }
      return true;
    }
    if (!step(run, op)) return false;
    run.at++;
    return true;
  }

  for (const [name, value] of counters) {
    const initial = name.startsWith("semaphore")
      ? (plan.ranks[Number(name.split(" ")[1])]?.semaphores[Number(name.split(" ")[2])]?.initialValue ?? 0)
      : 0;
    if (value !== initial) return `${name} ends at ${value}, began at ${initial}`;
  }
  return (rank, index) => read(rank, { buffer: "output", index, size: 1 }, 0);
}
