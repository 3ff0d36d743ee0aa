/**
 * Frees what a rank that was a thread of this process held in the driver and in NCCL when it was killed. A kernel of a plan
 * that waits for another rank would wait for ever: it is ended first.
 */

import { CUDA_STATUS, type CudaDriver, loadCudaDriver } from "../../../foreign/cuda/index.ts";
import { loadNccl, type NcclLibrary } from "../../../foreign/nccl/index.ts";
import { checkWorldRank } from "../../comm/index.ts";
import { unmapSecond, withContext } from "../../device/internal.ts";
import {
  HELD_KINDS,
  type Held,
  type HeldKind,
  napUntil,
  readLedger,
  takeLedger,
  whileOthersFreeNothing,
} from "../../memory/index.ts";
import type { NcclHandle } from "./nccl-handle.ts";
import { checkNcclHandle } from "./nccl-handle.ts";

/** What was freed, by kind; `unknown` is what its rank could not write down and nobody can free. */
export type Reaped = Readonly<Record<HeldKind | "unknown", number>>;

/** How long kernels of a killed rank may take to end once they are told to; what they use is not freed after that. */
const END_MS = 10_000;
/** The same of plans of other killed ranks: those end within microseconds, and this thread holds up all that free. */
const OTHERS_END_MS = 500;

interface Engine {
  readonly driver: CudaDriver;
  readonly nccl: NcclLibrary;
}

/** Tells the kernels of plans that a killed rank left running to end, with whatever their outputs hold then. */
function endLaunches(ledger: SharedArrayBuffer, rank: number, { driver }: Engine): void {
  for (const { ordinal, handle: word } of heldLaunches(ledger, rank)) {
    withContext(driver, ordinal, () => {
      const { api } = driver;
      const stream = new BigUint64Array(1);
      // One that waits for no other. A copy needs no multiprocessor, all of which may be taken.
      if (api.cuStreamCreate(stream, NON_BLOCKING) !== CUDA_STATUS.success) return;
      api.cuMemcpyHtoDAsync_v2(word, Uint32Array.of(1), 4, stream[0] ?? 0n);
      api.cuStreamSynchronize(stream[0] ?? 0n);
      api.cuStreamDestroy_v2(stream[0] ?? 0n);
    });
  }
}

function heldLaunches(ledger: SharedArrayBuffer, rank: number): readonly Held[] {
  return readLedger(ledger, rank).filter(({ kind }) => kind === "launches");
}

/** Aborts NCCL's calls of a killed rank: kernels of plans may stand behind them. @returns what is gone with that */
function endCalls(ledger: SharedArrayBuffer, rank: number, { driver, nccl: { api } }: Engine): readonly Held[] {
  const { held } = takeLedger(ledger, rank, ["communicator", "graph"]);
  for (const [ordinal, here] of byDevice(held)) {
    withContext(driver, ordinal, () => {
      const communicators = here.filter(({ kind }) => kind === "communicator");
      // All are told to end before any is freed, and graphs go before what they were captured with: see communicator-teardown.ts.
      if (communicators.length > 0) api.ncclGroupStart();
      for (const { handle } of communicators) api.ncclCommAbort(handle);
      for (const { kind, handle } of here) if (kind === "graph") driver.api.cuGraphExecDestroy(handle);
      if (communicators.length > 0) api.ncclGroupEnd();
    });
  }
  return held;
}

function byDevice(held: readonly Held[]): ReadonlyMap<number, readonly Held[]> {
  return new Map(held.map(({ ordinal }) => [ordinal, held.filter((one) => one.ordinal === ordinal)]));
}

/** Of `cuStreamCreate`. */
const NON_BLOCKING = 1;

/** Waits until streams have nothing to do. @returns false where one still has after `limitMs` */
function areDone(held: readonly Held[], driver: CudaDriver, limitMs: number): boolean {
  const streams = held.filter(({ kind }) => kind === "stream");
  const isBusy = ({ ordinal, handle }: Held) => {
    let status: number = CUDA_STATUS.success;
    withContext(driver, ordinal, () => {
      status = driver.api.cuStreamQuery(handle);
    });
    return status === CUDA_STATUS.notReady;
  };
  return napUntil(() => !streams.some(isBusy), limitMs, { napMs: 1 });
}

/**
 * Frees what `rank` held, from another thread of its process, once the rank's thread has ended. NCCL frees communicators
 * of one process with the last of its ranks: so a killed rank's must be aborted here, after the survivors have aborted
 * theirs. Idempotent; does nothing for ranks that were processes. Several threads may free, each another rank.
 * @param killed all ranks of the world that were killed and are not freed: their kernels may use what `rank` held
 * @returns how much there was
 * @throws InvalidArgumentError for an invalid handle or rank
 */
export function reapNccl(handle: NcclHandle, rank: number, killed: readonly number[] = []): Reaped {
  const counts = Object.fromEntries([...HELD_KINDS, "unknown"].map((kind) => [kind, 0])) as Record<
    HeldKind | "unknown",
    number
  >;
  checkNcclHandle(handle);
  for (const one of [rank, ...killed]) checkWorldRank(one, handle.ranks);
  const { ledger } = handle;
  if (ledger === undefined) return counts;
  const driver = loadCudaDriver();
  const nccl = loadNccl();
  if ("available" in driver || "available" in nccl) return counts;
  const engine = { driver, nccl };
  const others = killed.filter((one) => one !== rank);
  const ended = whileOthersFreeNothing(ledger, () => {
    for (const one of [rank, ...others]) endLaunches(ledger, one, engine);
    for (const one of others) endCalls(ledger, one, engine);
    const gone = endCalls(ledger, rank, engine);
    const launched = others.filter((one) => heldLaunches(ledger, one).length > 0);
    areDone(
      launched.flatMap((one) => readLedger(ledger, one)),
      driver,
      OTHERS_END_MS,
    );
    return gone;
  });
  areDone(readLedger(ledger, rank), driver, END_MS);
  whileOthersFreeNothing(ledger, () => {
    const { held, numUnknown } = takeLedger(ledger, rank);
    counts.unknown = numUnknown;
    for (const [ordinal, all] of byDevice(held)) {
      const here = all.filter(({ kind }) => kind !== "context");
      // What kernels use that do not end is left to them.
      if (areDone(here, driver, 0)) withContext(driver, ordinal, () => freeAll(here, engine));
      else counts.unknown += here.length;
    }
    for (const { kind, ordinal } of [...ended, ...held]) {
      counts[kind]++;
      if (kind === "context") driver.api.cuDevicePrimaryCtxRelease_v2(ordinal);
    }
  });
  return counts;
}

/** Frees things of one device. Statuses are ignored: a context may be lost, and a thing may be half made. */
function freeAll(held: readonly Held[], { driver, nccl: { optional } }: Engine): void {
  const { api } = driver;
  for (const { kind, handle } of held) {
    if (kind === "stream") api.cuStreamDestroy_v2(handle);
    else if (kind === "graphSource") api.cuGraphDestroy(handle);
    else if (kind === "event") api.cuEventDestroy_v2(handle);
    else if (kind === "module") api.cuModuleUnload(handle);
    else if (kind === "mapping") api.cuIpcCloseMemHandle(handle);
    else if (kind === "secondMapping") unmapSecond(driver, handle);
    else if (kind === "memoryHandle") driver.mapping.cuMemRelease(handle);
    else if (kind === "memory") api.cuMemFree_v2(handle);
    else if (kind === "ncclMemory") optional.ncclMemFree?.(handle);
    else if (kind === "pinned") api.cuMemFreeHost(handle);
  }
}
