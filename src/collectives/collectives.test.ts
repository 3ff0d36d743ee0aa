import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  bufferChunks,
  busFactor,
  COLLECTIVE_NAMES,
  checkCall,
  checkPlacement,
  explainChunk,
  OPERATION_NAMES,
  outputSegments,
  parseOperation,
  partCount,
  postcondition,
  precondition,
  reportedCount,
} from "./index.ts";

describe("operations", () => {
  it("are found by any spelling, and an unknown one is answered with the list", () => {
    expect(parseOperation("reduce-scatter")).toBe("reduce_scatter");
    expect(parseOperation("allToAllV")).toBe("all_to_all_v");
    expect(parseOperation("allreduce")).toBe("all_reduce");
    expect(() => parseOperation("gossip")).toThrow(/one of all_reduce, broadcast/);
  });

  it("have nccl-tests' bus-bandwidth factors", () => {
    expect(busFactor("all_reduce", 8)).toBe(1.75);
    expect(busFactor("all_gather", 4)).toBe(0.75);
    expect(busFactor("reduce_scatter", 2)).toBe(0.5);
    expect(busFactor("broadcast", 8)).toBe(1);
    expect(busFactor("all_reduce", 1)).toBe(0);
  });

  it("report the larger buffer, as nccl-tests does", () => {
    expect(reportedCount("all_gather", 4, 10)).toBe(40);
    expect(reportedCount("all_reduce", 4, 10)).toBe(10);
    expect(partCount("reduce_scatter", 4, 43)).toBe(10);
  });
});

describe("conditions", () => {
  it("name the contributors of every chunk", () => {
    expect(postcondition("all_reduce", { numRanks: 2, chunksPerPart: 2 })[1]?.[1]).toEqual({
      kind: "reduce",
      from: [
        { rank: 0, chunk: 1 },
        { rank: 1, chunk: 1 },
      ],
    });
    expect(postcondition("all_to_all", { numRanks: 3 })[2]).toEqual([
      { kind: "copy", from: { rank: 0, chunk: 2 } },
      { kind: "copy", from: { rank: 1, chunk: 2 } },
      { kind: "copy", from: { rank: 2, chunk: 2 } },
    ]);
    expect(postcondition("gather", { numRanks: 2, root: 1 })[0]).toEqual([]);
    expect(postcondition("reduce_scatter_v", { numRanks: 2, counts: [1, 2] })[1]?.[0]).toEqual({
      kind: "reduce",
      from: [
        { rank: 0, chunk: 1 },
        { rank: 1, chunk: 1 },
      ],
    });
    expect(bufferChunks("scatter", { numRanks: 2, root: 1, chunksPerPart: 3 })).toEqual([
      { input: 0, output: 3 },
      { input: 6, output: 3 },
    ]);
    expect(precondition("barrier", { numRanks: 2 })).toEqual([[], []]);
  });

  it("agree with the elements of the reference, with a chunk of one element", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...OPERATION_NAMES),
        fc.integer({ min: 2, max: 5 }),
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 25, maxLength: 25 }),
        fc.nat(),
        (op, n, chunks, pool, rootSeed) => {
          const counts = pool.slice(0, n);
          const sendCounts = Array.from({ length: n }, (_, i) => pool.slice(i * n, i * n + n));
          const root = op === "send" || op === "recv" ? 0 : rootSeed % n;
          const post = postcondition(op, { numRanks: n, chunksPerPart: chunks, root, counts, sendCounts });
          for (let rank = 0; rank < n; rank++) {
            if ((op === "send" || op === "recv") && rank !== 1) continue;
            const segments = outputSegments(op === "send" ? "recv" : op, {
              numRanks: n,
              rank,
              count: chunks,
              root,
              counts,
              sendCounts,
            });
            const elements = segments.flatMap(({ length, start, from }) =>
              Array.from({ length }, (_, i) => (from === undefined ? `all:${start + i}` : `${from}:${start + i}`)),
            );
            const chunksOfPost = (post[rank] ?? []).map((value) =>
              value.kind === "copy" ? `${value.from.rank}:${value.from.chunk}` : `all:${value.from[0]?.chunk}`,
            );
            expect(elements).toEqual(chunksOfPost);
          }
        },
      ),
    );
  });

  it("say how a chunk is wrong", () => {
    const expected = postcondition("all_reduce", { numRanks: 2 })[0]?.[0];
    if (expected === undefined) throw new Error("no chunk");
    expect(
      explainChunk(expected, [
        { rank: 1, chunk: 0 },
        { rank: 0, chunk: 0 },
      ]),
    ).toBeUndefined();
    expect(
      explainChunk(expected, [
        { rank: 0, chunk: 0 },
        { rank: 0, chunk: 0 },
      ]),
    ).toBe("holds {0:0, 0:0}, expected {0:0, 1:0} (rank:chunk of the inputs combined)");
  });

  it("refuse counts that do not fit the ranks", () => {
    expect(() => postcondition("all_gather_v", { numRanks: 3, counts: [1] })).toThrow(/3 chunk counts/);
    expect(() => postcondition("all_to_all_v", { numRanks: 2, sendCounts: [[1, 2]] })).toThrow(/2 rows of 2/);
    expect(() => bufferChunks("all_reduce", { numRanks: 0 })).toThrow(/numRanks is 0/);
  });
});

