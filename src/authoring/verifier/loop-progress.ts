/**
 * Whether a plan whose loops signal and wait can get stuck at some size, by counting alone. A run at a few sizes does not tell:
 * a strand that signals before it waits is one iteration ahead, a chain of such strands as many as it is long, and a token can be
 * turned into several, so that only the tenth iteration gets stuck. What this file can argue is argued once, for all sizes;
 * what it cannot is `undecided`.
 *
 * The argument. Let every loop, whatever its body, be one step of its strand. Steps are ordered by their strands and by what
 * waits for what. Steps on a cycle of this order belong together; let them be loops of different strands, nothing else. Then
 * each step, or group of loops, has a level; levels rise along every strand, and whoever is stuck waits for somebody who
 * is stuck at that level or below. Round a cycle of waits levels cannot rise, so it lies in loops that belong together.
 * There the i-th iteration waits for nothing later than the i-th iterations of the others, because before a loop at least
 * as many tokens have been raised as taken. So the cycle lies in one iteration, and the bodies alone, once through, show it.
 * What an iteration waits for of its own iteration is the same for all i, so the number of iterations does not matter.
 *
 * What has to hold for that is checked here: a counter of a loop has one waiting strand; its loops stand in the same order at both
 * ends, at equal rates, raise per iteration what is taken, and are never behind in what comes before them. Several
 * signalling strands are taken as if every one of them were waited for. Locks that are given back before anything else is
 * waited for keep nobody.
 */
import { bodyOf, type ExecutionPlan, type PipelineOp, type SimpleOp } from "../plan/index.ts";
import { rateOf } from "./loop-units.ts";
import { awaitsPackets } from "./packet-lookahead.ts";
import { type Counter, type CounterTable, counterUse } from "./signal-counters.ts";

/** A plan with more steps outside its loops than this is not looked at. */
const MAX_STEPS = 200_000;

/** One operation of a strand, or one loop. */
interface Step {
  readonly id: number;
  readonly strand: number;
  readonly rank: number;
  readonly loop: PipelineOp | undefined;
  readonly body: readonly SimpleOp[];
}
/** A strand's use of a counter (or barrier) in one step. */
interface Use {
  readonly step: Step;
  readonly times: number;
}

/** Steps that are one step in common. */
class Classes {
  readonly #parent: number[] = [];
  constructor(count: number) {
    for (let i = 0; i < count; i++) this.#parent.push(i);
  }
  find(i: number): number {
    let at = i;
    while (this.#parent[at] !== at) {
      this.#parent[at] = this.#parent[this.#parent[at]!]!;
      at = this.#parent[at]!;
    }
    return at;
  }
  join(a: number, b: number): void {
    this.#parent[this.find(a)] = this.find(b);
  }
}

type Edges = (readonly [number, number])[];

/** Which of `count` nodes lie on a common cycle: the same number for those that do (Tarjan, SIAM J. Comput. 1, 1972). */
function cyclesOf(count: number, edges: Readonly<Edges>): Int32Array {
  const out: number[][] = Array.from({ length: count }, () => []);
  for (const [a, b] of edges) out[a]!.push(b);
  const group = new Int32Array(count).fill(-1);
  const index = new Int32Array(count).fill(-1);
  const low = new Int32Array(count);
  const taken = new Int32Array(count);
  const open: number[] = [];
  let next = 0;
  for (let root = 0; root < count; root++) {
    if (index[root]! >= 0) continue;
    const path = [root];
    while (path.length > 0) {
      const node = path.at(-1)!;
      if (index[node]! < 0) {
        index[node] = low[node] = next++;
        open.push(node);
      }
      const follower = out[node]![taken[node]!++];
      if (follower !== undefined) {
        if (index[follower]! < 0) path.push(follower);
        else if (group[follower]! < 0) low[node] = Math.min(low[node]!, index[follower]!);
        continue;
      }
      path.pop();
      const parent = path.at(-1);
      if (parent !== undefined) low[parent] = Math.min(low[parent]!, low[node]!);
      if (low[node] !== index[node]) continue;
      for (let member = -1; member !== node; ) {
        member = open.pop()!;
        group[member] = node;
      }
    }
  }
  return group;
}

