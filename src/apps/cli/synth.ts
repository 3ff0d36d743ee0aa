/** `chorale synth`: the provable optimum of a collective on a topology, a plan that reaches it, and the certificate. */
import { type Command, Option } from "commander";
import { switchAllReduce } from "../../authoring/algorithms/index.ts";
import {
  CERTIFIED_COLLECTIVES,
  type CertifiedCollective,
  checkCertificate,
  type Network,
} from "../../authoring/certificate/index.ts";
import { planToJson } from "../../authoring/interchange/index.ts";
import { compile } from "../../authoring/language/index.ts";
import { type ExecutionPlan, PLAN_REDUCE_OPS, type PlanReduceOp } from "../../authoring/plan/index.ts";
import { placeRanks, type SystemParameters, simulate } from "../../authoring/simulator/index.ts";
import {
  certify,
  checkNetwork,
  type Envelope,
  fastestStrands,
  inventoryOf,
  type MulticastTemplate,
  mostPieces,
  multicastTemplate,
  networkOf,
  piecesFor,
  pipelinedTime,
  programOf,
  STRAND_LAYOUTS,
  type StrandLayout,
  type Synthesis,
  sensitivity,
  synthesize,
  waveTimeUs,
} from "../../authoring/synthesis/index.ts";
import { defaultRanks, requireRanks } from "../../authoring/synthesis/internal.ts";
import { FormatError, formatSize, InvalidArgumentError, parseSize } from "../../core/index.ts";
import { readJsonFile } from "../../foreign/formats/index.ts";
import { type Inventory, LINK_KINDS, type LinkKind } from "../../machine/topology/index.ts";
import { collect, deviceIds, factor, refuseGiven, seconds, whole } from "./option-readers.ts";
import { print, printJson, reportProgress, showProgress } from "./output.ts";
import { loadParameters, loadTopology } from "./sim-input.ts";
import { DEFAULT_SIZES } from "./sim-library.ts";
import { elementSizesOf, type SizeFlags } from "./size-options.ts";
import { findEnvelope, ROOTED, renderEnvelope, requireStorable, storeEnvelope } from "./synth-envelope.ts";
import { renderSynthesis, type Summary } from "./synth-text.ts";
import { writeOutput } from "./write-output.ts";

