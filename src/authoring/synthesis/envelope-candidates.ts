/**
 * The plans among which the envelope chooses: synthesised schedules in so many pieces and instances, and the algorithms of
 * the library. Plans are compiled when they are first asked for.
 */
import { UnsupportedError } from "../../core/index.ts";
import { ALGORITHMS } from "../algorithms/index.ts";
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import { compile } from "../language/index.ts";
import type { ExecutionPlan, PlanReduceOp } from "../plan/index.ts";
import { instancesToFill, type SimulatedMachine, type SystemParameters } from "../simulator/index.ts";
import { programOf } from "./program-of.ts";
import { numHops, passesRelays } from "./schedule-hops.ts";
import { MAX_CHUNKS, STRAND_LAYOUTS, type StrandLayout } from "./schedule-layout.ts";
import { type Synthesis, synthesize } from "./synthesize.ts";

/** Into how many pieces schedules are cut at first. */
const PIECES = [1, 2, 4, 8, 16, 32] as const;
/** Plans of more hops than this take minutes to compile and simulate, and are left out. */
const MOST_HOPS = 12_000;
/** The same for what is tried beside the best, hops of all instances together. */
const MOST_REFINED_HOPS = 60_000;

export interface Candidate {
  readonly name: string;
  readonly isLibrary: boolean;
  readonly plan: ExecutionPlan;
  /** Synthesised: the same schedule in twice as many pieces, in twice as many instances, and with each other layout of strands, where there is such a plan. */
  readonly finer: () => readonly Candidate[];
}

/**
 * Schedules of one topology that suit small, middling and large data; equal ones once.
 * @returns also that of the highest bandwidth, be it a program or not
 */
export async function schedulesFor(network: Network, collective: CertifiedCollective, root: number | undefined) {
  const base = root === undefined ? {} : { root };
  const isPaths = collective === "scatter" || collective === "gather" || collective === "all_to_all";
  const full = await synthesize(network, collective, base);
  const made: [string, Synthesis][] = [
    ["fewest-steps", await synthesize(network, collective, { ...base, fewestSteps: true })],
  ];
  if (!isPaths) made.push(["one-tree", await synthesize(network, collective, { ...base, treesPerRoot: 1 })]);
  if (isProgrammable(full)) made.push(["forest", full]);
  else if (!isPaths) {
    // Weights of many digits make more chunks than a program may have: then fewer trees, a little slower or of less height.
    for (const treesPerRoot of [8, 4, 2]) {
      const forest = await synthesize(network, collective, { ...base, treesPerRoot });
      if (isProgrammable(forest)) made.push([`forest-of-${treesPerRoot}`, forest]);
    }
  }
  const seen = new Set<string>();
  const distinct = made.filter(([, { schedule }]) => {
    const key = JSON.stringify(schedule);
    return seen.size < seen.add(key).size;
  });
  return { distinct, full };
}

function isProgrammable(result: Synthesis): boolean {
  try {
    programOf(result);
    return true;
  } catch (error) {
    if (error instanceof UnsupportedError) return false;
    throw error;
  }
}

/** Instances multiply chunks. */
function mostInstances(plan: ExecutionPlan): number {
  const chunks = Math.max(...plan.ranks.map(({ input, output }) => Math.max(input.chunks, output.chunks)));
  return Math.max(1, Math.floor(MAX_CHUNKS / Math.max(chunks, 1)));
}

/** How often a plan repeats its schedule, and in what strands. */
interface Cut {
  readonly pieces: number;
  readonly instances: number;
  readonly strands: StrandLayout;
}

/** Makes the candidates of one schedule. */
class ScheduleCandidates {
  readonly #known = new Map<string, Candidate | undefined>();
  readonly #name: string;
  readonly #result: Synthesis;
  readonly #op: PlanReduceOp | undefined;
  readonly #hops: number;
  readonly #layouts: readonly StrandLayout[];