/** Uses of counters, by strand in the order of its steps. */
class Uses<Key> {
  readonly all = new Map<Key, Map<number, Use[]>>();
  add(key: Key, step: Step): void {
    const byStrand = this.all.get(key) ?? new Map<number, Use[]>();
    this.all.set(key, byStrand);
    const list = byStrand.get(step.strand) ?? [];
    byStrand.set(step.strand, list);
    const last = list.at(-1);
    if (last?.step === step) list[list.length - 1] = { step, times: last.times + 1 };
    else list.push({ step, times: 1 });
  }
  of(key: Key): readonly (readonly Use[])[] {
    return [...(this.all.get(key)?.values() ?? [])];
  }
}

const loopsIn = (uses: readonly Use[]) => uses.filter(({ step }) => step.loop !== undefined);
const sum = (uses: readonly Use[]) => uses.reduce((total, { times }) => total + times, 0);
/** How often a strand uses a counter outside loops, before its `stage`-th loop that does. */
function outsideBefore(uses: readonly Use[], stage: number): Use[] {
  let loops = 0;
  return uses.filter(({ step }) => {
    if (step.loop !== undefined) loops++;
    return step.loop === undefined && loops < stage;
  });
}

const waits = (op: SimpleOp) =>
  op.kind === "wait" ||
  op.kind === "acquire" ||
  op.kind === "barrier" ||
  op.kind === "flush" ||
  (op.kind === "put" && op.channelKind === "port" && (op.notify === "signal-flush" || op.format === "forward")) ||
  awaitsPackets(op);

class Argument {
  readonly #plan: ExecutionPlan;
  readonly #table: CounterTable;
  readonly #steps: Step[] = [];
  readonly #raises = new Uses<Counter>();
  readonly #takes = new Uses<Counter>();
  readonly #barriers = new Uses<string>();
  readonly #classes: Classes;
  /** Pairs of steps, the first of which comes first or is waited for. */
  readonly #edges: Edges = [];
  /** Writers of packets, with whoever waits for them. */
  readonly #packetEdges: (readonly [Place, Place])[] = [];
  /** Loops that belong together have the same number. */
  #groupOf: (step: Step) => number = ({ id }) => id;
  /** Counters that keep nobody. */
  readonly #locks = new Set<Counter>();
  readonly #names = new Map<string, number>();

