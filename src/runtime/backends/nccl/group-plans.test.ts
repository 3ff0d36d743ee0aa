/** Which plans of programs a group lets go of. */
import { algorithm } from "chorale/algorithms";
import { expect, it, vi } from "vitest";
import { GroupPlans } from "./group-plans.ts";
import { PlanSlot } from "./plan-slot.ts";

it("keeps the plan of a program that a graph runs, however many others have been run since", () => {
  const graphed = new Set<number>();
  const parts = {
    rank: {
      at: { device: { info: { computeCapability: [9, 0], numMultiprocessors: 132 } } },
      settings: { interprocess: false },
    },
    queue: { waitsWith: () => false, options: { completion: { reached: () => true, lastOfKernel: 0 } } },
    graphs: { uses: (kind: number) => graphed.has(kind) },
    member: 0,
    size: 2,
  };
  const plans = new GroupPlans(parts as unknown as ConstructorParameters<typeof GroupPlans>[0]);
  const plan = algorithm("direct-all-gather").make({ numRanks: 2 }).plan();
  const slots = Array.from({ length: 70 }, (_, i) => plans.program(plan, String(i), { dtype: "f32" }, 4));
  const closed = vi.spyOn(PlanSlot.prototype, "close");
  const numClosed = () => closed.mock.calls.length;
  graphed.add(slots[0]?.kind as number).add(slots[2]?.kind as number);
  plans.met();
  expect(closed.mock.contexts).toEqual([slots[1], slots[3], slots[4], slots[5]]);
  plans.met();
  expect(numClosed()).toBe(4);
  graphed.clear();
  plans.met();
  expect(closed.mock.contexts.slice(4)).toEqual([slots[0], slots[2]]);
  closed.mockRestore();
});
