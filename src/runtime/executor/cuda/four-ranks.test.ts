/** What four devices are served with, as kernels of the shapes that tables name: lines that are joined, units that stream. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { HostKernels, HostRanks, hasHostCompiler } from "../../../../test/support/host-cuda/host-kernels.ts";
import { runCollective } from "../../../../test/support/run-collective.ts";
import { spread } from "../../../../test/support/spread.ts";
import { algorithm } from "../../../authoring/algorithms/index.ts";
import { allReduce, compile, program } from "../../../authoring/language/index.ts";
import { proofOf } from "../../../authoring/plan/index.ts";
import { generateCuda } from "./generate.ts";

const PACKETS = [
  "one-shot-packet-all-reduce",
  "two-phase-packet-all-reduce",
  "two-shot-packet-all-reduce",
  "packet-all-gather",
  "packet-reduce-scatter",
  "packet-all-to-all",
] as const;
const STREAMS = [
  "streaming-two-phase-all-reduce",
  "staged-all-reduce",
  "one-pass-all-gather",
  "one-pass-all-reduce",
  "two-phase-all-reduce",
  "two-phase-read-all-reduce",
  "two-phase-push-all-reduce",
] as const;
/** Uneven, tiny, none, several units and several lines a thread; the first again, to go back to a size. */
const COUNTS = [37, 1, 0, 4096 * 3 + 5, 37];

const planOf = (name: string, instances: number, inPlace = false, unitBytes?: number) =>
  compile(algorithm(name).make({ numRanks: 4, instances, inPlace, ...(unitBytes === undefined ? {} : { unitBytes }) }));

/** An all-reduce of two ranks whose sums and results stand in scratch, where no chunk is short. */
const sumsInScratch = () =>
  program({ name: "sums-in-scratch", protocol: "LL", collective: allReduce(2, { chunks: 2 }) }, (p) => {
    const places = p.ranks.map((rank) => Array.from({ length: 4 }, () => rank.scratch(2)));
    const scratch = (rank: number, what: number, chunk: number) => places[rank]![what]!.at(chunk);
    for (const rank of p.ranks) {
      const peers = 1 - rank.id;
      p.copyPackets(scratch(peers, 0, peers), rank.input.at(peers));
    }
    for (const rank of p.ranks) {
      const own = rank.id;
      p.reducePackets(scratch(own, 1, own), rank.input.at(own), [scratch(own, 0, own)]);
      p.copyPackets(scratch(1 - own, 2, own), scratch(own, 1, own));
    }
    for (const rank of p.ranks) {
      const [own, peers] = [rank.id, 1 - rank.id];
      p.copy(rank.output.at(own), scratch(own, 1, own));
      rank.unpackPackets(scratch(own, 3, peers), scratch(own, 2, peers));
      p.copy(rank.output.at(peers), scratch(own, 3, peers));
    }
  });

describe.skipIf(!hasHostCompiler())("kernels of four ranks, compiled by g++ for the host", () => {
  const kernels = new HostKernels();
  const cases: { name: string; ranks: HostRanks }[] = [];
  beforeAll(() => {
    // A third of the programs, of which each has its turn with both forms: 2 and 3 have no divisor in common.
    for (const [index, name] of spread([...PACKETS.entries()], 3)) {
      const plan = planOf(name, 1 + (index % 2), algorithm(name).inPlace && index % 3 === 1);
      for (const packets of spread(["lines", "sheets"] as const, 2, index)) {
        const ranks = new HostRanks(plan, kernels, { dtype: "i32", seed: 3, packets, threads: 64 });
        cases.push({ name: `${name}, ${packets}`, ranks });
      }
    }
    for (const [index, name] of spread([...STREAMS.entries()], 3))
      for (const inPlace of spread([false, true], 2, index)) {
        const ranks = new HostRanks(planOf(name, 2, inPlace, 1024), kernels, { dtype: "i32", seed: 5, threads: 64 });
        cases.push({ name: `${name}, in place ${inPlace}`, ranks });
      }
    const ranks = new HostRanks(compile(sumsInScratch()), kernels, { dtype: "i32", packets: "sheets", threads: 64 });
    cases.push({ name: "sums in scratch", ranks });
  });
  afterAll(() => {
    kernels.close();
  });

  it("compute their collectives", { timeout: 600_000 }, () => {
    const wrong = cases.flatMap(({ name, ranks }) =>
      COUNTS.flatMap((count, i) => {
        const found = runCollective(ranks, { dtype: "i32", count, seed: 1 + i, shift: i % 3 });
        return found === undefined ? [] : [`${name}, count ${count}: ${found}`];
      }),
    );
    expect(wrong).toEqual([]);
  });
});

describe("the source for four ranks", () => {
  const strandsOf = (name: string, packets?: "lines") => {
    const plan = planOf(name, 1);
    const proof = proofOf(plan);
    const options = { relaunches: proof?.ok === true && proof.relaunches(), endsAlone: true };
    const { source } = generateCuda(plan, { dtype: "f32", ...options, ...(packets && { packets }) });
    return source.slice(source.indexOf("void strand_0("));
  };
  /** The calls that move data, in the order of a strand's source. */
  const callsOf = (name: string, packets?: "lines") => {
    const strands = strandsOf(name, packets);
    return [...strands.matchAll(/^ +(\w+<[\w, ]+>)\(/gm)].map(([, call]) => call);
  };

  it("loads the lines of all peers at once, and sends a sum from where it is added", () => {
    expect(callsOf("one-shot-packet-all-reduce", "lines")).toEqual(["pack<4>", "reducePackets<Op_sum, 0, 4, 1>"]);
    expect(callsOf("two-phase-packet-all-reduce", "lines")).toEqual([
      "packEach<3>",
      "reducePackets<Op_sum, 1, 3, 1, 3>",
      "unpackEach<3>",
    ]);
  });

  it("loads what goes to several peers once", () => {
    expect(callsOf("one-pass-all-gather")).toEqual(["copy<1, 4>"]);
    expect(callsOf("streaming-two-phase-all-reduce")).toEqual([
      "copy<1, 1>",
      "copy<1, 1>",
      "copy<1, 1>",
      "move<Op_sum, 4, 4>",
    ]);
  });

  it("signals all peers behind one fence, waits for them together, and meets them when it first reaches their buffers", () => {
    const strands = strandsOf("two-phase-push-all-reduce");
    const calls = [...strands.matchAll(/\b(copy|move|fenceSystem|raise|raiseRelaxed|await|meetRanks)[<(]/g)];
    const [put, tell] = [
      ["copy", "copy", "copy"],
      ["fenceSystem", "raiseRelaxed", "raiseRelaxed", "raiseRelaxed"],
    ];
    expect(calls.map(([, call]) => call)).toEqual([...put, ...tell, "await", "meetRanks", "move", ...tell, "await"]);
    expect(strands.match(/if \(threadIdx\.x < 3\) await/g)).toHaveLength(2);
  });
});
