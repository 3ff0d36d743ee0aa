/**
 * How long a collective of NCCL takes on NVIDIA's devices: for each algorithm and protocol that this version may choose
 * there, latency of its hops + what fills its pipeline + bytes over what its narrowest stage reaches; the fastest is taken.
 *
 * Latencies per hop and LL's ceilings are NCCL's own (nccl-constants.ts); what machines reach of their rates, what networks
 * add and what launching costs is fitted (nccl-fit.ts). A ring of n ranks over N nodes crosses the network N times a round
 * (N - 1 with one rank a node), a double tree 2 log2 N times. Bytes that leave a node: as much as a ring's bus bandwidth
 * says; all of a rank's in a tree of two nodes, twice that in a larger one; (n - g) / n of every rank's in an exchange.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import {
  type CollectiveEstimate,
  type EstimateOptions,
  type LibraryAlgorithm,
  ranksPerNode,
  type TimedOperation,
  timedBusFactor,
  transferUs,
} from "./collective-estimate.ts";
import { type CollectiveMachine, type NvidiaGeneration, nvidiaGeneration } from "./collective-machine.ts";
import {
  NCCL_BASE_US,
  NCCL_GENERATIONS,
  NCCL_HOP_US,
  NCCL_LL128_FRACTION,
  NCCL_NETWORK_LL_GBPS,
  NCCL_NVLS,
  NCCL_PROTOCOL_NAMES,
  NCCL_TREE,
  type NcclProtocol,
} from "./nccl-constants.ts";
import { type GenerationFit, NCCL_FIT, type NcclFit, type NetworkFit } from "./nccl-fit.ts";
import { type NcclMachine, ncclTime } from "./nccl-model.ts";
import { isSince, nvlsShareOf } from "./nccl-versions.ts";
import { ncclUncertainty, unseenFactor } from "./uncertainty.ts";

/** PCIe 4 x16, for devices whose host link is of another kind or not known. */
const UNKNOWN_PCIE_GBPS = 31.5;

/** What the formulas below share for one machine. */
interface Setting {
  readonly machine: CollectiveMachine;
  readonly options: EstimateOptions;
  readonly fit: NcclFit;
  readonly generation: NvidiaGeneration;
  readonly own: GenerationFit;
  readonly network: NetworkFit | undefined;
  /** Ranks a node. */
  readonly g: number;
  readonly onFabric: boolean;
  /** Bus bandwidth of a ring within a node, and what leaves a node. */
  readonly ringGBps: number;
  readonly networkGBps: number;
  /** What one device sends to one other: within a node, and between nodes through its own NICs. */
  readonly pairGBps: number;
  readonly networkPairGBps: number;
  readonly latencyFactor: number;
}

function settingOf(machine: CollectiveMachine, options: EstimateOptions, fit: NcclFit): Setting {
  const generation = nvidiaGeneration(machine.arch);
  if (generation === undefined)
    throw new InvalidArgumentError(
      "device",
      described(`${machine.device} (${machine.arch})`),
      "a device with a compute capability",
    );
  const own = fit.generations[generation];
  const { fabric } = machine;
  const g = ranksPerNode(machine);
  const onFabric = fabric.kind === "fabric";
  const share = fabric.kind === "shm" ? fit.pcie.shm : fabric.crossesSockets ? fit.pcie.sockets : fit.pcie.socket;
  const { linkGBps, signalGBps } = NCCL_GENERATIONS[generation];
  const payload = linkGBps / signalGBps;
  const pcieGBps = (fabric.pcieGBps || UNKNOWN_PCIE_GBPS) * share;
  const ringGBps = onFabric ? fabric.deviceGBps * payload * own.ringEfficiency : pcieGBps;
  const pairGBps = onFabric ? fabric.pairGBps * payload * own.exchangeEfficiency : pcieGBps;
  const kind = machine.network?.kind;
  const network =
    kind === undefined ? undefined : ((kind === "efa" ? fit.efa[generation] : undefined) ?? fit.networks[kind]);
  const staged = !onFabric && fabric.pcieGBps > 0;
  const reached = (GBps: number, efficiency = 1) =>
    staged
      ? Math.min(GBps * efficiency * fit.hostStaging.networkShare, fabric.pcieGBps * fit.hostStaging.pcieShare)
      : GBps * efficiency;
  const { nodeGBps, numNics } = machine.network ?? { nodeGBps: 0, numNics: 1 };
  const isAlone = machine.network === undefined;
  const networkGBps = isAlone ? Number.POSITIVE_INFINITY : reached(nodeGBps, network?.efficiency);
  const networkPairGBps = isAlone
    ? Number.POSITIVE_INFINITY
    : reached(nodeGBps / Math.min(g, numNics), network?.exchangeEfficiency);
  const latencyFactor = machine.numNodes > 1 ? own.networkLatencyFactor : own.latencyFactor;
  return {
    machine,
    options,
    fit,
    generation,
    own,
    network,
    g,
    onFabric,
    ringGBps,
    networkGBps,
    pairGBps,
    networkPairGBps,
    latencyFactor,
  };
}

