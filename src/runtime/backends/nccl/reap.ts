/** Frees what a rank that was a thread of this process held in the driver and in NCCL when it was killed. */

import { type CudaDriver, loadCudaDriver } from "../../../foreign/cuda/index.ts";
import { loadNccl, type NcclLibrary } from "../../../foreign/nccl/index.ts";
import { checkWorldRank } from "../../comm/index.ts";
import { unmapSecond, withContext } from "../../device/internal.ts";
import { HELD_KINDS, type Held, type HeldKind, takeLedger } from "../../memory/index.ts";
import type { NcclHandle } from "./nccl-handle.ts";
import { checkNcclHandle } from "./nccl-handle.ts";

/** What was freed, by kind; `unknown` is what its rank could not write down and nobody can free. */
export type Reaped = Readonly<Record<HeldKind | "unknown", number>>;

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
  const { held, numUnknown } = takeLedger(handle.ledger, rank);
  counts.unknown = numUnknown;
  for (const ordinal of new Set(held.map((one) => one.ordinal))) {
    const here = held.filter((one) => one.ordinal === ordinal && one.kind !== "context");
    withContext(driver, ordinal, () => freeAll(here, driver, nccl));
  }
  for (const { kind, ordinal } of held) {
    counts[kind]++;
    if (kind === "context") driver.api.cuDevicePrimaryCtxRelease_v2(ordinal);
  }
  return counts;
}

/** Frees things of one device. Statuses are ignored: a context may be lost, and a thing may be half made. */
function freeAll(held: readonly Held[], driver: CudaDriver, { api: nccl, optional }: NcclLibrary): void {
  const { api } = driver;
  const of = (...kinds: HeldKind[]) => held.filter(({ kind }) => kinds.includes(kind));
  const communicators = of("communicator");
  // All are told to end before any is freed, and graphs go before what they were captured with: see communicator-teardown.ts.
  if (communicators.length > 0) nccl.ncclGroupStart();
  for (const { handle } of communicators) nccl.ncclCommAbort(handle);
  for (const { handle } of of("graph")) api.cuGraphExecDestroy(handle);
  if (communicators.length > 0) nccl.ncclGroupEnd();
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
}