  constructor(plan: ExecutionPlan, table: CounterTable) {
    this.#plan = plan;
    this.#table = table;
    let strandNumber = 0;
    for (const { rank, strands } of plan.ranks) {
      for (const { ops } of strands) {
        let before = -1;
        for (const op of ops) {
          const loop = op.kind === "pipeline" ? op : undefined;
          if (loop !== undefined && (loop.numChunks === 0 || loop.body.length === 0)) continue;
          const step = { id: this.#steps.length, strand: strandNumber, rank, loop, body: bodyOf(op) };
          this.#steps.push(step);
          if (before >= 0) this.#edges.push([before, step.id]);
          before = step.id;
          for (const inner of step.body) this.#note(step, inner);
        }
        strandNumber++;
      }
    }
    this.#classes = new Classes(this.#steps.length);
  }

  #note(step: Step, op: SimpleOp): void {
    const { raise, take } = counterUse(this.#table, step.rank, op);
    for (const counter of raise) this.#raises.add(counter, step);
    for (const counter of take) this.#takes.add(counter, step);
    if (op.kind === "barrier") {
      const key = `${step.rank} ${op.barrier}`;
      this.#barriers.add(key, step);
      this.#names.set(key, op.numStrands);
    }
  }

  /** Why it is not decided; undefined where no size gets stuck that one iteration does not. */
  decide(): string | undefined {
    const looping = this.#steps.some(
      ({ loop, body, rank }) =>
        loop !== undefined && body.some((op) => waits(op) || counterUse(this.#table, rank, op).raise.length > 0),
    );
    if (!looping) return undefined;
    if (this.#steps.length > MAX_STEPS) return `the plan has more than ${MAX_STEPS} operations`;
    this.#findLocks();
    for (const counter of this.#table.counters) {
      const why = this.#match(counter);
      if (why !== undefined) return why;
    }
    for (const [key, byStrand] of this.#barriers.all) {
      const why = this.#meet(key, [...byStrand.values()]);
      if (why !== undefined) return why;
    }
    this.#packets();
    // Only the first iteration of a loop waits for packets, and of a loop that writes them for the first.
    const packets = this.#packetEdges.flatMap(([{ step: a }, { step: b }]) => (a === b ? [] : [[a.id, b.id] as const]));
    const edges = [...this.#edges, ...packets].map(([a, b]) => [this.#classes.find(a), this.#classes.find(b)] as const);
    const group = cyclesOf(this.#steps.length, edges);
    this.#groupOf = (step) => group[this.#classes.find(step.id)]!;
    const strands = new Map<number, Set<number>>();
    for (const step of this.#steps) {
      const own = strands.get(this.#groupOf(step)) ?? new Set();
      strands.set(this.#groupOf(step), own);
      if (own.has(step.strand)) return "loops that belong together stand in different orders";
      own.add(step.strand);
    }
    const straight = new Set(
      this.#steps.filter(({ loop }) => loop === undefined).map(({ id }) => this.#classes.find(id)),
    );
    // Meetings outside loops are one step already: on a cycle with others, they are stuck at every size.
    const onCycle = edges.some(([a, b]) => a !== b && group[a] === group[b] && (straight.has(a) || straight.has(b)));
    return onCycle ? "a loop waits for what comes behind it elsewhere" : this.#bodies();
  }

  /** Semaphores that every taker gives back before it waits for anything else. */
  #findLocks(): void {
    for (const [counter, byStrand] of this.#takes.all) {
      if (counter.kind !== "semaphore" || counter.initial === 0 || byStrand.size < 2) continue;
      const isLock = [...new Set([...byStrand.keys(), ...(this.#raises.all.get(counter)?.keys() ?? [])])].every(
        (strand) => this.#givesBack(counter, strand),
      );
      if (isLock) this.#locks.add(counter);
    }
  }

  #givesBack(counter: Counter, strand: number): boolean {
    let held = 0;
    for (const step of this.#steps) {
      if (step.strand !== strand) continue;
      for (const op of step.body) {
        const { raise, take } = counterUse(this.#table, step.rank, op);
        const up = raise.filter((other) => other === counter).length;
        const down = take.filter((other) => other === counter).length;
        if ((held > 0 && waits(op)) || (down > 0 && take.length > 1)) return false;
        held += down - up;
        if (held < 0 || held > 1) return false;
      }
      if (held > 0 && step.loop !== undefined) return false;
    }
    return held === 0;
  }

  /** Brings the loops at the two ends of a counter together, and orders what waits outside loops. */
  #match(counter: Counter): string | undefined {
    if (this.#locks.has(counter)) return undefined;
    const takers = this.#takes.of(counter);
    const raisers = this.#raises.of(counter);
    const name =
      counter.kind === "semaphore"
        ? `semaphore ${counter.toId} of rank ${counter.to}`
        : `the ${counter.kind} channel from rank ${counter.from} to rank ${counter.to}`;
    if (takers.length > 1) return `several strands wait for ${name}`;
    const taker = takers[0] ?? [];
    const stages = loopsIn(taker);
    const looping = raisers.filter((uses) => loopsIn(uses).length > 0);
    const others = raisers.filter((uses) => loopsIn(uses).length === 0).flat();
    if (looping.some((uses) => loopsIn(uses).length !== stages.length))
      return `the ends of ${name} use it in different numbers of loops`;
    for (let stage = 0; stage <= stages.length; stage++) {
      const before = [...looping.flatMap((uses) => outsideBefore(uses, stage + 1)), ...others];
      const taken = outsideBefore(taker, stage + 1);
      if (counter.initial + sum(before) < sum(taken))
        return `${name} is waited for before a loop by what is signalled in it or behind it`;
      const at = stages[stage];
      if (at !== undefined) {
        const partners = looping.map((uses) => loopsIn(uses)[stage]!);
        if (partners.some(({ step }) => rateOf(step.loop!) !== rateOf(at.step.loop!)))
          return `loops of different rates stand at the ends of ${name}`;
        if (sum(partners) !== at.times) return `the loops at the ends of ${name} do not use it equally often`;
        for (const { step } of [...partners, ...others]) if (step !== at.step) this.#edges.push([step.id, at.step.id]);
      }
      // Outside loops the t-th wait comes behind the t-th signal, or behind all where several strands signal.
      const signals = before.flatMap(({ step, times }) => new Array<Step>(times).fill(step));
      const earlier = new Set(outsideBefore(taker, stage));
      let t = -counter.initial;
      for (const use of taken) {
        t += use.times;
        if (t <= 0 || earlier.has(use)) continue;
        for (const { id } of raisers.length > 1 ? signals : signals.slice(t - 1, t))
          this.#edges.push([id, use.step.id]);
      }
    }
    return undefined;
  }

  /** Brings the loops of the strands of a barrier together, and its meetings outside loops. */
  #meet(key: string, members: readonly (readonly Use[])[]): string | undefined {
    const [rank, barrier] = key.split(" ");
    // A barrier of one strand holds nobody.
    if (this.#names.get(key) === 1) return undefined;
    const name = `barrier ${barrier} of rank ${rank}`;
    const [first = []] = members;
    const shape = (uses: readonly Use[]) =>
      uses.map(({ step, times }) => `${times} ${step.loop === undefined ? "once" : rateOf(step.loop)}`).join();
    if (members.length !== this.#names.get(key) || members.some((uses) => shape(uses) !== shape(first)))
      return `strands come to ${name} in different ways`;
    for (const uses of members.slice(1)) {
      for (const [i, { step }] of uses.entries()) {
        const { id } = first[i]!.step;
        if (step.loop === undefined) this.#classes.join(step.id, id);
        else this.#edges.push([step.id, id], [id, step.id]);
      }
    }
    return undefined;
  }

  /** Whoever waits for packets waits for all that write them; its own strand's later ones only where there are no others. */
  #packets(): void {
    for (const [reader, all] of packetPairs(this.#plan, this.#steps)) {
      const isLater = ({ step, at }: Place) =>
        step.strand === reader.step.strand &&
        (step.id > reader.step.id || (step.id === reader.step.id && at >= reader.at));
      const others = all.filter((writer) => !isLater(writer));
      for (const writer of others.length > 0 ? others : all) this.#packetEdges.push([writer, reader]);
    }
  }

  /** Says where one iteration of loops that belong together gets stuck over shared signals; a run shows the rest. */
  #bodies(): string | undefined {
    const nodes: Step[] = [];
    const nodeOf = new Map<string, number>();
    const edges: Edges = [];
    const raised = new Map<Counter, { node: number; step: Step }[]>();
    const taken: { readonly node: number; readonly counter: Counter; readonly q: number }[] = [];
    const meetings = new Map<string, number>();
    for (const step of this.#steps) {
      if (step.loop === undefined) continue;
      const visits = new Map<string, number>();
      const seen = new Map<Counter, number>();
      let before = -1;
      for (const [at, op] of step.body.entries()) {
        let node = nodes.length;
        nodes.push(step);
        if (op.kind === "barrier") {
          const visit = visits.get(`${step.rank} ${op.barrier}`) ?? 0;
          visits.set(`${step.rank} ${op.barrier}`, visit + 1);
          const key = `${step.rank} ${op.barrier} ${visit} ${this.#groupOf(step)}`;
          node = meetings.get(key) ?? node;
          meetings.set(key, node);
        }
        nodeOf.set(`${step.id} ${at}`, node);
        if (before >= 0 && before !== node) edges.push([before, node]);
        before = node;
        const { raise, take } = counterUse(this.#table, step.rank, op);
        for (const counter of raise) {
          const list = raised.get(counter) ?? [];
          raised.set(counter, list);
          list.push({ node, step });
        }
        for (const counter of take) {
          const q = (seen.get(counter) ?? 0) + 1;
          seen.set(counter, q);
          taken.push({ node, counter, q });
        }
      }
    }
    for (const { node, counter, q } of taken) {
      if (this.#locks.has(counter)) continue;
      const step = nodes[node]!;
      const group = this.#groupOf(step);
      const sources = (raised.get(counter) ?? []).filter((source) => this.#groupOf(source.step) === group);
      const stage = loopsIn(this.#takes.of(counter)[0]!).findIndex((use) => use.step === step);
      const uses = this.#raises.of(counter);
      const raisers = uses.filter((list) => loopsIn(list).length > 0);
      const outside = uses.filter((list) => loopsIn(list).length === 0).flat();
      const ahead =
        counter.initial +
        sum(raisers.flatMap((list) => outsideBefore(list, stage + 1))) +
        sum(outside) -
        sum(outsideBefore(this.#takes.of(counter)[0]!, stage + 1));
      if (q <= ahead) continue;
      // What is raised outside by strands without loops is waited for before the loops.
      for (const source of raisers.length > 1 || outside.length > 0 ? sources : sources.slice(q - ahead - 1, q - ahead))
        edges.push([source.node, node]);
    }
    for (const [writer, reader] of this.#packetEdges) {
      const [from, to] = [writer, reader].map(({ step, at }) => nodeOf.get(`${step.id} ${at}`));
      if (from !== undefined && to !== undefined && this.#groupOf(writer.step) === this.#groupOf(reader.step))
        edges.push([from, to]);
    }
    const cycles = cyclesOf(nodes.length, edges);
    return edges.some(([a, b]) => cycles[a] === cycles[b]) ? "strands wait for each other in one iteration" : undefined;
  }
}

/** An operation: its step, and where it stands in its body. */
interface Place {
  readonly step: Step;
  readonly at: number;
}

/** Operations that wait for packets, each with those that write packets to a chunk that it reads. */
function packetPairs(plan: ExecutionPlan, steps: readonly Step[]): [Place, Place[]][] {
  const writers = new Map<string, Place[]>();
  const readers: { readonly place: Place; readonly keys: string[] }[] = [];
  const keys = (rank: number, { index, size }: { readonly index: number; readonly size: number }) =>
    Array.from({ length: size }, (_, i) => `${rank} ${index + i}`);
  for (const step of steps) {
    for (const [at, op] of step.body.entries()) {
      const place = { step, at };
      const writes = (rank: number, range: { readonly index: number; readonly size: number }) => {
        for (const key of keys(rank, range)) writers.set(key, [...(writers.get(key) ?? []), place]);
      };
      const reads = (range: { readonly index: number; readonly size: number }) => {
        readers.push({ place, keys: keys(step.rank, range) });
      };
      if (op.kind === "copy") {
        if (op.format === "pack") writes(step.rank, op.dst);
        if (op.format === "unpack") reads(op.src);
      } else if (op.kind === "put" && op.format !== "plain") {
        for (const range of op.dst) writes(range.rank, range);
        if (op.format === "forward") for (const range of op.src) reads(range);
      } else if (op.kind === "reduce") {
        if (op.packetDst !== undefined) writes(step.rank, op.packetDst);
        if (!op.packets) continue;
        for (const range of op.remoteDst) writes(range.rank, range);
        for (const range of op.src.slice(1)) reads(range);
      } else if (op.kind === "switch-broadcast" && op.format === "forward") {
        reads(op.src);
        for (const rank of plan.ranks[step.rank]!.channels.switch[op.dst.channel]!.ranks) writes(rank, op.dst);
      }
    }
  }
  return readers.map(({ place, keys: own }) => [place, [...new Set(own.flatMap((key) => writers.get(key) ?? []))]]);
}

/**
 * Why it is not decided whether loops get stuck at a size that is not looked at; undefined where they surely do not, unless
 * they do at every size.
 */
export function undecidedLoops(plan: ExecutionPlan, table: CounterTable): string | undefined {
  return new Argument(plan, table).decide();
}
