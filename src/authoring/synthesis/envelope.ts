/**
 * What is fastest at which size: the schedule of the fewest steps, the forest of one tree for each rank, the forest of the
 * highest bandwidth, each cut into pieces that follow each other and in as many instances as pay, in the layout of strands
 * that pays, and the library's algorithms; all simulated on the same machine. Beside each size stand the bounds that nothing beats: latency along the longest of the shortest ways, and
 * bandwidth. Refuses to measure: constants are the simulator's.
 */
import { formatSize, InvalidArgumentError, PlanError } from "../../core/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import { type ExecutionPlan, hashPlan, type PlanReduceOp } from "../plan/index.ts";
import { placeRanks, SimulatedMachine, type SystemParameters, simulate } from "../simulator/index.ts";
import { provePlan } from "../verifier/index.ts";
import { type Candidate, libraryCandidates, schedulesFor, synthesisedCandidates } from "./envelope-candidates.ts";
import { simulatedLatencyUs } from "./latency-bound.ts";

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

/** Schedules that take longer than this times the best so far are not tried in more pieces, instances and layouts. */
const WORTH_REFINING = 2;
/** More pieces or instances, or other strands, have to save a fiftieth. */
const WORTHWHILE = 0.98;

/** A plan and what it takes at the size at hand. */
interface Timed {
  readonly candidate: Candidate;
  readonly timeUs: number;
}

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
  const { distinct, full } = await schedulesFor(network, collective, root);
  const collect = (candidates: Iterable<Candidate>): Candidate[] => {
    const all: Candidate[] = [];
    for (const candidate of candidates) {
      options.onProgress?.(candidate.name);
      all.push(candidate);
    }
    return all;
  };
  const ours = distinct.map((schedule) => collect(synthesisedCandidates(schedule, machine, parameters, op)));
  const library = collect(libraryCandidates(collective, numRanks, root, machine, parameters));
  const tried = new Set([...ours.flat(), ...library]);
  const latencyUs = simulatedLatencyUs(machine, collective, root);
  const plans = new Map<string, ExecutionPlan>();
  const points = sizes.map((sizeBytes): EnvelopePoint => {
    options.onProgress?.(formatSize(sizeBytes));
    /** What a candidate takes, where it is less than `limitUs`: what takes longer is not simulated to its end. */
    const time = (candidate: Candidate, limitUs: number): Timed | undefined => {
      tried.add(candidate);
      const { completed, timeUs } = simulate(candidate.plan, {
        inventory,
        sizeBytes,
        parameters,
        devices,
        machine,
        untilUs: limitUs,
      });
      return completed && timeUs < limitUs ? { candidate, timeUs } : undefined;
    };
    const fastest = (candidates: readonly Candidate[], limitUs = Number.POSITIVE_INFINITY) => {
      let least: Timed | undefined;
      for (const candidate of candidates) least = time(candidate, least?.timeUs ?? limitUs) ?? least;
      return least;
    };
    let own: Timed | undefined;
    for (const candidates of ours) {
      let best = fastest(candidates, own === undefined ? undefined : own.timeUs * WORTH_REFINING);
      // In more pieces, instances and other strands, as long as that is worth it.
      for (let next = best; next !== undefined; ) {
        best = next;
        next = fastest(best.candidate.finer(), best.timeUs * WORTHWHILE);
      }
      if (best !== undefined && !(own !== undefined && own.timeUs <= best.timeUs)) own = best;
    }
    const others = fastest(library);
    const best = others === undefined || (own !== undefined && own.timeUs <= others.timeUs) ? own : others;
    if (best === undefined) throw new InvalidArgumentError("network", network, "a machine on which some plan ends");
    const { candidate, timeUs } = best;
    return {
      sizeBytes,
      use: candidate.isLibrary ? candidate.name : nameOf(candidate, collective, plans),
      timeUs,
      libraryUs: others?.timeUs,
      synthesisedUs: own?.timeUs ?? Number.POSITIVE_INFINITY,
      latencyBoundUs: latencyUs,
      bandwidthBoundUs: (full.bound.toNumber() * sizeBytes) / 1000,
    };
  });
  return { collective, numRanks, points, plans, numCandidates: tried.size };
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
