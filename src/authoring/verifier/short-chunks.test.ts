import { describe, expect, it } from "vitest";
import { LocalRanks } from "../../../test/support/local-ranks.ts";
import {
  allReduce,
  at,
  broadcast,
  codes,
  copy,
  far,
  nop,
  planOf,
  put,
  signal,
  sum,
  wait,
} from "../../../test/support/small-plans.ts";
import type { Op } from "../plan/execution-plan.ts";
import { verifyPlan } from "./index.ts";

const gather = { operation: "all_gather", chunksPerPart: 3 } as const;

/** Each of two ranks gives its part; rank 0 takes chunk `from` of its input there by way of `by`. */
function parked(from: number, by: ReturnType<typeof at>) {
  const part = (rank: number) => at("output", 3 * rank, 3);
  const gives = (rank: number) => [
    put(far(1 - rank, "output", 3 * rank, 3), at("input", 0, 3)),
    nop,
    signal(),
    wait(),
    nop,
  ];
  const detour = [copy(by, at("input", from)), nop, copy(at("output", from), by), nop];
  const rest = [0, 1, 2].filter((i) => i !== from).map((i) => copy(at("output", i), at("input", i)));
  return planOf(
    [[[...detour, ...rest, nop, ...gives(0)]], [[copy(part(1), at("input", 0, 3)), nop, ...gives(1)]]],
    { input: 3, output: 6, scratch: 1 },
    gather,
  );
}

describe("data in chunks that are short at some sizes", () => {
  it.each([
    ["a later chunk", 0, at("output", 2), ["cut-data"]],
    ["a later chunk, by one", 1, at("output", 2), ["cut-data"]],
    ["an earlier chunk", 2, at("output", 1), []],
    ["scratch", 0, at("scratch", 0), []],
  ] as const)("is a finding when it is kept in %s", (_, from, by, found) => {
    expect(codes(parked(from, by))).toEqual(found);
  });

  it("is told with both chunks, and where it is read", () => {
    const [finding] = verifyPlan(parked(0, at("output", 2)), { lint: false }).findings;
    expect(finding).toMatchObject({ rank: 0, strand: 0, op: 2, chunk: { buffer: "output", index: 2 } });
    expect(finding?.message).toContain("output[2] of rank 0 what comes from chunk 0 of a part");
  });

  it("is right on MSCCL++'s executor, which refuses such sizes", () => {
    expect(codes(parked(0, at("output", 2)), { target: "mscclpp" })).toEqual([]);
  });

  it("is a finding when a range in a later chunk shortens what goes elsewhere", () => {
    const [own, other] = [at("scratch", 0), at("scratch", 1)];
    const send = { ...sum(at("output", 1), at("input", 0), own), remoteDst: [far(1, "scratch", 0)] };
    const both = (reduce: object) =>
      planOf(
        [
          [
            [
              put(far(1, "scratch", 1), at("input", 1)),
              wait(),
              { ...reduce, channelKind: "memory", channels: [0] } as unknown as Op,
              nop,
              sum(at("output", 1), at("input", 1), other),
              sum(at("output", 0), at("input", 0), own),
              signal(),
            ],
          ],
          [
            [
              put(far(0, "scratch", 0, 2), at("input", 0, 2)),
              signal(),
              wait(),
              copy(at("output", 0), own),
              sum(at("output", 1), at("input", 1), other),
            ],
          ],
        ],
        { input: 2, output: 2, scratch: 2 },
        { ...allReduce, chunksPerPart: 2 },
      );
    expect(codes(both(send))).toEqual(["cut-data"]);
    expect(codes(both({ ...send, dst: at("output", 0) }))).toEqual([]);
  });
});

describe("packets of chunks that are short at some sizes", () => {
  /** Rank 1 answers with packets of one of its chunks when it has read what rank 0 then overwrites. */
  const answered = (chunk: number) =>
    planOf(
      [
        [
          [
            copy(at("output", 0, 2), at("input", 0, 2)),
            put(far(1, "output", 1), at("input", 1)),
            put(far(1, "scratch", 0), at("input", 0)),
            signal(),
            copy(at("output", 2 + chunk), at("scratch", 1), "unpack"),
            nop,
            put(far(1, "scratch", 0), at("scratch", 5)),
            wait(),
          ],
        ],
        [
          [
            copy(at("output", 2, 2), at("input", 0, 2)),
            put(far(0, "output", 3 - chunk), at("input", 1 - chunk)),
            signal(),
            wait(),
            copy(at("output", 0), at("scratch", 0)),
            nop,
            put(far(0, "scratch", 1), at("input", chunk), "pack"),
          ],
        ],
      ],
      { input: 2, output: 4, scratch: 6 },
      { operation: "all_gather", chunksPerPart: 2 },
    );

  it("prove nothing about what is longer: there may be none", () => {
    expect(codes(answered(0))).toEqual([]);
    expect(codes(answered(1))).toEqual(["race"]);
  });

  it("are waited for in whole chunks at sizes that divide only, others are refused", () => {
    const both = [at("scratch", 0, 2), at("scratch", 2, 2), at("output", 0, 2)] as const;
    const kept = (...ops: Op[]) => {
      const plan = planOf(
        [[[copy(both[2], at("input", 0, 2)), put(far(1, "scratch", 0, 2), at("input", 0, 2), "pack")]], [ops]],
        { input: 2, output: 2, scratch: 4 },
        { ...broadcast, chunksPerPart: 2 },
      );
      const ranks = plan.ranks.map((rank) => (rank.rank === 0 ? rank : { ...rank, input: { chunks: 0, segments: 1 } }));
      return { ...plan, ranks };
    };
    const whole = kept(copy(both[1], both[0], "unpack"), nop, copy(both[2], both[1]));
    const short = kept(copy(both[2], both[0], "unpack"));
    const run = (plan: typeof whole, bytes: number) => {
      const local = new LocalRanks(plan, { dtype: "u32" });
      const buffers = plan.ranks.map((rank) => {
        const inputBytes = rank.input.chunks === 0 ? 0 : bytes;
        const [input, output] = [local.memory.allocate(bytes), local.memory.allocate(bytes, false)];
        local.view("u32", input, bytes).fill(7);
        return { input, inputBytes, output, outputBytes: bytes };
      });
      return local.launch(bytes, buffers) ?? [...local.view("u32", buffers[1]!.output, bytes)];
    };
    for (const plan of [whole, short]) expect(codes(plan)).toEqual([]);
    const sevens = (bytes: number) => new Array(bytes / 4).fill(7);
    expect(run(short, 48)).toEqual(sevens(48));
    expect(run(whole, 64)).toEqual(sevens(64));
    expect(() => run(whole, 48)).toThrow(/is 48 bytes; expected 2 whole chunks/);
  });
});