interface Flags extends SizeFlags {
  readonly topology: string;
  readonly output?: string;
  readonly certificate?: string;
  readonly root?: number;
  readonly share?: readonly string[];
  readonly devices?: string;
  readonly relayDevices?: boolean;
  readonly links?: string;
  readonly effective?: boolean;
  readonly trees?: number;
  readonly fewestSteps?: boolean;
  readonly size: string;
  readonly pieces?: number;
  readonly strands?: StrandLayout;
  readonly instances?: number;
  readonly redop?: PlanReduceOp;
  readonly multicast?: boolean;
  readonly sensitivity?: boolean;
  readonly envelope?: boolean;
  readonly choices?: string;
  readonly params?: string;
  readonly timeLimit?: number;
  readonly json?: boolean;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument("<operation>", `one of ${CERTIFIED_COLLECTIVES.join(", ")}`)
    .requiredOption(
      "--topology <what>",
      "preset, N x PRESET, inventory, recorded root, ASTRA-sim network, XML of NCCL or RCCL, or network file",
    )
    .option("-o, --output <file>", "write the plan, as chorale's JSON")
    .option("--certificate <file>", "write the certificate, for `chorale check --certificate`")
    .option("--root <rank>", "of broadcast, reduce, scatter and gather (default: 0)", whole(0))
    .option("--share <fraction>", "one for each rank: what part of the data is its own (default: equal)", collect)
    .option("--devices <ids>", "the ranks' devices, comma-separated (default: the visible accelerators)")
    .option("--relay-devices", "accelerators outside the group pass data on")
    .option("--links <kinds>", `links that count, comma-separated: ${LINK_KINDS.join(", ")}`)
    .option("--effective", "count what links reach, not their rate")
    .option("--trees <k>", "at most this many trees for each rank: coarser chunks, a little slower", whole(1))
    .option("--fewest-steps", "the schedule of the fewest steps, for small data, instead of the fastest for large data")
    .option("--size <bytes>", "the size that the plan is cut into pieces for", "64M")
    .option("--pieces <p>", "cut each tree's share into this many pieces, instead of by the size", whole(1))
    .addOption(
      new Option(
        "--strands <layout>",
        "what has a strand of what leaves a rank by one link: each way, each way of each tree or path, or about equal loads (default: simulates which is fastest at --size)",
      ).choices(STRAND_LAYOUTS),
    )
    .option(
      "--instances <n>",
      "with -o, this many copies of each strand share its work: more links filled where one strand is slower than its link (default: 1)",
      whole(1),
    )
    .addOption(
      new Option("--redop <op>", "what all_reduce, reduce and reduce_scatter compute (default: sum)").choices(
        PLAN_REDUCE_OPS,
      ),
    )
    .option(
      "--multicast",
      "for -o: the template of a switch that multicasts and reduces (all_reduce; needs NVLS or SHARP)",
    )
    .option("--sensitivity", "say which links bind: the optimum with each at 90 % and 110 %")
    .option("--envelope", "simulate schedules of few steps and of many trees beside the library's algorithms, by size")
    .option("--choices <file>", "as --envelope, and add what is fastest to this file, for CHORALE_CHOICES")
    .option("-b, --min <size>", "with --envelope, the first size: the larger of a rank's two buffers (default: 1K)")
    .option("-e, --max <size>", "with --envelope, the last size (default: 256M)")
    .option("-f, --factor <f>", "with --envelope, each size is this times the one before", factor, 8)
    .option("--params <what>", "with --envelope, what things cost: a system's name, or a file of `chorale tune --fit`")
    .option(
      "--time-limit <seconds>",
      "end the search after this time with the best schedule found so far, and say so; fail when there is none",
      seconds,
    )
    .option("--json", "print one JSON document")
    .action(async (operation: string, flags: Flags) => exit(await run(operation, flags)));
}

/** Steps of machines of more ranks take so long that they are said where stderr is no terminal, too. */
const MANY_RANKS = 256;

/** Larger files are no network: the largest has a million edges. */
const MAX_NETWORK_BYTES = 2 ** 27;

const isNetworkFile = (topology: string): boolean => topology.endsWith(".network.json");

/** A file that is a network by itself, or else any topology; `inventory` is what plans are simulated on. */
async function machineFor(
  flags: Flags,
  collective: CertifiedCollective,
): Promise<{ network: Network; inventory: () => Inventory }> {
  if (isNetworkFile(flags.topology)) {
    const value = readJsonFile(flags.topology, MAX_NETWORK_BYTES);
    try {
      checkNetwork(value);
    } catch (error) {
      // The same by the file's name.
      if (!(error instanceof FormatError)) throw error;
      throw new FormatError(flags.topology, error.message.replace(/^network: /, ""), { cause: error });
    }
    const network = value as Network;
    return { network, inventory: () => inventoryOf(network) };
  }
  const links = flags.links?.split(",").map((name) => {
    const kind = LINK_KINDS.find((one) => one === name.trim());
    if (kind === undefined) throw new InvalidArgumentError("--links", name, LINK_KINDS.join(", "));
    return kind;
  }) as LinkKind[] | undefined;
  const inventory = await loadTopology(flags.topology);
  const devices = deviceIds(flags.devices);
  // Before the network is made, which takes half a minute of 30,000 ranks.
  requireRanks((devices ?? defaultRanks(inventory)).length, collective);
  const network = networkOf(inventory, {
    ...(devices === undefined ? {} : { devices }),
    ...(flags.relayDevices === undefined ? {} : { relayDevices: flags.relayDevices }),
    ...(flags.effective === undefined ? {} : { effective: flags.effective }),
    ...(links === undefined ? {} : { links }),
  });
  return { network, inventory: () => inventory };
}

