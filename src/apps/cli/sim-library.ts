/** What the vendor's own library takes, for `sim --nccl`: flags to a model, and its curve as rows and as text. */
import {
  type CollectiveEstimate,
  type CollectiveMachine,
  collectiveMachineOf,
  type EstimateOptions,
  LIBRARY_ALGORITHMS,
  NCCL_PROTOCOL_NAMES,
  parseNcclVersion,
  predictCollective,
  switchesReduce,
  TIMED_OPERATIONS,
  type TimedOperation,
  timedAsVersion,
  timedBusFactor,
} from "../../authoring/simulator/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import type { DefaultSizes } from "./size-options.ts";

/** Of `chorale sim`. */
export const DEFAULT_SIZES: DefaultSizes = { min: 2 ** 10, max: 256 * 2 ** 20 };

export interface LibraryFlags {
  readonly switch?: boolean;
  readonly nvls?: string;
  readonly p2p?: string;
  readonly processes?: string;
  readonly blocking?: boolean;
  readonly algorithm?: string;
  readonly protocol?: string;
  readonly ncclVersion?: string;
}

export interface LibraryRow extends CollectiveEstimate {
  readonly sizeBytes: number;
  readonly algbwGBps: number;
  readonly busbwGBps: number;
  /** Where nine of ten measured times are expected. */
  readonly lowUs: number;
  readonly highUs: number;
}

export interface LibraryCurve {
  readonly operation: TimedOperation;
  readonly machine: CollectiveMachine;
  readonly options: EstimateOptions;
  /** The network is the preset's default. */
  readonly networkIsAssumed: boolean;
  /** Without --processes: the expected range covers one process a rank and one for all. */
  readonly processesAreAssumed: boolean;
  /** The version of NCCL that a newer one is timed as. */
  readonly timedAs?: string;
  readonly rows: readonly LibraryRow[];
}

function oneOf<const W extends string>(flag: string, text: string, words: readonly W[]): W {
  const found = words.find((word) => word.toLowerCase() === text.toLowerCase());
  if (found === undefined) throw new InvalidArgumentError(flag, text, `one of ${words.join(", ")}`);
  return found;
}

/** Reads an operation that libraries time. @throws InvalidArgumentError saying what is accepted */
export function timedOperation(text: string, flag: string): TimedOperation {
  return oneOf(flag, text, TIMED_OPERATIONS);
}

const isOn = (flag: string, text: string | undefined): boolean | undefined =>
  text === undefined ? undefined : oneOf(flag, text, ["on", "off"]) === "on";

/** Devices that one process launches: `rank` is one, `host` all of a host. */
function devicesPerProcess(text: string | undefined, machine: CollectiveMachine): number {
  const most = Math.ceil(machine.numRanks / machine.numHosts);
  if (text === undefined || text === "rank") return 1;
  if (text === "host") return most;
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1 || count > most)
    throw new InvalidArgumentError(
      "--processes",
      text,
      `rank (one process a rank), host (one a host), or 1 to ${most} ranks a process`,
    );
  return count;
}

/**
 * Refuses `--switch` and `--nvls on` where no switch reduces.
 * @throws InvalidArgumentError
 */
export function requireSwitch(flags: LibraryFlags, machine: CollectiveMachine): void {
  const flag = flags.switch === true ? "--switch" : flags.nvls === "on" ? "--nvls" : undefined;
  // What was read from an ASTRA-sim file has no architecture: its switches are what the reader says they are.
  if (flag === undefined || switchesReduce(machine) || machine.arch === "") return;
  throw new InvalidArgumentError(
    flag,
    described(`a machine of ${machine.device}`),
    "NVIDIA devices of compute capability 9.0 or later on NVSwitch: no other switch multicasts and reduces",
  );
}

/** Options of the model by their names as flags. */
const FLAG_OF: ReadonlyMap<string, string> = new Map([
  ["algorithm", "--algorithm"],
  ["algorithm/protocol", "--algorithm and --protocol"],
  ["blocking", "--blocking"],
  ["nvls", "--nvls"],
  ["p2p", "--p2p"],
  ["protocol", "--protocol"],
  ["version", "--nccl-version"],
]);

/** Predicts; what is refused is named by its flag. */
function predicted(...call: Parameters<typeof predictCollective>): CollectiveEstimate {
  try {
    return predictCollective(...call);
  } catch (error) {
    const flag = error instanceof InvalidArgumentError ? FLAG_OF.get(error.argument) : undefined;
    if (flag === undefined) throw error;
    const { value, accepted } = error as InvalidArgumentError;
    throw new InvalidArgumentError(flag, value, accepted);
  }
}

/**
 * Times the library's collective at every size. `ranksPerProcess` is what a measurement says of itself; `--processes` wins.
 */