type Hop = { readonly intraUs: number; readonly networkUs: number };

function hopOf({ onFabric, latencyFactor, network }: Setting, algorithm: "ring" | "tree", protocol: NcclProtocol): Hop {
  const intraUs = NCCL_HOP_US[onFabric ? "nvlink" : "pcie"][algorithm][protocol] * latencyFactor;
  return { intraUs, networkUs: NCCL_HOP_US.network[algorithm][protocol] + (network?.extraHopUs ?? 0) };
}

/** Bus bandwidth of a protocol, where Simple reaches `GBps` within a node. */
function protocolGBps(setting: Setting, protocol: NcclProtocol, intraGBps: number): number {
  const { machine, options, own, fit, networkGBps, onFabric, generation } = setting;
  const across = machine.numNodes > 1;
  if (protocol === "Simple") return Math.min(intraGBps, networkGBps);
  if (protocol === "LL128") return Math.min(intraGBps * NCCL_LL128_FRACTION, networkGBps * fit.networkLL128Share);
  const inside = onFabric
    ? Math.min(options.llGBps ?? own.llGBps, intraGBps / 2)
    : (machine.fabric.pcieGBps || UNKNOWN_PCIE_GBPS) * fit.pcie.llShare;
  if (!across) return inside;
  const table = NCCL_NETWORK_LL_GBPS[generation];
  return Math.min(inside, networkGBps * fit.networkLLShare, machine.numNodes > 2 ? table.more : table.two);
}

const filled = (bytes: number, us: number, fillBytes: number) => (us * bytes) / (bytes + fillBytes);

function ringUs(setting: Setting, op: TimedOperation, bytes: number, protocol: NcclProtocol): number {
  const { machine, g, fit } = setting;
  const { numRanks: n, numNodes } = machine;
  const rounds = op === "all_reduce" ? 2 : 1;
  const crossings = numNodes > 1 ? rounds * (g > 1 ? numNodes : numNodes - 1) : 0;
  const { intraUs, networkUs } = hopOf(setting, "ring", protocol);
  const steps = rounds * (n - 1);
  const latency =
    NCCL_BASE_US.ring[protocol] * setting.latencyFactor +
    Math.max(0, steps - crossings) * intraUs +
    Math.min(steps, crossings) * networkUs;
  const fill = numNodes > 1 && protocol === "Simple" ? filled(bytes, fit.networkFill.us, fit.networkFill.bytes) : 0;
  return latency + fill + transferUs(bytes * timedBusFactor(op, n), protocolGBps(setting, protocol, setting.ringGBps));
}

function treeUs(setting: Setting, bytes: number, protocol: NcclProtocol): number {
  const { machine, g, fit, ringGBps, networkGBps } = setting;
  const { numNodes } = machine;
  const { intraUs, networkUs } = hopOf(setting, "tree", protocol);
  const latency =
    NCCL_BASE_US.tree[protocol] * setting.latencyFactor +
    2 * ((g - 1) * intraUs + Math.ceil(Math.log2(numNodes)) * networkUs);
  // Every byte goes up and down: half of a ring's rate. On two nodes each sends once, with a NIC for every rank.
  const once = numNodes === 2 && (machine.network?.numNics ?? 0) >= g;
  const inside = (ringGBps * fit.treeEfficiency) / (protocol === "LL" ? NCCL_TREE.llDivisor / 2 : 1);
  const widest = { ...setting, networkGBps: networkGBps * (once ? 2 : 1) };
  const fill = filled(bytes, setting.network?.treeFillUs ?? 0, fit.treeFillBytes);
  return latency + fill + transferUs(2 * bytes, protocolGBps(widest, protocol, inside));
}

/** Each device holds a share of the result: with fewer than eight, its own share weighs more. */
const shareFactor = (g: number) => Math.min(1, (g / (g + 1)) * (9 / 8));

function nvlsUs(setting: Setting, bytes: number): number {
  const { fit, own, g } = setting;
  const rate = (own.nvlsGBps ?? 0) * shareFactor(g);
  return fit.nvls.baseUs + filled(bytes, fit.nvls.fillUs, fit.nvls.fillBytes) + transferUs(bytes, rate);
}