describe("rules", () => {
  const base = { numRanks: 4, rank: 1, dtype: "f32", inputCount: 8 } as const;

  it("accept what is legal", () => {
    for (const op of COLLECTIVE_NAMES) {
      const counts = op === "all_gather_v" ? [0, 8, 1, 2] : [1, 2, 3, 2];
      expect(() =>
        checkCall({ ...base, op, counts, sendCounts: [2, 2, 2, 2], recvCounts: [0, 2, 9, 9] }),
      ).not.toThrow();
    }
    expect(() => checkCall({ ...base, op: "all_gather", outputCount: 32 })).not.toThrow();
    expect(() => checkCall({ ...base, op: "gather", root: 0, outputCount: 5 })).not.toThrow();
    expect(() => checkCall({ ...base, op: "scatter", root: 0, inputCount: 7 })).not.toThrow();
  });

  it.each([
    [{ op: "reduce_scatter", inputCount: 10 }, /input is 10 elements; expected a multiple of 4/],
    [{ op: "all_to_all", inputCount: 3 }, /multiple of 4/],
    [{ op: "scatter", root: 1, inputCount: 9 }, /multiple of 4/],
    [{ op: "broadcast", root: 4 }, /root is 4; expected a rank of the group, an integer from 0 to 3/],
    [{ op: "broadcast", root: -1 }, /root is -1/],
    [{ op: "reduce", root: 0.5 }, /root is 0.5/],
    [{ op: "send", peer: 1 }, /other than this one \(1\)/],
    [{ op: "recv", peer: 4 }, /peer is 4/],
    [{ op: "send" }, /peer is NaN/],
    [{ op: "all_reduce", redop: "band" }, /band on f32 is not supported; bitwise operators are for integer dtypes/],
    [{ op: "all_reduce", redop: "median" as "sum" }, /op is "median"; expected sum, prod/],
    [{ op: "all_reduce", outputCount: 9 }, /output is 9 elements; expected 8 elements/],
    [{ op: "all_gather", outputCount: 8 }, /32 elements \(input 8 x 4 ranks\)/],
    [{ op: "all_reduce", outputCount: 8, outputDtype: "f64" }, /output is "f64"; expected the input's dtype, f32/],
    [{ op: "all_gather_v", counts: [1, 2, 3] }, /4 element counts/],
    [{ op: "all_gather_v", counts: [1, 2, 3, 4] }, /counts\[1\] = 2/],
    [{ op: "reduce_scatter_v", counts: [1, -1, 4, 4] }, /integers of 0 or more/],
    [{ op: "reduce_scatter_v", counts: [1, 1, 1, 1] }, /the sum of counts, 4 elements/],
    [{ op: "all_to_all_v", sendCounts: [2, 2, 2, 2], recvCounts: [2, 1, 2, 2] }, /what this rank sends to itself/],
    [
      { op: "all_reduce", dtype: "u8", redop: { kind: "preMulSum", scalar: 256 } },
      /an integer that u8 holds, from 0 to 255/,
    ],
    [{ op: "all_reduce", dtype: "i32", redop: { kind: "preMulSum", scalar: 0.5 } }, /scalar is 0.5/],
  ] as const)("refuse %o", (call, message) => {
    expect(() => checkCall({ ...base, ...call })).toThrow(message);
  });

  it("know the in-place forms, and refuse every other overlap", () => {
    const storage = new ArrayBuffer(256);
    const at = (byteOffset: number, sizeBytes: number) => ({ storage, byteOffset, sizeBytes });
    expect(checkPlacement("all_reduce", at(0, 64), at(0, 64), 0)).toBe(true);
    expect(checkPlacement("all_reduce", at(0, 64), at(64, 64), 0)).toBe(false);
    expect(checkPlacement("all_gather", at(32, 16), at(0, 64), 32)).toBe(true);
    expect(checkPlacement("reduce_scatter", at(0, 64), at(16, 16), 16)).toBe(true);
    expect(checkPlacement("all_reduce", at(0, 0), at(0, 0), 0)).toBe(false);
    expect(checkPlacement("all_to_all", at(0, 64), { ...at(0, 64), storage: new ArrayBuffer(64) }, 0)).toBe(false);
    expect(() => checkPlacement("all_reduce", at(0, 64), at(4, 64), 0)).toThrow(/or exactly the input/);
    expect(() => checkPlacement("all_gather", at(16, 16), at(0, 64), 32)).toThrow(/own part/);
    expect(() => checkPlacement("all_to_all", at(0, 64), at(0, 64), 0)).toThrow(/no in-place form/);
  });
});
