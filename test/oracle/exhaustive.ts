/**
 * Every interleaving of a small plan, on the weakly ordered memory of docs/semantics.md: no dice, all states. Written from
 * that page alone, like the random oracle beside it, for plans of single chunks over memory channels: with one position to
 * an operation, the elements of a strand are performed in the order of its operations.
 */
import type { ExecutionPlan, SimpleOp } from "../../src/authoring/plan/execution-plan.ts";

/** What all runs of a plan have in common. */
export type Outcome =
  | { readonly kind: "right" }
  /** All runs end alike, but what they leave was computed from memory that nobody wrote: no verdict on that is asked for. */
  | { readonly kind: "undefined" }
  /** Some run gets stuck, leaves a counter unbalanced, or two runs end with different contents. */
  | { readonly kind: "wrong"; readonly why: string }
  | { readonly kind: "too-large" };

/** What a plain read of a packet gives, and what lies at place p at the beginning where it is no input: this minus p. */
const UNDEFINED = -1;
const GARBAGE = -2;
/** States of one plan that are looked at. */
const MAX_STATES = 200_000;

interface Entry {
  readonly value: number;
  readonly packet: boolean;
}
interface Element {
  readonly from: number;
  readonly fromPacket: boolean;
  readonly to: number;
  readonly toPacket: boolean;
}
interface StrandState {
  pc: number;
  /** Elements that were issued and not yet performed, in order. */
  pending: Element[];
  /** Writes that nobody else sees yet. */
  buffer: (Entry & { readonly place: number })[];
  /** By place, the oldest entry that may still be read. */
  view: number[];
}
interface CounterState {
  count: number;
  taken: number;
  /** What each signal hands on; null where it is relaxed. */
  views: (number[] | null)[];
}
interface State {
  strands: StrandState[];
  /** By place, all that became visible there. */
  history: Entry[][];
  counters: CounterState[];
  /** Strands that have come to a barrier, by barrier. */
  waiting: number[][];
}

type Step =
  | { readonly kind: "element"; readonly element: Element }
  | { readonly kind: "raise"; readonly counters: readonly number[]; readonly relaxed: boolean }
  | { readonly kind: "take"; readonly counters: readonly number[]; readonly relaxed: boolean }
  | { readonly kind: "barrier"; readonly barrier: number; readonly numStrands: number }
  | { readonly kind: "nop" };

const BUFFER = { input: 0, output: 1, scratch: 2 } as const;

/** A plan as lists of steps over numbered places and counters. */
class Program {
  readonly strands: Step[][] = [];
  readonly rankOf: number[] = [];
  readonly initial: number[] = [];
  readonly numPlaces: number;
  /** Places whose contents at the end are compared. */
  readonly visible: number[] = [];
  readonly #plan: ExecutionPlan;
  readonly #chunks: number;

  constructor(plan: ExecutionPlan) {
    this.#plan = plan;
    this.#chunks = Math.max(...plan.ranks.flatMap((r) => [r.input.chunks, r.output.chunks, r.scratch.chunks]));
    this.numPlaces = plan.ranks.length * 3 * this.#chunks;
    for (const rank of plan.ranks) {
      for (const buffer of ["input", "output"] as const)
        for (let i = 0; i < rank[buffer].chunks; i++) this.visible.push(this.#place(rank.rank, { buffer, index: i }));
      for (const strand of rank.strands) {
        this.rankOf.push(rank.rank);
        this.strands.push(
          strand.ops.flatMap((op) => {
            if (op.kind === "pipeline") throw new Error("plans with loops are not for this interpreter");
            return this.#steps(rank.rank, op);
          }),
        );
      }
    }
  }

  isInput(place: number): boolean {
    return Math.floor(place / this.#chunks) % 3 === BUFFER.input;
  }

  #place(rank: number, { buffer, index }: { readonly buffer: keyof typeof BUFFER; readonly index: number }): number {
    return (rank * 3 + BUFFER[buffer]) * this.#chunks + index;
  }

  readonly #counterIds = new Map<string, number>();
  #counter(key: string, initial: number): number {
    let id = this.#counterIds.get(key);
    if (id === undefined) {
      id = this.initial.push(initial) - 1;
      this.#counterIds.set(key, id);
    }
    return id;
  }