function nvlsTreeUs(setting: Setting, bytes: number): number {
  const { machine, fit, own, g, networkGBps } = setting;
  const rate = Math.min(
    (own.nvlsGBps ?? 0) * shareFactor(g) * fit.nvlsTree.efficiency,
    networkGBps / (machine.numNodes === 2 ? 1 : 2),
  );
  const { networkUs } = hopOf(setting, "tree", "Simple");
  const latency = fit.nvls.baseUs + 2 * Math.ceil(Math.log2(machine.numNodes)) * networkUs;
  const fill =
    filled(bytes, setting.network?.treeFillUs ?? 0, fit.treeFillBytes) +
    filled(bytes, fit.nvlsTree.fillUs, fit.nvlsTree.fillBytes);
  return latency + fill + transferUs(bytes, rate);
}

/** Parallel aggregated trees, one rank a node: a logarithm of steps, at three quarters of a ring's rate. */
function patUs(setting: Setting, op: TimedOperation, bytes: number): number {
  const { numRanks: n } = setting.machine;
  const latency = 8 + Math.ceil(Math.log2(n)) * hopOf(setting, "ring", "LL128").networkUs;
  return latency + transferUs(bytes * timedBusFactor(op, n), 0.75 * protocolGBps(setting, "Simple", setting.ringGBps));
}

/** Sends and receives with every other rank, or with one neighbour; between nodes a root or a neighbour has its own NICs alone. */
function exchangeUs(setting: Setting, op: TimedOperation, bytes: number): number {
  const { machine, g, fit, own, network, ringGBps, networkGBps, pairGBps, networkPairGBps } = setting;
  const { numRanks: n, numNodes } = machine;
  const rooted = op === "gather" || op === "scatter";
  const insidePeers = op === "sendrecv" ? 1 : g - 1;
  const outsidePeers = op === "sendrecv" ? (numNodes > 1 ? 1 : 0) : n - g;
  const shareOf = (peers: number) => (op === "sendrecv" ? bytes : (bytes * peers) / n);
  const all = (ringGBps / own.ringEfficiency) * own.exchangeEfficiency;
  const inside = transferUs(g > 1 ? shareOf(insidePeers) : 0, op === "sendrecv" ? pairGBps : all);
  const racks = machine.numHosts > numNodes ? fit.exchange.rackShare : 1;
  const share = network === undefined ? 1 : (racks * network.exchangeEfficiency) / network.efficiency;
  const outside =
    op === "sendrecv" || rooted
      ? transferUs(shareOf(outsidePeers), networkPairGBps)
      : transferUs(shareOf(outsidePeers) * g, networkGBps * share);
  const latency =
    fit.exchange.baseUs +
    insidePeers * fit.exchange.peerUs +
    (numNodes > 1
      ? NCCL_HOP_US.network.ring.LL + (network?.extraHopUs ?? 0) + outsidePeers * fit.exchange.networkPeerUs
      : 0);
  return latency + Math.max(inside, outside);
}

/**
 * Whether NCCL of a version before 2.28 would take NVLS on one node, by its own estimates, which know neither launches nor
 * what machines reach. Undefined of a newer one, whose choice is taken to be the faster.
 */
function ownChoiceIsNvls({ machine, options, generation, ringGBps, own }: Setting, bytes: number): boolean | undefined {
  const share = nvlsShareOf(options.version);
  if (share === undefined) return undefined;
  const intraGBps = ringGBps / own.ringEfficiency;
  const itself: NcclMachine = {
    numRanks: machine.numRanks,
    numNodes: 1,
    intraGBps,
    interGBps: 0,
    llMaxGBps: NCCL_GENERATIONS[generation].llMaxGBps,
    nvlink: true,
    nvls: false,
  };
  const rings = NCCL_PROTOCOL_NAMES.map((protocol) => ncclTime("all_reduce", bytes, itself, "ring", protocol) ?? 0);
  return NCCL_NVLS.baseUs + transferUs(bytes, intraGBps * share) < Math.min(...rings);
}

/** Long messages are registered and announced while others are on their way: the two overlap. */
function withRendezvous({ network }: Setting, timeUs: number, bytes: number): number {
  if (network?.rendezvous === undefined) return timeUs;
  return Math.hypot(timeUs, filled(bytes, network.rendezvous.us, network.rendezvous.bytes));
}

interface Candidate {
  readonly algorithm: LibraryAlgorithm;
  readonly protocol: NcclProtocol;
  readonly us: (bytes: number) => number;
}

