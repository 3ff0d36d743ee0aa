/**
 * Kernels that reach buffers of other ranks, among processes: a rank tells its peers on the device where its buffers are in a launch,
 * and each adds how far from there its own process has them, which members' hosts find out before the call (told-buffers.ts).
 */
import { type BufferReach, bufferBytes, type LoadedPlan } from "../../executor/cuda/internal.ts";
import type { CallTarget } from "./nccl-calls.ts";
import type { PlanSlot } from "./plan-slot.ts";
import type { BufferPlace, ToldBuffers, ToldCall } from "./told-buffers.ts";

const NOTHING: readonly BufferReach[] = Object.freeze([]);

/** What members tell each other of a call of the slot's kernel. @param call whose addresses are those that the kernel is given */
export function toldOfKernel(
  { plan, kernel }: PlanSlot,
  member: number,
  call: Pick<ToldCall, "label" | "hash" | "input" | "output" | "partBytes">,
): ToldCall {
  const { partBytes } = call;
  return {
    ...call,
    inputBytes: bufferBytes(plan, member, "input", partBytes),
    outputBytes: bufferBytes(plan, member, "output", partBytes),
    reached: partBytes === 0 ? NOTHING : kernel.reached,
  };
}

/** Launches a kernel whose members have told each other where the call's buffers are. */
export function launchReaching(told: ToldBuffers, loaded: LoadedPlan, partBytes: number, target: CallTarget): void {
  told.launch(target, ({ input, output }, places, ends) => {
    loaded.shifts = shiftsOf(places);
    loaded.launch(target.owner, input, output, partBytes, ends);
  });
}

const shiftsOf = (places: readonly BufferPlace[]): readonly number[] => [
  ...places.map(({ inputShift }) => inputShift),
  ...places.map(({ outputShift }) => outputShift),
];