  #steps(rank: number, op: SimpleOp): Step[] {
    const channel = (id: number, out: boolean) => {
      const peer = this.#plan.ranks[rank]!.channels.memory[id]!;
      return this.#counter(out ? `${rank}>${peer}` : `${peer}>${rank}`, 0);
    };
    const semaphore = (id: number) =>
      this.#counter(`s${rank}.${id}`, this.#plan.ranks[rank]!.semaphores[id]!.initialValue);
    switch (op.kind) {
      case "nop":
        return [{ kind: "nop" }];
      case "barrier":
        return [{ kind: "barrier", barrier: rank * 2 + op.barrier, numStrands: op.numStrands }];
      case "copy":
        return [
          {
            kind: "element",
            element: {
              from: this.#place(rank, op.src),
              fromPacket: op.format === "unpack",
              to: this.#place(rank, op.dst),
              toPacket: op.format === "pack",
            },
          },
        ];
      case "put":
        if (op.channelKind !== "memory") break;
        return op.dst.map((dst, i) => ({
          kind: "element",
          element: {
            from: this.#place(rank, op.src[i]!),
            fromPacket: op.format === "forward",
            to: this.#place(dst.rank, dst),
            toPacket: op.format !== "plain",
          },
        }));
      case "signal":
        return [{ kind: "raise", counters: op.channels.map((id) => channel(id, true)), relaxed: op.relaxed }];
      case "wait":
        return [{ kind: "take", counters: op.channels.map((id) => channel(id, false)), relaxed: op.relaxed }];
      case "release":
        return [{ kind: "raise", counters: op.semaphores.map(semaphore), relaxed: false }];
      case "acquire":
        return [{ kind: "take", counters: op.semaphores.map(semaphore), relaxed: false }];
      default:
    }
    throw new Error(`${op.kind} is not for this interpreter`);
  }
}

const copyOf = (state: State): State => ({
  strands: state.strands.map((s) => ({
    pc: s.pc,
    pending: [...s.pending],
    buffer: [...s.buffer],
    view: [...s.view],
  })),
  history: state.history.map((list) => [...list]),
  counters: state.counters.map((c) => ({ count: c.count, taken: c.taken, views: [...c.views] })),
  waiting: state.waiting.map((list) => [...list]),
});

function joinInto(view: number[], other: readonly number[] | null | undefined): void {
  other?.forEach((index, place) => {
    if (view[place]! < index) view[place] = index;
  });
}

/** Makes a write of a strand's buffer visible. */
function surface(state: State, strand: StrandState, at: number): void {
  const [entry] = strand.buffer.splice(at, 1);
  if (entry === undefined) return;
  const { place, value, packet } = entry;
  state.history[place]!.push({ value, packet });
  // Nobody reads older than what he wrote himself.
  strand.view[place] = state.history[place]!.length - 1;
}

function drain(state: State, strand: StrandState): void {
  while (strand.buffer.length > 0) surface(state, strand, 0);
}

interface Successors {
  readonly list: readonly State[];
  /** Something can go on that does not need a packet which has been overwritten: nobody is sure to have seen that. */
  readonly goesOn: boolean;
}

/** All states that one step of one strand, or of its buffer, leads to. */
function successors(program: Program, state: State): Successors {
  // To issue an operation changes nothing that others see: it need not be put off, since performing it may be.
  for (const [s, strand] of state.strands.entries()) {
    const step = program.strands[s]![strand.pc];
    if (step?.kind !== "element" || state.waiting.some((list) => list.includes(s))) continue;
    const next = copyOf(state);
    next.strands[s]!.pending.push(step.element);
    next.strands[s]!.pc++;
    return { list: [next], goesOn: true };
  }
  const list: State[] = [];
  let goesOn = false;
  const change = (make: (next: State) => void, isSure = true) => {
    const next = copyOf(state);
    make(next);
    list.push(next);
    goesOn ||= isSure;
  };
  state.strands.forEach((strand, s) => {
    strand.buffer.forEach((entry, at) => {
      // In any order, except on one place.
      if (strand.buffer.findIndex((other) => other.place === entry.place) === at)
        change((next) => surface(next, next.strands[s]!, at));
    });
    const element = strand.pending[0];
    if (element !== undefined) {
      for (const read of readings(state, strand, element)) {
        change((next) => {
          const own = next.strands[s]!;
          own.pending.shift();
          if (read.index !== undefined) own.view[element.from] = read.index;
          own.buffer.push({ place: element.to, value: read.value, packet: element.toPacket });
        }, !element.fromPacket || read.isLast);
      }
    }
    const step = program.strands[s]![strand.pc];
    if (step === undefined || step.kind === "element" || state.waiting.some((list) => list.includes(s))) return;
    const relaxed = (step.kind === "raise" || step.kind === "take") && step.relaxed;
    if (!relaxed && strand.pending.length > 0) return;
    switch (step.kind) {
      case "nop":
        change((next) => {
          next.strands[s]!.pc++;
        });
        return;
      case "raise":
        change((next) => {
          const own = next.strands[s]!;
          if (!relaxed) drain(next, own);
          for (const id of step.counters) {
            next.counters[id]!.count++;
            next.counters[id]!.views.push(relaxed ? null : [...own.view]);
          }
          own.pc++;
        });
        return;
      case "take": {
        const enough = step.counters.every((id) => {
          const wanted = step.counters.filter((other) => other === id).length;
          return program.initial[id]! + state.counters[id]!.count - state.counters[id]!.taken >= wanted;
        });
        if (!enough) return;
        change((next) => {
          const own = next.strands[s]!;
          for (const id of step.counters) {
            const counter = next.counters[id]!;
            counter.taken++;
            if (relaxed) continue;
            for (let i = 0; i < counter.taken - program.initial[id]!; i++) joinInto(own.view, counter.views[i]);
          }
          own.pc++;
        });
        return;
      }
      case "barrier":
        change((next) => {
          next.waiting[step.barrier] ??= [];
          const list = next.waiting[step.barrier]!;
          list.push(s);
          if (list.length < step.numStrands) return;
          for (const member of list) drain(next, next.strands[member]!);
          const all = new Array<number>(program.numPlaces).fill(0);
          for (const member of list) joinInto(all, next.strands[member]!.view);
          for (const member of list) {
            joinInto(next.strands[member]!.view, all);
            next.strands[member]!.pc++;
          }
          next.waiting[step.barrier] = [];
        });
    }
  });
  return { list, goesOn };
}

