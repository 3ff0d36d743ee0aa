/** When calls take a turn to open their plan on a device that calls of other groups keep busy, and when they leave it to NCCL. */
import { afterEach, expect, it, vi } from "vitest";
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import { UnsupportedError } from "../../../core/index.ts";
import type { GeneratedKernel, LoadedPlan } from "../../executor/cuda/internal.ts";
import type { CallTarget } from "./nccl-calls.ts";
import { PlanSlot } from "./plan-slot.ts";

afterEach(() => void vi.useRealTimers());

/** A slot of a group whose other member says what this one says. */
function slotOf(isReplaceable: boolean) {
  vi.useFakeTimers({ toFake: ["performance"] });
  const seen = { isIdle: false, numTold: 0 };
  const loaded = { describe: () => Int32Array.of(), connect: () => {}, close: () => {} } as unknown as LoadedPlan;
  const owner = {
    member: 0,
    mayLoad: () => seen.isIdle,
    load: () => loaded,
    tell: (words: Int32Array) => {
      seen.numTold++;
      return [words, words];
    },
    met: () => {},
  };
  const [plan, kernel] = [{} as ExecutionPlan, { source: "a kernel" } as GeneratedKernel];
  const slot = new PlanSlot(owner, { kind: 1, plan, dtype: "f32", kernel, maxBytes: 1024, isReplaceable });
  return { slot, seen, loaded, open: () => slot.open({} as CallTarget) };
}

it("takes no turn for a call that NCCL cannot serve before the device is idle, and keeps to it then", () => {
  const { slot, seen, loaded, open } = slotOf(false);
  for (let i = 0; i < 100; i++, vi.advanceTimersByTime(100)) expect(slot.mayOpen).toBe(false);
  seen.isIdle = true;
  expect(slot.mayOpen).toBe(true);
  seen.isIdle = false;
  // The other member may be in the turn by now.
  expect(slot.mayOpen).toBe(true);
  expect([open(), slot.mayOpen, slot.isSettled, seen.numTold]).toEqual([false, false, false, 1]);
  seen.isIdle = true;
  expect([slot.mayOpen, open(), slot.loaded === loaded, seen.numTold]).toEqual([true, true, true, 3]);
});

it("leaves ever more calls to NCCL before one waits again, where NCCL can serve them", () => {
  const { slot, seen, loaded, open } = slotOf(true);
  const rests: number[] = [];
  for (let turn = 1; turn <= 16; turn++) {
    expect(slot.mayOpen).toBe(false);
    vi.advanceTimersByTime(51);
    expect([slot.mayOpen, open(), slot.isSettled, seen.numTold]).toEqual([true, true, false, turn]);
    let rest = 0;
    while (slot.takesRest()) rest++;
    rests.push(rest);
  }
  expect(rests).toEqual([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
  seen.isIdle = true;
  expect([slot.mayOpen, open(), slot.loaded === loaded, slot.takesRest()]).toEqual([true, true, true, false]);
});

it("opens a smaller kernel in the next turn where a member has no room for the first, and refuses when that has none either", () => {
  const told = (answers: readonly ("fails" | "loads")[], isReplaceable = true) => {
    const loads = [...answers];
    const tried: string[] = [];
    let closed = 0;
    const slot: PlanSlot = new PlanSlot(
      {
        member: 0,
        mayLoad: () => true,
        load: () => {
          tried.push(slot.kernel.source);
          if (loads.shift() === "fails") throw new UnsupportedError("many blocks", "no room");
          return { describe: () => Int32Array.of(), connect: () => {}, close: () => closed++ } as unknown as LoadedPlan;
        },
        tell: (words: Int32Array) => [words, words],
        met: () => {},
      },
      {
        ...{ kind: 1, plan: {} as ExecutionPlan, dtype: "f32", maxBytes: 1024, isReplaceable },
        kernel: { source: "large" } as GeneratedKernel,
        smaller: () => ({ source: "small" }) as GeneratedKernel,
      },
    );
    const turns = [slot.open({} as CallTarget)];
    while (!slot.isSettled) turns.push(slot.open({} as CallTarget));
    return { tried, turns, opened: slot.loaded !== undefined, refusal: slot.refusal?.code, closed };
  };
  expect(told(["loads"])).toEqual({ tried: ["large"], turns: [true], opened: true, refusal: undefined, closed: 0 });
  const both = ["large", "small"];
  expect(told(["fails", "loads"])).toMatchObject({ tried: both, turns: [false, true], opened: true });
  expect(told(["fails", "fails"])).toMatchObject({ tried: both, turns: [false, true], refusal: "UNSUPPORTED" });
  // Where NCCL cannot serve the call, the next one tries again, from the first kernel on.
  const again = told(["fails", "fails", "loads"], false);
  expect(again).toMatchObject({
    tried: [...both, "large"],
    turns: [false, true, true],
    opened: true,
    refusal: undefined,
  });
});
