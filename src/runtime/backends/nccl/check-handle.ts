/** Whether what a program hands over is a world's handle: all that takes one asks. */
import { InvalidArgumentError } from "../../../core/index.ts";
import type { NcclHandle } from "./nccl-host.ts";

/** @throws InvalidArgumentError for what `createNcclHost` did not give */
export function checkNcclHandle(handle: NcclHandle): NcclHandle {
  const isHandle = typeof handle === "object" && handle !== null && handle.kind === "nccl";
  if (isHandle && typeof handle.control === "object" && handle.control !== null) return handle;
  throw new InvalidArgumentError("handle", handle, "what createNcclHost gave");
}

/** @throws InvalidArgumentError for what is no rank of the handle's world */
export function checkRankOf({ ranks }: NcclHandle, rank: number): void {
  if (Number.isInteger(rank) && rank >= 0 && rank < ranks) return;
  throw new InvalidArgumentError("rank", rank, `a rank of the world, 0 to ${ranks - 1}`);
}
