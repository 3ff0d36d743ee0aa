/** The launcher's side of an NCCL world: what its ranks share. Needs no GPU, and loads neither CUDA nor NCCL. */
import { randomUUID } from "node:crypto";
import { FormatError, InvalidArgumentError, invariant } from "../../../core/index.ts";
import { type Failure, type FlightDump, type HostMirror, optionsOf } from "../../comm/index.ts";
import {
  ControlSegment,
  controlBytes,
  createHostControl,
  holdsAny,
  hostSegment,
  ledgerBytes,
  MAX_JOINT_RANKS,
  type OpenControl,
  openControl,
  releaseHostControl,
} from "../../memory/index.ts";
import { dumpSegment, NoticeMirror } from "../../progress/index.ts";

import { guardExit } from "./exit-guard.ts";
import { checkNcclHandle, type NcclHandle } from "./nccl-handle.ts";

/**
 * Most ranks of one host: those that can have joint turns. The control segment grows with the square of them (120 MB with
 * 16, 1.7 GB with 64, of which only pages that are used count), and no host that NCCL runs on has more GPUs.
 */
export const MAX_NCCL_RANKS = MAX_JOINT_RANKS;

/** Of worlds of threads that this thread made: ends the watch over the process's exit. */
const guards = new Map<SharedArrayBuffer, () => void>();

/** Checks that an NCCL world can have so many ranks. @throws InvalidArgumentError */
export function checkNcclRanks(ranks: number, argument = "ranks"): void {
  if (Number.isInteger(ranks) && ranks >= 1 && ranks <= MAX_NCCL_RANKS) return;
  throw new InvalidArgumentError(
    argument,
    ranks,
    `an integer from 1 to ${MAX_NCCL_RANKS} with the nccl backend, one rank per GPU of the host`,
  );
}

/**
 * Makes what the ranks of one host share; `releaseNcclHost` removes it at the world's end. `launch` does both; see
 * `attachNccl` for programs that start their ranks themselves.
 * @throws InvalidArgumentError; of processes also OutOfMemoryError, and UnavailableError without FFI
 */
export function createNcclHost(options: {
  readonly ranks: number;
  readonly generation?: number;
  /** Whether the ranks are processes; threads of this one otherwise. */
  readonly interprocess?: boolean;
}): NcclHandle {
  const { ranks, generation = 1 } = optionsOf(options);
  checkNcclRanks(ranks);
  if (options.interprocess !== true) {
    const [control, ledger] = [controlBytes(ranks), ledgerBytes(ranks)].map((bytes) => new SharedArrayBuffer(bytes));
    guards.set(
      ledger as SharedArrayBuffer,
      guardExit(() => holdsAny(ledger as SharedArrayBuffer)),
    );
    return {
      kind: "nccl",
      ranks,
      generation,
      control: control as SharedArrayBuffer,
      ledger: ledger as SharedArrayBuffer,
    };
  }
  return { kind: "nccl", ranks, generation, control: createHostControl({ ranks, generation }) };
}

/** Makes what the ranks of one host of several share: processes. @throws as `createNcclHost` */
export function createNcclHostOfSeveral({ ranks, generation }: Pick<NcclHandle, "ranks" | "generation">): NcclHandle {
  checkNcclRanks(ranks, "ranks of all hosts");
  const control = createHostControl({ ranks, generation, spansHosts: true });
  return { kind: "nccl", ranks, generation, control, hostId: randomUUID() };
}

/** What other hosts need of it. Nothing in it is secret. */
export function publishNcclHost({ ranks, generation }: NcclHandle): object {
  return { kind: "nccl", ranks, generation };
}

/** Another host's side of what was published. @throws FormatError; as `createNcclHost` */
export function adoptNcclHost(published: unknown): NcclHandle {
  const { kind, ranks, generation } = (published ?? {}) as Partial<Record<string, unknown>>;
  const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;
  if (kind !== "nccl" || !isCount(ranks) || !isCount(generation)) {
    throw new FormatError("what the first rank's host published", "is no world of the nccl backend");
  }
  return createNcclHostOfSeveral({ ranks, generation });
}

/** This host's part in the agreement of ranks on several hosts. */
export function mirrorNcclHost(handle: NcclHandle, isFirst: boolean, send: (message: object) => void): HostMirror {
  const segment = segmentOf(handle);
  invariant(segment !== undefined, "the host's segment is there while its world lasts");
  const { ranks, generation } = handle;
  return new NoticeMirror({ segment, ranks, generation, isFirst, send });
}

/** Opens the control segment as one rank; `attachNccl` does. @param numHere ranks of this host @throws FormatError when the file is not what the handle says */
export function openNcclControl(handle: NcclHandle, numHere = handle.ranks): OpenControl {
  return openControl(checkNcclHandle(handle), numHere);
}

/** Removes what `createNcclHost` made: when every rank is gone, or has attached. Idempotent. */
export function releaseNcclHost(handle: NcclHandle): void {
  const { control, ledger } = checkNcclHandle(handle);
  if (ledger !== undefined) {
    guards.get(ledger)?.();
    guards.delete(ledger);
  }
  if (!(control instanceof SharedArrayBuffer)) releaseHostControl(control);
}

function segmentOf(handle: NcclHandle): ControlSegment | undefined {
  const { control, ranks } = checkNcclHandle(handle);
  return control instanceof SharedArrayBuffer ? new ControlSegment(control, ranks) : hostSegment(control);
}

/** Says, from the thread that made the handle (among threads: any), that `rank` is dead. The first cause stays. */
export function failNcclRank(handle: NcclHandle, rank: number, cause: string): void {
  segmentOf(handle)?.fail({ code: "RANK_FAILED", rank, generation: handle.generation, cause });
}

/**
 * Says that the thread of `rank` is gone, so that nobody waits for it to tell NCCL to end. Called from the same threads as
 * `failNcclRank`.
 */
export function buryNcclRank(handle: NcclHandle, rank: number): void {
  segmentOf(handle)?.presence.bury(rank);
}

/** Why the world has failed, if it has. From the thread that made the handle (among threads: any). */
export function ncclFailure(handle: NcclHandle): Failure | undefined {
  return segmentOf(handle)?.failure;
}

/**
 * Reads what every rank issued last and what became of it, also of ranks that are dead or stuck: of each group the last 64
 * collectives, and the last 64 sends and receives. Times on the stream are there when the ranks were asked for them (`flightTimings`).
 * @example
 * import { createNcclHost, dumpNcclFlight, failNcclRank, releaseNcclHost } from "chorale/nccl";
 *
 * const host = createNcclHost({ ranks: 2 });
 * failNcclRank(host, 1, "its process ended");
 * console.log(dumpNcclFlight(host).ranks[1]?.failed); // its process ended
 * releaseNcclHost(host);
 */
export function dumpNcclFlight(handle: NcclHandle): FlightDump {
  const { generation, ranks, hostId } = handle;
  const segment = segmentOf(handle);
  // Of several hosts each tells what its own ranks did: of the others it knows the calls, but not what became of them.
  const isHere = (rank: number) => hostId === undefined || segment?.presence.hasCome(rank) === true;
  return dumpSegment(segment, { backend: "nccl", generation, worldSize: ranks }, isHere);
}