export function libraryCurve(
  operation: TimedOperation,
  inventory: Inventory,
  devices: readonly string[],
  sizes: readonly number[],
  flags: LibraryFlags,
  llGBps: number | undefined,
  ranksPerProcess: number | undefined,
): LibraryCurve {
  const machine = collectiveMachineOf(inventory, devices, { p2p: isOn("--p2p", flags.p2p) !== false });
  requireSwitch(flags, machine);
  const most = Math.ceil(machine.numRanks / machine.numHosts);
  const isSaid = ranksPerProcess !== undefined && ranksPerProcess >= 1 && ranksPerProcess <= most;
  const processes = flags.processes ?? (isSaid ? `${ranksPerProcess}` : undefined);
  const options: EstimateOptions = {
    devicesPerProcess: devicesPerProcess(processes, machine),
    blocking: flags.blocking === true,
    nvls: isOn("--nvls", flags.nvls) ?? (flags.switch === true && switchesReduce(machine)),
    ...(flags.algorithm !== undefined && { algorithm: oneOf("--algorithm", flags.algorithm, LIBRARY_ALGORITHMS) }),
    ...(flags.protocol !== undefined && { protocol: oneOf("--protocol", flags.protocol, NCCL_PROTOCOL_NAMES) }),
    ...(flags.ncclVersion !== undefined && { version: parseNcclVersion(flags.ncclVersion) }),
    ...(llGBps !== undefined && { llGBps }),
  };
  // Without --processes the range also covers one process for all ranks, as nccl-tests is mostly run on one host.
  const perHost = processes === undefined && machine.numNodes === 1 ? machine.numRanks : 1;
  const rows = sizes.map((sizeBytes): LibraryRow => {
    const estimate = predicted(operation, sizeBytes, machine, options);
    const { timeUs } = estimate;
    const asOneProcess = predicted(operation, sizeBytes, machine, { ...options, devicesPerProcess: perHost });
    const lowUs = timeUs / (1 + estimate.uncertainty);
    const highUs = Math.max(timeUs, asOneProcess.timeUs) * (1 + estimate.uncertainty);
    const algbwGBps = sizeBytes / (timeUs * 1000);
    return {
      sizeBytes,
      ...estimate,
      uncertainty: highUs / timeUs - 1,
      algbwGBps,
      busbwGBps: algbwGBps * timedBusFactor(operation, machine.numRanks),
      lowUs,
      highUs,
    };
  });
  const processesAreAssumed =
    perHost > 1 && rows.some(({ highUs, lowUs, timeUs }) => highUs * lowUs > 1.001 * timeUs ** 2);
  const networkIsAssumed = machine.network !== undefined && inventory.environment?.["nicIsAssumed"] === true;
  const { version } = options;
  const timedAs = version === undefined ? undefined : timedAsVersion(version);
  return {
    ...{ operation, machine, options, networkIsAssumed, processesAreAssumed, rows },
    ...(timedAs === version || timedAs === undefined ? {} : { timedAs }),
  };
}

/** What the model assumes, in one line. */
function describeLibrary({
  operation,
  machine,
  options,
  networkIsAssumed,
  processesAreAssumed,
  timedAs,
  rows,
}: LibraryCurve): string {
  const { fabric, network, numRanks, numNodes, numHosts } = machine;
  const inside =
    numRanks === numNodes
      ? "one device a node"
      : fabric.kind === "fabric"
        ? `${fabric.deviceGBps.toFixed(0)} GB/s of links a device`
        : fabric.kind;
  const parts = [
    `${rows[0]?.library}'s model: ${operation}, ${numRanks} ranks on ${numNodes} ${numNodes === 1 ? "node" : "nodes"}`,
    ...(timedAs === undefined ? [] : [`NCCL ${options.version} timed as ${timedAs}, the newest that is modelled`]),
    ...(numHosts === numNodes ? [] : [`${numHosts} hosts`]),
    inside,
    ...(network === undefined
      ? []
      : [
          `${network.numNics} ${network.numNics === 1 ? "NIC" : "NICs"} a node, ${network.kind}, ${network.nodeGBps.toFixed(0)} GB/s` +
            (networkIsAssumed ? " (of the preset; --nic names another)" : ""),
        ]),
    ...(switchesReduce(machine) ? [options.nvls === true ? "NVLS on" : "NVLS off (--nvls on)"] : []),
    ...(options.devicesPerProcess === 1
      ? processesAreAssumed
        ? [`1 or ${numRanks} devices a process (--processes says which)`]
        : []
      : [
          `${options.devicesPerProcess} devices a process` +
            (rows[0]?.library === "NCCL" ? "" : `, which ${rows[0]?.library}'s model does not time`),
        ]),
  ];
  return `# ${parts.join(", ")}`;
}

const shortUs = (us: number) => (us < 100 ? us.toFixed(1) : us.toFixed(0));

/** The curve as a table: nccl-tests' figures, what was chosen, and where a measurement is expected. */
export function printLibrary(curve: LibraryCurve): string {
  const lines = [
    describeLibrary(curve),
    "#       size        time   algbw   busbw  algorithm  protocol  channels   expected",
    "#        (B)        (us)  (GB/s)  (GB/s)                                      (us)",
  ];
  for (const row of curve.rows)
    lines.push(
      `${String(row.sizeBytes).padStart(12)}  ${row.timeUs.toFixed(2).padStart(10)}  ${row.algbwGBps.toFixed(2).padStart(6)}  ${row.busbwGBps.toFixed(2).padStart(6)}  ` +
        `${row.algorithm.padStart(9)}  ${row.protocol.padStart(8)}  ${String(row.numChannels).padStart(8)}   ${shortUs(row.lowUs)} to ${shortUs(row.highUs)}`,
    );
  return lines.join("\n");
}
