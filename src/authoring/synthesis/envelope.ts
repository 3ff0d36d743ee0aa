/**
 * What is fastest at which size: the schedule of the fewest steps, the forest of one tree for each rank, the forest of the
 * highest bandwidth, each cut into pieces that follow each other, and the library's algorithms; all simulated on the same
 * machine. Beside each size stand the bounds that nothing beats: latency along the longest of the shortest ways, and
 * bandwidth. Refuses to measure: constants are the simulator's.
 */
import { formatSize, InvalidArgumentError, PlanError, UnsupportedError } from "../../core/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { ALGORITHMS } from "../algorithms/index.ts";
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import { compile } from "../language/index.ts";
import { type ExecutionPlan, hashPlan, type PlanReduceOp } from "../plan/index.ts";
import { instancesToFill, placeRanks, SimulatedMachine, type SystemParameters, simulate } from "../simulator/index.ts";
import { provePlan } from "../verifier/index.ts";
import { simulatedLatencyUs } from "./latency-bound.ts";
import { programOf } from "./program-of.ts";
import { MAX_CHUNKS } from "./schedule-layout.ts";
import { type Synthesis, synthesize } from "./synthesize.ts";

/** Into how many pieces schedules are cut. */
const PIECES = [1, 2, 4, 8, 16, 32] as const;
/** Plans of more hops than this take minutes to compile and simulate, and are left out. */
const MOST_HOPS = 12_000;

export interface EnvelopeOptions {
  readonly inventory: Inventory;
  readonly parameters: SystemParameters;
  /** Device of each rank; the accelerators in order by default. */
  readonly devices?: readonly string[];
  /** Sizes of the larger of a rank's two buffers, bytes, ascending. */
  readonly sizes: readonly number[];
  readonly root?: number;
  readonly op?: PlanReduceOp;
  readonly onProgress?: (what: string) => void;
}

/** What serves sizes from `sizeBytes` on. */
export interface EnvelopePoint {
  readonly sizeBytes: number;
  /** A name in `plans`, or `NAME` or `NAME*INSTANCES` of the library. */
  readonly use: string;
  readonly timeUs: number;
  /** The best of the library here, and the best of what was synthesised. */
  readonly libraryUs: number | undefined;
  readonly synthesisedUs: number;
  readonly latencyBoundUs: number;
  readonly bandwidthBoundUs: number;
}

export interface Envelope {
  readonly collective: CertifiedCollective;
  readonly numRanks: number;
  readonly points: readonly EnvelopePoint[];
  /** The synthesised plans that serve some size, by name; each was proved right. */
  readonly plans: ReadonlyMap<string, ExecutionPlan>;
  /** How many candidates were simulated. */
  readonly numCandidates: number;
}

interface Candidate {
  readonly name: string;
  readonly isLibrary: boolean;
  readonly plan: ExecutionPlan;
}

