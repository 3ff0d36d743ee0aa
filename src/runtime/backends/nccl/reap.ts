/**
 * Frees what a rank that was a thread of this process held in the driver and in NCCL when it was killed. A kernel of a plan
 * that waits for another rank would wait for ever: it is ended first.
 */

import { CUDA_STATUS, type CudaDriver, loadCudaDriver } from "../../../foreign/cuda/index.ts";
import { loadNccl, type NcclLibrary } from "../../../foreign/nccl/index.ts";
import { checkWorldRank } from "../../comm/index.ts";
import { unmapSecond, withContext } from "../../device/internal.ts";
import { HELD_KINDS, type Held, type HeldKind, readLedger, takeLedger } from "../../memory/index.ts";
import type { NcclHandle } from "./nccl-handle.ts";
import { checkNcclHandle } from "./nccl-handle.ts";

/** What was freed, by kind; `unknown` is what its rank could not write down and nobody can free. */
export type Reaped = Readonly<Record<HeldKind | "unknown", number>>;

/** How long kernels of a killed rank may take to end once they are told to; what they use is not freed after that. */
const END_MS = 10_000;
const cell = new Int32Array(new SharedArrayBuffer(4));

/**
 * Tells the kernels of plans that a killed rank left running to end, with whatever their outputs hold then. They may go on to
 * use other ranks' memory as they do: call it for all killed ranks before anything is freed. Idempotent.
 * @throws InvalidArgumentError for an invalid handle or rank
 */
export function endNcclLaunches(handle: NcclHandle, rank: number): void {
  checkNcclHandle(handle);
  checkWorldRank(rank, handle.ranks);
  const driver = loadCudaDriver();
  if (handle.ledger === undefined || "available" in driver) return;
  const launches = readLedger(handle.ledger, rank).filter(({ kind }) => kind === "launches");
  for (const { ordinal, handle: word } of launches) {
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

/** Of `cuStreamCreate`. */
const NON_BLOCKING = 1;

/** Waits until streams have nothing to do. @returns false where one still has after `END_MS` */
function areDone(streams: readonly Held[], { api }: CudaDriver): boolean {
  const until = performance.now() + END_MS;
  for (const { handle } of streams) {
    while (api.cuStreamQuery(handle) === CUDA_STATUS.notReady) {
      if (performance.now() > until) return false;
      Atomics.wait(cell, 0, 0, 1);
    }
  }
  return true;
}

/**
 * Frees what `rank` held, from another thread of its process, once the rank's thread has ended. NCCL frees communicators
 * of one process with the last of its ranks: so a killed rank's must be aborted here, after the survivors have aborted
 * theirs. Idempotent; does nothing for ranks that were processes.
 * @returns how much there was
 * @throws InvalidArgumentError for an invalid handle or rank
 */
export function reapNccl(handle: NcclHandle, rank: number): Reaped {
  const counts = Object.fromEntries([...HELD_KINDS, "unknown"].map((kind) => [kind, 0])) as Record<
    HeldKind | "unknown",
    number
  >;
  checkNcclHandle(handle);
  checkWorldRank(rank, handle.ranks);
  if (handle.ledger === undefined) return counts;
  const driver = loadCudaDriver();
  const nccl = loadNccl();
  if ("available" in driver || "available" in nccl) return counts;
  endNcclLaunches(handle, rank);
  const { held, numUnknown } = takeLedger(handle.ledger, rank);
  counts.unknown = numUnknown;
  for (const ordinal of new Set(held.map((one) => one.ordinal))) {
    const here = held.filter((one) => one.ordinal === ordinal && one.kind !== "context");
    withContext(driver, ordinal, () => {
      if (!freeAll(here, driver, nccl)) counts.unknown += here.length;
    });
  }
  for (const { kind, ordinal } of held) {
    counts[kind]++;
    if (kind === "context") driver.api.cuDevicePrimaryCtxRelease_v2(ordinal);
  }
  return counts;
}

/**
 * Frees things of one device. Statuses are ignored: a context may be lost, and a thing may be half made.
 * @returns false where kernels do not end: what they use is left to them
 */
function freeAll(held: readonly Held[], driver: CudaDriver, { api: nccl, optional }: NcclLibrary): boolean {
  const { api } = driver;
  const of = (...kinds: HeldKind[]) => held.filter(({ kind }) => kinds.includes(kind));
  const communicators = of("communicator");
  // All are told to end before any is freed, and graphs go before what they were captured with: see communicator-teardown.ts.
  if (communicators.length > 0) nccl.ncclGroupStart();
  for (const { handle } of communicators) nccl.ncclCommAbort(handle);
  for (const { handle } of of("graph")) api.cuGraphExecDestroy(handle);
  if (communicators.length > 0) nccl.ncclGroupEnd();
  if (!areDone(of("stream"), driver)) return false;
  for (const { kind, handle } of held) {
    if (kind === "stream") api.cuStreamDestroy_v2(handle);
    else if (kind === "event") api.cuEventDestroy_v2(handle);
    else if (kind === "module") api.cuModuleUnload(handle);
    else if (kind === "mapping") api.cuIpcCloseMemHandle(handle);
    else if (kind === "secondMapping") unmapSecond(driver, handle);
    else if (kind === "memoryHandle") driver.mapping.cuMemRelease(handle);
    else if (kind === "memory") api.cuMemFree_v2(handle);
    else if (kind === "ncclMemory") optional.ncclMemFree?.(handle);
    else if (kind === "pinned") api.cuMemFreeHost(handle);
  }
  return true;
}