/** The envelope, where it was asked for; stored, where that was. */
async function envelopeFor(
  flags: Flags,
  collective: CertifiedCollective,
  network: Network,
  inventory: () => Inventory,
): Promise<{ found: Envelope; parameters: SystemParameters } | undefined> {
  if (flags.envelope !== true && flags.choices === undefined) {
    for (const name of ["min", "max", "params"] as const) {
      if (flags[name] !== undefined)
        throw new InvalidArgumentError(`--${name}`, flags[name], "--envelope or --choices with it");
    }
    return undefined;
  }
  const machine = inventory();
  const parameters = isNetworkFile(flags.topology)
    ? await loadParameters(flags.params ?? "ideal", flags.topology, machine)
    : await loadParameters(flags.params, flags.topology, machine);
  const found = await findEnvelope({
    network,
    collective,
    inventory: machine,
    parameters,
    devices: deviceIds(flags.devices),
    sizes: elementSizesOf(flags, DEFAULT_SIZES, "u8"),
    root: flags.root ?? 0,
    op: flags.redop ?? "sum",
  });
  if (flags.choices !== undefined) storeEnvelope(flags.choices, found);
  return { found, parameters };
}

/** The latency of one step: the largest of an edge. */
function stepUs(network: Network): number {
  return network.edges.reduce((most, { latencyUs = 0 }) => Math.max(most, latencyUs), 0);
}

/** Hops of which a schedule's time is summed up; of more, the formula of their height is taken, which is an upper estimate. */
const MOST_HOPS = 300_000;

function timeInPieces(result: Synthesis, sizeBytes: number, pieces: number): number {
  const { network, schedule, height, time } = result;
  const numHops = schedule.kind === "trees" ? schedule.trees.length * network.nodes.length : schedule.paths.length;
  if (numHops <= MOST_HOPS) return waveTimeUs(result, sizeBytes, pieces, stepUs(network));
  return pipelinedTime(height, stepUs(network), (time.toNumber() * sizeBytes) / 1000, pieces);
}

/** A plan as it is written and in the number of instances that is fastest, simulated. */
interface Simulated {
  readonly system: string;
  readonly writtenUs: number;
  readonly instances: number;
  readonly timeUs: number;
}

/** Instances that are tried beside one, and the share of the most hops of a plan that simulating them may take. */
const TRIED_INSTANCES = [2, 4, 8];
const TRIED_SHARE = 1 / 8;
/** More copies of a strand than this no engine has blocks for. */
const MOST_INSTANCES = 32;

async function simulated(
  make: (instances: number) => ExecutionPlan,
  written: ExecutionPlan,
  mostTried: number,
  flags: Flags,
  inventory: Inventory,
): Promise<Simulated> {
  const parameters = await loadParameters(undefined, flags.topology, inventory);
  const devices = placeRanks(written.ranks.length, inventory, deviceIds(flags.devices));
  const sizeBytes = parseSize(flags.size, "--size");
  const timeOf = (plan: ExecutionPlan) => simulate(plan, { inventory, parameters, devices, sizeBytes }).timeUs;
  const writtenUs = timeOf(written);
  let best = { instances: flags.instances ?? 1, timeUs: writtenUs };
  for (const instances of flags.instances === undefined ? TRIED_INSTANCES : []) {
    if (instances > mostTried) break;
    const timeUs = timeOf(make(instances));
    // More have to save a fiftieth.
    if (timeUs > best.timeUs * 0.98) break;
    best = { instances, timeUs };
  }
  return { system: parameters.name, writtenUs, ...best };
}

function simulatedText({ system, writtenUs, instances, timeUs }: Simulated, size: number): string {
  const more = timeUs < writtenUs ? `, ${timeUs.toFixed(1)} us with --instances ${instances}` : "";
  return `Simulated at ${formatSize(size)} with the costs of ${system}, the written plan takes ${writtenUs.toFixed(1)} us${more}.`;
}

