import { describe, expect, it } from "vitest";
import { at, codes, copy, far, nop, planOf, put, signal, wait } from "../../../test/support/small-plans.ts";
import { mscclppAllReducePipeline } from "../algorithms/index.ts";
import type { ExecutionPlan, Op } from "../plan/index.ts";
import { verifyPlan } from "./index.ts";

const target = "mscclpp";
const LL = (plan: ExecutionPlan): ExecutionPlan => ({ ...plan, options: { ...plan.options, protocol: "LL" } });
const gather = { operation: "all_gather", chunksPerPart: 2 } as const;

/** Rank 0 sends packets, rank 1 unpacks them to plain data from chunk `plain` of scratch on, and gives its own part. */
function unpacked(plain: number, unpackedTo: (from: number) => readonly Op[]): ExecutionPlan {
  const sends = [0, 1].map((i) => put(far(1, "scratch", i), at("input", i), "pack"));
  const gives = [
    put(far(0, "output", 2, 2), at("input", 0, 2)),
    copy(at("output", 2, 2), at("input", 0, 2)),
    nop,
    copy(at("scratch", plain, 2), at("scratch", 0, 2), "unpack"),
    nop,
  ];
  return LL(
    planOf(
      [
        [[...sends, copy(at("output", 0, 2), at("input", 0, 2)), nop, wait(), nop]],
        [[...gives, ...unpackedTo(plain), nop, signal(), nop]],
      ],
      { input: 2, output: 4, scratch: 8 },
      gather,
    ),
  );
}
const copied = (plain: number): readonly Op[] => [copy(at("output", 0, 2), at("scratch", plain, 2))];

describe("scratch of MSCCL++'s executor", () => {
  it.each([
    [2, ["target-defect"]],
    [3, ["target-defect"]],
    [4, []],
    [6, []],
  ])("has packets of two chunks over its first four of plain data: plain data from chunk %i", (plain, found) => {
    const plan = unpacked(plain, copied);
    expect(codes(plan)).toEqual([]);
    expect(codes(plan, { target })).toEqual(found);
  });

  it("is told from the operation that moves the packets, with both places", () => {
    const { findings } = verifyPlan(unpacked(2, copied), { target, lint: false });
    expect(findings.map(({ rank, strand, op }) => [rank, strand, op])).toEqual([
      [0, 0, 1],
      [1, 0, 3],
    ]);
    expect(findings[0]?.message).toContain("packets of scratch[1] of rank 1, which lie over plain data of scratch[2]");
  });

  it("has each rank's own: packets here, plain data there", () => {
    const plan = (owner: number) =>
      LL(
        planOf(
          [
            [[copy(at("scratch", 0), at("input", 0), "pack"), nop, copy(at("output", 0), at("scratch", 0), "unpack")]],
            [[copy(at("scratch", owner), at("input", 0)), nop, copy(at("output", 0), at("scratch", owner))]],
          ],
          { input: 1, output: 1, scratch: 2 },
        ),
      );
    expect(codes(plan(0), { target })).toEqual([]);
    expect(codes(plan(1), { target })).toEqual([]);
  });

  it("is the first half for plain data over a channel, where launches take turns", () => {
    const plan = (useDoubleScratchBuffer: boolean, notOverChannel = false) => {
      const sync = [signal(), nop, wait(), nop];
      const rank = (peer: number) => [
        ...(notOverChannel
          ? [copy(at("scratch", 0), at("input", 0)), nop, put(far(peer, "output", 1 - peer), at("scratch", 0)), nop]
          : [put(far(peer, "scratch", 0), at("input", 0)), nop]),
        ...sync,
        ...(notOverChannel ? [] : [copy(at("output", peer), at("scratch", 0))]),
        copy(at("output", 1 - peer), at("input", 0)),
        nop,
        ...sync,
      ];
      const base = planOf([[rank(1)], [rank(0)]], { input: 1, output: 2, scratch: 1 }, { operation: "all_gather" });
      return { ...base, options: { ...base.options, useDoubleScratchBuffer } };
    };
    expect(codes(plan(true))).toEqual([]);
    expect(codes(plan(false), { target })).toEqual([]);
    expect(codes(plan(true), { target })).toEqual(["target-defect"]);
    expect(codes(plan(true, true), { target })).toEqual([]);
  });
});

describe("scratch that plans share (reuse_resources)", () => {
  /** One rank copies through scratch of `chunks` chunks, plainly or as packets. */
  const through = (maxMessageSizeBytes: bigint, format?: "packets", chunks = 4): ExecutionPlan => {
    const [pack, unpack] = format === undefined ? ([] as const) : (["pack", "unpack"] as const);
    const ops = [copy(at("scratch", 0), at("input", 0), pack), nop, copy(at("output", 0), at("scratch", 0), unpack)];
    const plan = planOf(
      [[ops]],
      { input: 1, output: 1, scratch: chunks },
      { operation: "all_gather", chunksPerPart: 1 },
    );
    return {
      ...plan,
      options: { ...plan.options, protocol: "LL", reuseResources: true, maxMessageSizeBytes },
    };
  };
  const shareBytes = 2n ** 24n;

  it.each([
    ["plain", undefined, shareBytes],
    ["packets", "packets", shareBytes / 2n],
  ] as const)("has room for messages up to a chunk's share: %s", (_, format, most) => {
    expect(codes(through(most, format), { target })).toEqual([]);
    expect(codes(through(most + 1n, format), { target })).toEqual(["target-defect"]);
    expect(codes(through(most + 1n, format))).toEqual([]);
    const [finding] = verifyPlan(through(2n ** 40n, format), { target, lint: false }).findings;
    expect(finding?.message).toContain(`messages above ${most} bytes`);
  });

  it("is used again by loops, which nothing proves right", () => {
    const plan = mscclppAllReducePipeline({}).plan();
    const { findings } = verifyPlan(plan, { target, lint: false });
    const undecided = findings.filter(({ code }) => code === "undecided");
    expect(undecided.map(({ rank }) => rank)).toEqual([0, 1]);
    // Two chunks of 32 MiB each.
    expect(undecided[0]?.hint).toContain(`at most ${2 ** 26}`);
  });
});
