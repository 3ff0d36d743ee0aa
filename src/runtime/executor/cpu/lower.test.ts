/** Records that ranks spare which have met, and whose strands one thread runs. */
import { describe, expect, it } from "vitest";
import {
  onePassAllGather,
  onePassReduce,
  onePassReduceScatter,
  twoShotFusedReadAllReduce,
} from "../../../authoring/algorithms/index.ts";
import { allReduce, compile, type Program, program, reduce } from "../../../authoring/language/index.ts";
import { leadingSync } from "./leading-sync.ts";
import { lowerRank } from "./lower.ts";

const codes = (made: Program, met: boolean) =>
  lowerRank(compile(made, { verify: false }), 0, { met }).strands.map((records) =>
    records.map(({ record }) => ("outs" in record ? `${record.code} to ${record.outs.length}` : record.code)),
  );

describe("the records of a rank", () => {
  it("begin with the data where the ranks have met, and with the plan's own meeting elsewhere", () => {
    const made = twoShotFusedReadAllReduce({ numRanks: 3 });
    expect(codes(made, true)).toEqual([["move to 3", "signal", "wait", "end"]]);
    expect(codes(made, false)).toEqual([["signal", "wait", "move to 3", "signal", "wait", "end"]]);
  });

  it("read once what goes to several places", () => {
    const made = onePassAllGather({ numRanks: 3 });
    expect(codes(made, true)).toEqual([["move to 3", "signal", "wait", "end"]]);
    expect(codes(made, false)[0]?.filter((code) => code === "copy to 1")).toHaveLength(3);
  });

  it("add in rank order where all ranks share memory, whichever rank adds", () => {
    const made = compile(onePassReduceScatter({ numRanks: 3 }), { verify: false });
    const sources = (rank: number, together: boolean) =>
      lowerRank(made, rank, { met: true, together }).strands.map((records) =>
        records.flatMap(({ record }) => ("ins" in record ? [record.ins.map((one) => one.rank)] : [])),
      );
    for (const rank of [0, 1, 2]) expect(sources(rank, true)).toEqual([[[0, 1, 2]]]);
    // The program's own order begins with the rank's own part.
    expect(sources(1, false)).toEqual([[[1, 2, 0]]]);
  });

  it("keep a first signal that somebody waits for after data", () => {
    const made = program({ name: "late wait", collective: allReduce(2) }, (p) => {
      const pairs = [0, 1].map((id) => p.memoryChannel(p.rank(id), p.rank(1 - id)));
      for (const pair of pairs) pair.signal({ strand: 0, relaxed: true });
      for (const rank of p.ranks) rank.copy(rank.output.at(0), rank.input.at(0), 0);
      for (const pair of pairs) pair.wait(0);
    });
    expect(leadingSync(compile(made, { verify: false }))).toEqual([[0], [0]]);
    expect(codes(made, true)[0]).toEqual(codes(made, false)[0]);
  });

  it("leave out scratch that nobody reads where results go straight to others", () => {
    const outs = (made: Program, together: boolean) =>
      lowerRank(compile(made, { verify: false }), 0, { met: true, together }).strands.map((records) =>
        records.flatMap(({ record }) =>
          "outs" in record ? [record.outs.map(({ rank, buffer }) => `${rank} ${buffer}`)] : [],
        ),
      );
    const made = onePassReduce({ numRanks: 3, root: 2 });
    expect(outs(made, true)).toEqual([[["2 output"]]]);
    expect(outs(made, false)).toEqual([[["0 scratch", "2 output"]]]);
    // The root takes the sum out of rank 0's scratch once more, into another chunk.
    const read = program({ name: "read later", collective: reduce(2, { root: 1, chunks: 2 }) }, (p) => {
      const [first, root] = [p.rank(0), p.rank(1)];
      const sum = first.scratch(2);
      const put = p.memoryChannel(first, root);
      p.reduce(sum.at(0), first.input.at(0), [root.input.at(0)], 0);
      put.put(root.output.at(0), sum.at(0), 0);
      first.copy(sum.at(1), sum.at(0), 0);
    });
    expect(outs(read, true)[0]?.[0]).toEqual(["0 scratch", "1 output", "0 scratch"]);
  });
});