const writePlan = (file: string, plan: ExecutionPlan): void => writeOutput("-o", file, `${planToJson(plan, 2)}\n`);

/** Each step of a machine of thousands of devices takes seconds, or minutes: the one under way is said. */
async function run(operation: string, flags: Flags): Promise<number> {
  try {
    return await answer(operation, flags);
  } finally {
    showProgress("");
  }
}

async function answer(operation: string, flags: Flags): Promise<number> {
  const collective = CERTIFIED_COLLECTIVES.find((name) => name === operation) as CertifiedCollective | undefined;
  if (collective === undefined)
    throw new InvalidArgumentError("OPERATION", operation, CERTIFIED_COLLECTIVES.join(", "));
  const sizeBytes = parseSize(flags.size, "--size");
  if (sizeBytes === 0) throw new InvalidArgumentError("--size", flags.size, "a size above 0");
  if (flags.output === undefined) refuseGiven({ "--strands": flags.strands }, "-o");
  if (flags.timeLimit !== undefined) refuseUnlimited(flags);
  requireFor(ROOTED, collective, "--root", flags.root);
  requireFor(REDUCING, collective, "--redop", flags.redop);
  if (flags.choices !== undefined) requireStorable(collective, flags.choices);
  if (flags.instances !== undefined && (flags.output === undefined || flags.multicast === true))
    throw new InvalidArgumentError("--instances", flags.instances, "-o with it, and no --multicast");
  showProgress(`reading ${flags.topology}`);
  const { network, inventory } = await machineFor(flags, collective);
  const options = {
    ...(flags.root === undefined ? {} : { root: flags.root }),
    ...(flags.share === undefined ? {} : { shares: flags.share }),
    ...(flags.trees === undefined ? {} : { treesPerRoot: flags.trees }),
    ...(flags.fewestSteps === undefined ? {} : { fewestSteps: flags.fewestSteps }),
    ...(flags.timeLimit === undefined ? {} : { timeLimitSeconds: flags.timeLimit }),
  };
  const template = collective === "all_reduce" ? multicastTemplate(network) : undefined;
  if (flags.multicast === true) requireTemplate(flags, template);
  const numRanks = network.nodes.filter(({ kind }) => kind === "rank").length;
  const say = numRanks > MANY_RANKS ? reportProgress : showProgress;
  say(`finding the optimum of ${collective} over ${numRanks} ranks`);
  const result = await synthesize(network, collective, options);
  const fluidUs = (result.time.toNumber() * sizeBytes) / 1000;
  const most = Math.max(1, mostPieces(result));
  if (flags.pieces !== undefined && flags.pieces > most)
    throw new InvalidArgumentError("--pieces", flags.pieces, `1 to ${most} for this schedule`);
  const mostCopies = Math.min(MOST_INSTANCES, Math.floor(most / (flags.pieces ?? 1)));
  if (flags.instances !== undefined && flags.instances > mostCopies)
    throw new InvalidArgumentError("--instances", flags.instances, `1 to ${mostCopies} for this schedule`);
  const pieces = flags.pieces ?? piecesFor(result.height, stepUs(network), fluidUs, Math.min(8, most));
  if (result.isOptimal && flags.certificate !== undefined) {
    say("checking the certificate");
    const certificate = certify(result);
    const { faults } = checkCertificate(certificate);
    if (faults.length > 0) throw new Error(`the certificate does not hold: ${faults.join("; ")}`);
    writeOutput("--certificate", flags.certificate, `${JSON.stringify(certificate)}\n`);
  }
  let timed: Simulated | undefined;
  if (flags.output !== undefined) {
    say("compiling the plan and proving it");
    const op = flags.redop ?? "sum";
    const base = { pieces, op };
    const strands = flags.multicast === true ? "ways" : (flags.strands ?? fastestStrands(result, sizeBytes, base));
    const make = (instances: number) => compile(programOf(result, { ...base, strands, instances }), { verify: false });
    if (flags.multicast === true) {
      const program = switchAllReduce({ numRanks: checkNetwork(network).ranks.length, inPlace: true, op });
      writePlan(flags.output, compile(program));
    } else {
      const plan = compile(programOf(result, { ...base, strands, instances: flags.instances ?? 1 }));
      writePlan(flags.output, plan);
      const mostTried = (most * TRIED_SHARE) / pieces;
      if (!isNetworkFile(flags.topology) && (flags.instances ?? 1) <= mostTried) {
        say("simulating the plan");
        timed = await simulated(make, plan, mostTried, flags, inventory());
      }
    }
  }
  const sizes = await envelopeFor(flags, collective, network, inventory);
  const { plans, ...envelope } = sizes?.found ?? {};
  if (flags.sensitivity === true) say("finding which links bind");
  const summary: Summary = {
    operation: collective,
    topology: flags.topology,
    ranks: checkNetwork(network).ranks.length,
    bound: result.bound.toString(),
    boundGBps: 1 / result.bound.toNumber(),
    time: result.time.toString(),
    timeGBps: 1 / result.time.toNumber(),
    optimal: result.isOptimal,
    status: result.status,
    gap: result.time.over(result.bound).toNumber(),
    witness: result.witness,
    height: result.height,
    heightBound: result.heightBound,
    parts: (result.schedule.kind === "trees" ? result.schedule.trees : result.schedule.paths).length,
    size: { sizeBytes, pieces, timeUs: timeInPieces(result, sizeBytes, pieces), fluidUs },
    ...(template === undefined ? {} : { multicast: multicastSummary(template) }),
    ...(flags.sensitivity === true ? { sensitivity: await sensitivity(network, collective, options) } : {}),
    ...(sizes === undefined ? {} : { envelope: envelope as Omit<Envelope, "plans"> }),
  };
  showProgress("");
  if (flags.json === true) printJson(summary, 2);
  else
    print(
      renderSynthesis(summary, result) +
        (timed === undefined ? "" : `${simulatedText(timed, sizeBytes)}\n`) +
        (sizes === undefined ? "" : `${renderEnvelope(sizes.found, sizes.parameters)}\n`),
    );
  // Without an optimum there is no certificate: whoever asked for one must not go on without it.
  return flags.certificate !== undefined && !result.isOptimal ? 1 : 0;
}