/** The values that an element may read now; none while it waits for packets. */
function readings(state: State, strand: StrandState, { from, fromPacket }: Element) {
  const own = strand.buffer.findLast((entry) => entry.place === from);
  const undefinedRead = { value: UNDEFINED, index: undefined, isLast: true };
  const seen: { value: number; index: number | undefined; isLast: boolean }[] = [];
  const history = state.history[from]!;
  if (own !== undefined) {
    if (own.packet === fromPacket) return [{ value: own.value, index: undefined, isLast: true }];
    // Packets may be awaited behind plain data of one's own; plain reads of packets are undefined.
    if (!fromPacket) return [undefinedRead];
    return seen;
  }
  for (let i = strand.view[from]!; i < history.length; i++) {
    if (history[i]!.packet === fromPacket)
      seen.push({ value: history[i]!.value, index: i, isLast: i === history.length - 1 });
    else if (!fromPacket) seen.push(undefinedRead);
  }
  return seen;
}

/** A state as a string, the same for the same state. Numbers are small, the least is about -100. */
function keyOf({ strands, history, counters, waiting }: State): string {
  const codes: number[] = [];
  const numbers = (list: readonly number[]) => {
    codes.push(list.length + 1024);
    for (const n of list) codes.push(n + 512);
  };
  for (const { pc, pending, buffer, view } of strands) {
    codes.push(pc + 512, pending.length + 512, buffer.length + 512);
    for (const { place, value, packet } of buffer) codes.push(place + 512, value + 512, packet ? 1 : 2);
    numbers(view);
  }
  for (const list of history) {
    codes.push(list.length + 1024);
    for (const { value, packet } of list) codes.push(value + 512, packet ? 1 : 2);
  }
  for (const { count, taken, views } of counters) {
    codes.push(count + 512, taken + 512, views.length + 1024);
    for (const view of views) numbers(view ?? []);
  }
  for (const list of waiting) numbers(list);
  return String.fromCharCode(...codes);
}

/** Looks at every run of a plan whose collective means nothing: whether all end, and end alike. */
export function exploreAll(plan: ExecutionPlan): Outcome {
  const program = new Program(plan);
  const start: State = {
    strands: program.strands.map(() => ({
      pc: 0,
      pending: [],
      buffer: [],
      view: new Array<number>(program.numPlaces).fill(0),
    })),
    // Everything is different; garbage is negative.
    history: Array.from({ length: program.numPlaces }, (_, place) => [
      { value: program.isInput(place) ? place : GARBAGE - place, packet: false },
    ]),
    counters: program.initial.map(() => ({ count: 0, taken: 0, views: [] })),
    waiting: [],
  };
  start.waiting = Array.from({ length: 4 }, () => []);
  const seen = new Set<string>();
  const stack = [start];
  let contents: string | undefined;
  let undefinedAtEnd = false;
  while (stack.length > 0) {
    const state = stack.pop()!;
    const key = keyOf(state);
    if (seen.has(key)) continue;
    seen.add(key);
    if (seen.size > MAX_STATES) return { kind: "too-large" };
    const next = successors(program, state);
    if (next.list.length > 0) {
      if (!next.goesOn) return { kind: "wrong", why: "a reader of packets may come too late" };
      stack.push(...next.list);
      continue;
    }
    if (state.strands.some((strand, s) => strand.pc < program.strands[s]!.length || strand.pending.length > 0))
      return { kind: "wrong", why: "a run gets stuck" };
    if (state.counters.some((counter) => counter.count !== counter.taken))
      return { kind: "wrong", why: "a counter is not balanced" };
    const final = program.visible.map((place) => state.history[place]!.at(-1)!);
    // An output that nobody wrote holds what it held.
    undefinedAtEnd ||= final.some(({ value }, i) => value < 0 && value !== GARBAGE - program.visible[i]!);
    const end = JSON.stringify(final);
    if (contents !== undefined && contents !== end)
      return { kind: "wrong", why: `two runs end differently: ${contents} and ${end}` };
    contents = end;
  }
  return { kind: undefinedAtEnd ? "undefined" : "right" };
}
