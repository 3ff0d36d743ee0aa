/** Opening an epilogue: all members do, or none does and all know. */
import { expect, it } from "vitest";
import type { CudaDevice } from "../../device/index.ts";
import { GroupEpilogues } from "./epilogue-slot.ts";
import type { CallTarget } from "./nccl-calls.ts";

const KERNEL = { name: "nothing", source: "", numWords: 1 };
const target = {} as CallTarget;

function slotOf(answers: readonly number[], told: number[], device = {} as CudaDevice) {
  let turn = 0;
  const tell = (words: Int32Array) => {
    told.push(words[0] as number);
    return [words, Int32Array.of(answers[turn++] as number)];
  };
  return new GroupEpilogues({ device, isBusy: () => false, tell, newKind: () => -2 }).of(KERNEL, "f32");
}

it("is put off where a member would have to wait for other groups", () => {
  const told: number[] = [];
  const slot = slotOf([0], told);
  expect([slot.open(target), slot.isSettled, told]).toEqual([false, false, [1]]);
});

it("tells the other members when its kernel cannot be loaded here", () => {
  const told: number[] = [];
  // No device at all.
  const slot = slotOf([1, 1], told);
  expect(() => slot.open(target)).toThrow();
  expect([slot.isSettled, told]).toEqual([false, [1, 0]]);
});
