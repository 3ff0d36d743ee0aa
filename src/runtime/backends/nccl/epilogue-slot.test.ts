/** Opening an epilogue: all members do, or none does and all know why. */
import { expect, it } from "vitest";
import { UnsupportedError } from "../../../core/index.ts";
import type { CudaDevice } from "../../device/index.ts";
import { GroupEpilogues } from "./epilogue-slot.ts";
import type { CallTarget } from "./nccl-calls.ts";
import { issue, type NcclCall } from "./nccl-calls.ts";
import { meetingOf } from "./nccl-entry.ts";
import { ANSWERS, SAID } from "./opening-words.ts";

const KERNEL = { name: "nothing", source: "", numWords: 1 };
const target = {} as CallTarget;
/** One on which no kernel can be loaded. */
const device = {
  get info() {
    throw new UnsupportedError("a kernel", "this device takes none");
  },
} as unknown as CudaDevice;

/** A slot of the first of two members. @param other what the second says */
function slotOf(other: Int32Array, isBusy = false) {
  const told: Int32Array[] = [];
  const tell = (words: Int32Array) => {
    told.push(words);
    return [words, other];
  };
  const slot = new GroupEpilogues({ device, isBusy: () => isBusy, tell, newKind: () => -2 }).of(KERNEL, "f32");
  return { slot, told };
}

const saying = (answer: number) => {
  const words = new Int32Array(SAID.words);
  words[SAID.answer] = answer;
  return words;
};

it("is put off where a member would have to wait for other groups", () => {
  const { slot, told } = slotOf(saying(ANSWERS.ready), true);
  expect([slot.mayOpen, slot.open(target), slot.isSettled]).toEqual([false, false, false]);
  expect(told.map((words) => words[SAID.answer])).toEqual([ANSWERS.early]);
});

it("is refused by all members alike when one cannot load it, which says why", () => {
  const failed = slotOf(saying(ANSWERS.ready));
  expect([failed.slot.open(target), failed.slot.isSettled, failed.slot.loaded]).toEqual([true, true, undefined]);
  const [words] = failed.told as [Int32Array];
  expect(words[SAID.answer]).toBe(ANSWERS.failed);
  const why = failed.slot.refusal?.message as string;
  // The other member hears it, also where it could not load its own yet.
  for (const isBusy of [true, false]) {
    const { slot } = slotOf(words, isBusy);
    expect([slot.open(target), slot.isSettled, slot.open(target)]).toEqual([true, true, true]);
    if (isBusy) expect(slot.refusal?.message).toContain(`rank 1 cannot run it: ${why}`.slice(0, 120));
  }
});

it("has no part of a call made once it is refused: neither a plan's, nor NCCL's, nor a meeting of members", () => {
  const { slot } = slotOf(saying(ANSWERS.ready));
  slot.open(target);
  const done: string[] = [];
  const note = (what: string) => () => {
    done.push(what);
    return true;
  };
  const call = {
    op: "all_reduce",
    plan: { launch: note("plan"), meets: note("meeting"), reachesPeers: true },
    step: { words: [], unitBytes: 0, refusal: slot.refusal, launch: note("step") },
  } as unknown as NcclCall;
  expect([issue(call, target), meetingOf(call)?.(false), done]).toEqual([0, true, []]);
});