/** Schedules of one topology that suit small, middling and large data; equal ones once. */
async function schedules(network: Network, collective: CertifiedCollective, root: number | undefined) {
  const base = root === undefined ? {} : { root };
  const isPaths = collective === "scatter" || collective === "gather" || collective === "all_to_all";
  const full = await synthesize(network, collective, base);
  const made: [string, Synthesis][] = [
    ["fewest-steps", await synthesize(network, collective, { ...base, fewestSteps: true })],
  ];
  if (!isPaths) made.push(["one-tree", await synthesize(network, collective, { ...base, treesPerRoot: 1 })]);
  // Weights of many digits make more chunks than a program may have: then fewer trees, a little slower.
  let forest = full;
  for (const treesPerRoot of isPaths ? [] : [8, 4, 2]) {
    if (isProgrammable(forest)) break;
    forest = await synthesize(network, collective, { ...base, treesPerRoot });
  }
  if (isProgrammable(forest)) made.push(["forest", forest]);
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

const numHops = ({ schedule }: Synthesis): number =>
  schedule.kind === "trees"
    ? schedule.trees.reduce((sum, { up = [], down = [] }) => sum + up.length + down.length, 0)
    : schedule.paths.reduce((sum, { route }) => sum + route.length - 1, 0);

/**
 * Finds what is fastest at each size.
 * @param network the network of the inventory's devices, in the same order
 * @throws as `synthesize`; InvalidArgumentError for no sizes, or sizes that do not ascend
 * @example
 * import { envelope, networkOf } from "chorale/synthesis";
 * import { parametersFor } from "chorale/simulator";
 * import { presetInventory } from "chorale/topology";
 * const inventory = presetInventory("hgx-a100-8");
 * const parameters = parametersFor("NVIDIA A100", "8.0");
 * const { points } = await envelope(networkOf(inventory), "all_gather", { inventory, parameters, sizes: [2 ** 14, 2 ** 26] });
 * console.log(points.map(({ use, timeUs }) => `${use} ${timeUs}`));
 */
export async function envelope(
  network: Network,
  collective: CertifiedCollective,
  options: EnvelopeOptions,
): Promise<Envelope> {
  const { inventory, parameters, sizes, root, op } = options;
  if (sizes.length === 0 || sizes.some((size, i) => !(size > (sizes[i - 1] ?? 0)))) {
    throw new InvalidArgumentError("sizes", sizes, "sizes above 0 that ascend");
  }
  const numRanks = network.nodes.filter(({ kind }) => kind === "rank").length;
  const devices = placeRanks(numRanks, inventory, options.devices);
  const machine = new SimulatedMachine(inventory, devices, parameters);
  const { distinct, full } = await schedules(network, collective, root);
  const candidates: Candidate[] = [];
  for (const [name, result] of distinct) {
    for (const pieces of PIECES) {
      if (pieces > 1 && (numHops(result) * pieces > MOST_HOPS || result.height <= 1)) break;
      options.onProgress?.(`${name} in ${pieces} pieces`);
      const make = (instances: number) =>
        compile(programOf(result, { pieces, instances, ...(op === undefined ? {} : { op }) }), { verify: false });
      const single = make(1);
      const instances = Math.min(instancesToFill(single, machine, parameters), mostInstances(single));
      const plan = instances === 1 ? single : make(instances);
      candidates.push({ name: `${name}-${pieces}`, isLibrary: false, plan });
    }
  }
  for (const entry of ALGORITHMS) {
    if (entry.collective !== collective || !entry.legal(numRanks) || entry.needsSwitch) continue;
    options.onProgress?.(entry.name);
    const make = (instances: number) =>
      compile(
        entry.make({ numRanks, ...(root === undefined ? {} : { root }), ...(instances === 1 ? {} : { instances }) }),
        {
          verify: false,
        },
      );
    const single = make(1);
    const instances = instancesToFill(single, machine, parameters);
    for (const count of new Set([1, instances])) {
      const name = count === 1 ? entry.name : `${entry.name}*${count}`;
      candidates.push({ name, isLibrary: true, plan: count === 1 ? single : make(count) });
    }
  }
  const latencyUs = simulatedLatencyUs(machine, collective, root);
  const plans = new Map<string, ExecutionPlan>();
  const points = sizes.map((sizeBytes): EnvelopePoint => {
    options.onProgress?.(formatSize(sizeBytes));
    const timed = candidates
      .map((candidate) => ({
        candidate,
        ...simulate(candidate.plan, { inventory, sizeBytes, parameters, devices, machine }),
      }))
      .filter(({ completed }) => completed)
      .sort((a, b) => a.timeUs - b.timeUs);
    const [best] = timed;
    if (best === undefined) throw new InvalidArgumentError("network", network, "a machine on which some plan ends");
    const { candidate, timeUs } = best;
    return {
      sizeBytes,
      use: candidate.isLibrary ? candidate.name : nameOf(candidate, collective, plans),
      timeUs,
      libraryUs: timed.find((one) => one.candidate.isLibrary)?.timeUs,
      synthesisedUs: timed.find((one) => !one.candidate.isLibrary)?.timeUs ?? Number.POSITIVE_INFINITY,
      latencyBoundUs: latencyUs,
      bandwidthBoundUs: (full.bound.toNumber() * sizeBytes) / 1000,
    };
  });
  return { collective, numRanks, points, plans, numCandidates: candidates.length };
}

/** Instances multiply chunks. */
function mostInstances(plan: ExecutionPlan): number {
  const chunks = Math.max(...plan.ranks.map(({ input, output }) => Math.max(input.chunks, output.chunks)));
  return Math.max(1, Math.floor(MAX_CHUNKS / Math.max(chunks, 1)));
}

/** Names a plan by what it is and by its hash, so that tables of several topologies can stand in one file. */
function nameOf({ name, plan }: Candidate, collective: string, plans: Map<string, ExecutionPlan>): string {
  const full = `synthesised-${collective.replaceAll("_", "-")}-${name}-h${hashPlan(plan).slice(0, 8)}`;
  if (!plans.has(full)) {
    const verdict = provePlan(plan);
    if (!verdict.ok) throw new PlanError(full, verdict.findings);
    plans.set(full, plan);
  }
  return full;
}