/** What this version of NCCL may choose for an operation on this machine. */
function candidatesOf(setting: Setting, op: TimedOperation): Candidate[] {
  const { machine, options, own, network, g, onFabric } = setting;
  const since = (version: string) => isSince(options.version, version);
  if (op === "all_to_all" || op === "sendrecv" || op === "gather" || op === "scatter")
    return [{ algorithm: "p2p", protocol: "Simple", us: (bytes) => exchangeUs(setting, op, bytes) }];
  const across = machine.numNodes > 1;
  const protocols = NCCL_PROTOCOL_NAMES.filter((protocol) => {
    if (across && network?.simpleOnly === true) return protocol === "Simple";
    return protocol !== "LL128" || (onFabric && since("2.5"));
  });
  const found: Candidate[] = protocols.map((protocol) => ({
    algorithm: "ring",
    protocol,
    us: (bytes) => ringUs(setting, op, bytes, protocol),
  }));
  // On one node a tree is a chain, which NCCL takes only when told to.
  if (op === "all_reduce" && (across || options.algorithm === "tree") && since("2.5"))
    for (const protocol of protocols)
      found.push({ algorithm: "tree", protocol, us: (bytes) => treeUs(setting, bytes, protocol) });
  const nvls = options.nvls === true && own.nvlsGBps !== undefined && machine.fabric.switched && g > 1;
  if (op === "all_reduce" && nvls && !across && since("2.17"))
    found.push({ algorithm: "nvls", protocol: "Simple", us: (bytes) => nvlsUs(setting, bytes) });
  if (op === "all_reduce" && nvls && across && since("2.18"))
    found.push({ algorithm: "nvlstree", protocol: "Simple", us: (bytes) => nvlsTreeUs(setting, bytes) });
  if ((op === "all_gather" || op === "reduce_scatter") && across && g === 1 && since("2.23"))
    found.push({ algorithm: "pat", protocol: "Simple", us: (bytes) => patUs(setting, op, bytes) });
  return found;
}

/** Channels: two a link of a ring on a fabric, a few on PCIe, fewer for small messages. */
function channelsOf({ machine, fit, onFabric }: Setting, bytes: number): number {
  const most = onFabric ? Math.max(2, Math.min(32, 2 * machine.fabric.numLinks)) : 4;
  return Math.max(1, Math.min(most, Math.ceil(bytes / fit.bytesPerChannel)));
}

/**
 * Predicts one collective of NCCL.
 * @throws InvalidArgumentError for devices without a compute capability, and for an algorithm or protocol that NCCL has not there
 * @example
 * import { collectiveMachineOf, ncclPrediction, simulatedDevices } from "chorale/simulator";
 * import { presetInventory } from "chorale/topology";
 * const host = presetInventory("hgx-h100-8");
 * const machine = collectiveMachineOf(host, simulatedDevices(host));
 * ncclPrediction("all_reduce", 2 ** 30, machine, { nvls: true }).algorithm // "nvls"
 */
export function ncclPrediction(
  op: TimedOperation,
  sizeBytes: number,
  machine: CollectiveMachine,
  options: EstimateOptions = {},
  fit: NcclFit = NCCL_FIT,
): CollectiveEstimate {
  const setting = settingOf(machine, options, fit);
  const possible = candidatesOf(setting, op);
  const wanted = possible.filter(
    ({ algorithm, protocol }) =>
      algorithm === (options.algorithm ?? algorithm) && protocol === (options.protocol ?? protocol),
  );
  if (wanted.length === 0) {
    const names = possible.map(({ algorithm, protocol }) => `${algorithm}/${protocol}`);
    const asked = `${options.algorithm ?? "any"}/${options.protocol ?? "any"}`;
    throw new InvalidArgumentError("algorithm/protocol", asked, `what NCCL has for ${op} here: ${names.join(", ")}`);
  }
  const isOwnChoice = wanted.some(({ algorithm }) => algorithm === "nvls")
    ? ownChoiceIsNvls(setting, sizeBytes)
    : undefined;
  const chosen = wanted.filter(
    ({ algorithm }) => isOwnChoice === undefined || wanted.length === 1 || (algorithm === "nvls") === isOwnChoice,
  );
  const timed = chosen.map((candidate) => ({ ...candidate, timeUs: candidate.us(sizeBytes) }));
  const best = timed.reduce((a, b) => (b.timeUs < a.timeUs ? b : a));
  const numChannels = channelsOf(setting, sizeBytes);
  const numDevices = Math.min(options.devicesPerProcess ?? 1, setting.g);
  const launch =
    numDevices > 1 && setting.onFabric
      ? numDevices * (setting.own.launchPerDeviceUs + fit.channelLaunchUs * numChannels)
      : 0;
  return {
    timeUs: withRendezvous(setting, best.timeUs, sizeBytes) + launch + (options.blocking === true ? fit.blockingUs : 0),
    library: "NCCL",
    algorithm: best.algorithm,
    protocol: best.protocol,
    numChannels,
    uncertainty: ncclUncertainty(machine, sizeBytes) * unseenFactor(op),
  };
}
