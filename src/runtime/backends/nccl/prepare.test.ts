/** What calls have in common for NCCL. */
import { describe, expect, it } from "vitest";
import { packCall } from "../../comm/index.ts";
import { CallSequence } from "../../progress/index.ts";
import type { PlannedCall, Serving } from "./nccl-calls.ts";
import { kindOf, LastCall, type PrepareContext } from "./prepare.ts";

describe("kinds of calls", () => {
  it("tell element types, operators, sizes and peers apart, and nothing else", () => {
    const f32 = packCall("all_reduce", "f32", "sum", 0);
    const kinds = [
      kindOf(f32, 1000),
      kindOf(f32, 2000),
      kindOf(f32, 2 ** 31),
      kindOf(f32, 2 ** 32),
      kindOf(f32, 2 ** 33),
      kindOf(packCall("all_reduce", "f64", "sum", 0), 1000),
      kindOf(packCall("all_reduce", "f32", "prod", 0), 1000),
      kindOf(packCall("all_gather", "f32", undefined, 0), 1000),
      kindOf(packCall("send", "f32", undefined, 0), 1000, 0),
      kindOf(packCall("send", "f32", undefined, 1), 1000, 1),
      kindOf(packCall("recv", "f32", undefined, 1), 1000, 1),
    ];
    expect(new Set(kinds).size).toBe(kinds.length);
    expect(kindOf(f32, 1023)).toBe(kindOf(f32, 512));
    const broadcast = (root: number) => kindOf(packCall("broadcast", "f32", undefined, root), 1000);
    expect(broadcast(3)).toBe(broadcast(0));
  });
});

describe("calls like the last one", () => {
  /** Every size has a plan up to 100 elements, and another one above. */
  function calls() {
    const asked: number[] = [];
    const of = (kind: number) => ({ kinds: [kind], isRefused: false }) as unknown as Serving & { isRefused: boolean };
    const [small, large] = [of(-2), of(-3)];
    const serving = ({ part }: PlannedCall) => {
      asked.push(part);
      return part <= 100 ? small : large;
    };
    const sequence = new CallSequence(2);
    const context = { sequence, plans: { serving } } as unknown as PrepareContext;
    const last = new LastCall();
    const next = (part: number, redop: "sum" | "max" = "sum") => {
      const call = [context, "all_reduce", "f32", part, redop, 0] as const;
      return last.again(...call) ?? last.first(...call);
    };
    return { asked, small, large, last, next };
  }

  it("say what that one said, and look for no plan", () => {
    const { asked, last, next, small } = calls();
    const [first, second] = [next(7), next(7)];
    expect(asked).toEqual([7]);
    expect(second.print).toBe(first.print);
    expect(second.seq).toBe(first.seq + 1);
    expect(last.plan).toBe(small);
    next(7, "max");
    expect(asked).toEqual([7, 7]);
    small.isRefused = true;
    next(7, "max");
    expect(asked).toEqual([7, 7, 7]);
  });

  it("have one list of kinds for all sizes that a plan serves, and keep what earlier ones said", () => {
    const { last, next, small, large } = calls();
    const prints = [7, 8, 200, 9].map((part) => {
      const { print } = next(part);
      expect(last.kinds).toBe((part <= 100 ? small : large).kinds);
      return print;
    });
    expect(prints.map(({ count }) => count)).toEqual([7, 8, 200, 9]);
  });
});