const REDUCING: readonly CertifiedCollective[] = ["all_reduce", "reduce", "reduce_scatter"];

/** @throws InvalidArgumentError for an option that says nothing about this collective: it would be ignored */
function requireFor(
  some: readonly CertifiedCollective[],
  collective: CertifiedCollective,
  name: string,
  value: unknown,
) {
  if (value !== undefined && !some.includes(collective))
    throw new InvalidArgumentError(name, value, `nothing for ${collective}: it is for ${some.join(", ")}`);
}

/** @throws InvalidArgumentError for what searches on by itself, without a limit */
function refuseUnlimited({ timeLimit, envelope, choices, sensitivity }: Flags): void {
  for (const [name, value] of Object.entries({ envelope, choices, sensitivity }))
    if (value !== undefined) throw new InvalidArgumentError("--time-limit", timeLimit, `no --${name} beside it`);
}

/** @throws InvalidArgumentError where there is no template, or something else is asked for that it has not */
function requireTemplate(flags: Flags, template: MulticastTemplate | undefined): void {
  if (template === undefined)
    throw new InvalidArgumentError("--multicast", true, "all_reduce on a topology where one switch joins all ranks");
  if (flags.output === undefined) throw new InvalidArgumentError("--multicast", true, "-o with it: the plan's file");
  if (flags.certificate !== undefined)
    throw new InvalidArgumentError(
      "--multicast",
      true,
      "no --certificate: it would be of the schedule without multicast",
    );
}

function multicastSummary({ bound, time, ...template }: MulticastTemplate): NonNullable<Summary["multicast"]> {
  return { switch: template.switch, bound: bound.toString(), time: time.toString(), gap: time.over(bound).toNumber() };
}
