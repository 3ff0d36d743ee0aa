/** Batches of calls that an engine runs as one. */
import { InvalidArgumentError } from "../../core/index.ts";
import type { GroupCall } from "../comm/index.ts";
import { COLLECTIVE_RING } from "../memory/index.ts";

/** Collectives that one batch may have: with more, the last of them would overwrite what a member has yet to compare. */
const MAX_BATCH_COLLECTIVES = COLLECTIVE_RING - 1;

/** Says whether a batch's collectives fit into it. @throws InvalidArgumentError */
export function checkRoom(calls: readonly GroupCall[]): void {
  const numCollectives = calls.filter((one) => one.kind === "barrier" || one.call.peer === undefined).length;
  if (numCollectives <= MAX_BATCH_COLLECTIVES) return;
  throw new InvalidArgumentError("collectives in a batch", numCollectives, `at most ${MAX_BATCH_COLLECTIVES}`);
}

/** A batch settles as one: the earliest deadline of its calls is that of all. */
export function batchTimeout(calls: readonly GroupCall[]): number | undefined {
  const timeouts = calls.flatMap(({ timeoutMs }) => timeoutMs ?? []);
  return timeouts.length === 0 ? undefined : Math.min(...timeouts);
}
