import { expect, it } from "vitest";
import { SpinBudget } from "./spin.ts";

/** Waits that spin, of `count`, when what is waited for comes in time or does not. */
function spinsOf(budget: SpinBudget, count: number, isInTime: boolean): number {
  let spins = 0;
  for (let i = 0; i < count; i++) {
    if (budget.take() === 0) continue;
    spins++;
    budget.tell(isInTime);
  }
  return spins;
}

it("a rank whose frames come in time spins in every wait", () => {
  expect(spinsOf(new SpinBudget(), 1000, true)).toBe(1000);
});

it("a rank that spins in vain does so ever more rarely, and never stops to try", () => {
  const budget = new SpinBudget();
  // 1, then after 1, 3, 7, 15, 31, 63 and 127 waits without one, then after each 127.
  expect(spinsOf(budget, 1 + 2 + 4 + 8 + 16 + 32 + 64 + 128, false)).toBe(8);
  expect(spinsOf(budget, 1280, false)).toBe(10);
});

it("a few spins in time bring it back", () => {
  const budget = new SpinBudget();
  spinsOf(budget, 10_000, false);
  spinsOf(budget, 128 + 32 + 8 + 2, true);
  expect(spinsOf(budget, 100, true)).toBe(100);
});
