import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { COLLECTIVE_NAMES } from "../../../collectives/index.ts";
import { type Choice, Choices, type KernelNames, loadLibraryPlans } from "../../executor/internal.ts";
import { JointServing } from "./joint-serving.ts";
import type { CallTarget, NcclCall } from "./nccl-calls.ts";
import { rangesOf, servingIn } from "./size-ranges.ts";
import type { SlotServing } from "./slot-serving.ts";

beforeAll(() => loadLibraryPlans());

type State = "shut" | "loaded" | "refused";

/** As much of a `SlotServing` as is asked here. */
function slotServing({ served }: Choice, kind: number, state: State) {
  const slot = { state, kinds: [kind] };
  return {
    label: served.label,
    slot: {
      ...slot,
      get loaded() {
        return slot.state === "loaded" ? {} : undefined;
      },
      get isSettled() {
        return slot.state !== "shut";
      },
    },
    kinds: slot.kinds,
    get isRefused() {
      return slot.state === "refused";
    },
    reachesPeers: false,
    launch: () => slot.state === "loaded",
    become: (next: State) => {
      slot.state = next;
    },
  };
}
type Made = ReturnType<typeof slotServing>;

const kernels = Object.fromEntries(COLLECTIVE_NAMES.map((op) => [op, ["nccl"]])) as unknown as KernelNames;
type Row = { readonly fromBytes: number; readonly use: string; readonly captured?: string };
const choicesOf = (rows: readonly Row[]) =>
  new Choices({ backend: "cuda", group: "world", numRanks: 2, topology: "gpu processes", kernels }, [
    {
      schemaVersion: 1,
      source: "test",
      date: "2026-11-29",
      tables: [{ backend: "cuda", collective: "all_gather", ranks: [2, 2], rows }],
    },
  ]);

const USES = ["nccl", "packet-all-gather*4@256.lines", "staged-all-gather*66@512.unit64K", "direct-all-gather@copies"];
const CAPTURED = [undefined, "streaming-all-gather*66@512", "one-pass-all-gather*8"];
const anyRows = fc
  .array(
    fc.record({
      fromBytes: fc.integer({ min: 1, max: 2 ** 33 }),
      use: fc.constantFrom(...USES),
      captured: fc.constantFrom(...CAPTURED),
    }),
    { minLength: 1, maxLength: 6 },
  )
  .map((list) => {
    const sorted = [...new Map(list.map((row) => [row.fromBytes, row])).values()].sort(
      (a, b) => a.fromBytes - b.fromBytes,
    );
    return sorted.map(({ fromBytes, use, captured }, i) => ({
      fromBytes: i === 0 ? 0 : fromBytes,
      use,
      ...(captured !== undefined && { captured }),
    }));
  });

describe("sizes of a table's rows", () => {
  it("are served by their row's algorithm, captured ones by that for captured calls, and above 4 GiB by NCCL", () => {
    fc.assert(
      fc.property(
        anyRows,
        fc.integer({ min: 1, max: 2 ** 33 }),
        fc.boolean(),
        fc.boolean(),
        (rows, bytes, isCaptured, hasEpilogue) => {
          const ranges = rangesOf(choicesOf(rows).ranges("all_gather", "f32"), hasEpilogue);
          const range = ranges.filter(({ fromBytes, toBytes }) => bytes >= fromBytes && bytes < toBytes);
          expect(range).toHaveLength(1);
          let kind = -2;
          const serve = (choice: Choice) =>
            choice.served.kind === "kernel"
              ? undefined
              : (slotServing(choice, kind--, "loaded") as unknown as SlotServing);
          const serving = servingIn(range[0]!, isCaptured, serve) as unknown as Made | undefined;
          const row = rows.findLast(({ fromBytes }) => fromBytes <= bytes)!;
          const isOwn = isCaptured && !hasEpilogue && row.captured !== undefined;
          const label = bytes >= 2 ** 32 ? "nccl" : isOwn ? row.captured : row.use;
          expect(serving?.label ?? "nccl").toBe(label);
        },
      ),
      { numRuns: 300 },
    );
  });

  it.each(["nccl", "packet-all-gather*4@256.lines"])(
    "open both in direct calls, until members have them, beside %s",
    (use) => {
      const made = new Map<string, Made>();
      const serve = (choice: Choice) => {
        if (choice.served.kind === "kernel") return undefined;
        const one = slotServing(choice, -2 - made.size, "shut");
        made.set(choice.served.label, one);
        return one as unknown as SlotServing;
      };
      const captured = "streaming-all-gather*66@512";
      const choices = choicesOf([{ fromBytes: 0, use, captured }]);
      const [range] = rangesOf(choices.ranges("all_gather", "f32"), false);
      const ask = (isCaptured: boolean) => servingIn(range!, isCaptured, serve);
      const joint = ask(false)!;
      expect(joint).toBeInstanceOf(JointServing);
      expect(ask(false)).toBe(joint);
      expect([joint.kinds, joint.leavesToNccl]).toEqual(use === "nccl" ? [[-2], true] : [[-2, -3], false]);
      const direct = () => made.get(use);
      // What is not open serves no captured call.
      expect(ask(true)).toBe(direct());
      direct()?.become("loaded");
      expect(joint.isRefused).toBe(false);
      expect(joint.launch({} as NcclCall, {} as CallTarget)).toBe(use !== "nccl");
      made.get(captured)?.become("loaded");
      expect([joint.isRefused, ask(false), ask(true)]).toEqual([true, direct(), made.get(captured)]);
      made.get(captured)?.become("refused");
      expect([ask(false), ask(true)]).toEqual([direct(), direct()]);
      // NCCL's calls are counted as they are made or asked for; plans count their own.
      expect(choices.counts()).toEqual(use === "nccl" ? { "all_gather nccl": 5 } : {});
    },
  );

  it("are NCCL's, and the captured algorithm is still opened, where no member can open the direct one", () => {
    const [range] = rangesOf(
      choicesOf([{ fromBytes: 0, use: "packet-all-gather", captured: "one-pass-all-gather" }]).ranges(
        "all_gather",
        "f32",
      ),
      false,
    );
    const made: Made[] = [];
    const ask = () =>
      servingIn(range!, false, (choice) => {
        made.push(slotServing(choice, -2 - made.length, "shut"));
        return made.at(-1) as unknown as SlotServing;
      });
    const first = ask()!;
    made[0]?.become("refused");
    expect(first.isRefused).toBe(true);
    const second = ask()!;
    expect([second.kinds, second.leavesToNccl, second.isRefused]).toEqual([[-3], true, false]);
    expect(made).toHaveLength(2);
  });
});