  constructor(name: string, result: Synthesis, op: PlanReduceOp | undefined) {
    this.#name = name;
    this.#result = result;
    this.#op = op;
    this.#hops = numHops(result.schedule);
    this.#layouts = passesRelays(result.schedule, result.network) ? STRAND_LAYOUTS : ["ways"];
  }

  #compile(cut: Cut): ExecutionPlan {
    const op = this.#op === undefined ? {} : { op: this.#op };
    return compile(programOf(this.#result, { ...cut, ...op }), { verify: false });
  }

  #candidate(cut: Cut, plan: ExecutionPlan): Candidate {
    const { pieces, instances, strands } = cut;
    const candidate: Candidate = {
      name: `${this.#name}-${pieces}${instances === 1 ? "" : `-i${instances}`}${strands === "ways" ? "" : `-${strands}`}`,
      isLibrary: false,
      plan,
      finer: () =>
        [
          { ...cut, pieces: 2 * pieces },
          { ...cut, instances: 2 * instances },
          ...this.#layouts.filter((layout) => layout !== strands).map((layout) => ({ ...cut, strands: layout })),
        ]
          .map((next) => this.#finer(next))
          .filter((one) => one !== undefined),
    };
    this.#known.set(keyOf(cut), candidate);
    return candidate;
  }

  #finer(cut: Cut): Candidate | undefined {
    const { pieces, instances } = cut;
    const key = keyOf(cut);
    if (this.#known.has(key)) return this.#known.get(key);
    this.#known.set(key, undefined);
    if (this.#hops * pieces * instances > MOST_REFINED_HOPS || (pieces > 1 && this.#result.height <= 1))
      return undefined;
    try {
      return this.#candidate(cut, this.#compile(cut));
    } catch (error) {
      // More chunks than a program may have.
      if (error instanceof UnsupportedError) return undefined;
      throw error;
    }
  }

  /** The candidates that are tried at every size. */
  *first(instancesOf: (plan: ExecutionPlan) => number): Generator<Candidate> {
    for (const pieces of PIECES) {
      if (pieces > 1 && (this.#hops * pieces > MOST_HOPS || this.#result.height <= 1)) break;
      const cut = { pieces, instances: 1, strands: "ways" } as const;
      const single = this.#compile(cut);
      const instances = Math.min(instancesOf(single), mostInstances(single));
      yield this.#candidate({ ...cut, instances }, instances === 1 ? single : this.#compile({ ...cut, instances }));
    }
  }
}

const keyOf = ({ pieces, instances, strands }: Cut): string => `${pieces} ${instances} ${strands}`;

/** The plans of a schedule that are tried at every size. */
export function synthesisedCandidates(
  [name, result]: readonly [string, Synthesis],
  machine: SimulatedMachine,
  parameters: SystemParameters,
  op: PlanReduceOp | undefined,
): Generator<Candidate> {
  return new ScheduleCandidates(name, result, op).first((plan) => instancesToFill(plan, machine, parameters));
}

/** The library's algorithms for a collective, each alone and in as many instances as fill the links. */
export function* libraryCandidates(
  collective: CertifiedCollective,
  numRanks: number,
  root: number | undefined,
  machine: SimulatedMachine,
  parameters: SystemParameters,
): Generator<Candidate> {
  for (const entry of ALGORITHMS) {
    if (entry.collective !== collective || !entry.legal(numRanks) || entry.needsSwitch) continue;
    const make = (instances: number) =>
      compile(
        entry.make({ numRanks, ...(root === undefined ? {} : { root }), ...(instances === 1 ? {} : { instances }) }),
        { verify: false },
      );
    const single = make(1);
    const instances = instancesToFill(single, machine, parameters);
    for (const count of new Set([1, instances])) {
      const name = count === 1 ? entry.name : `${entry.name}*${count}`;
      yield { name, isLibrary: true, plan: count === 1 ? single : make(count), finer: () => [] };
    }
  }
}
