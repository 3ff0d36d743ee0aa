import { describe, expect, it } from "vitest";
import type { CpuCosts } from "../../machine/cost/index.ts";
import { ALGORITHMS, algorithm } from "../algorithms/index.ts";
import { compile } from "../compiler/index.ts";
import type { RankPlan } from "../plan/index.ts";
import { simulateCpu } from "./cpu-host.ts";
import { type CpuMeasurement, cpuError, fitCpuCosts } from "./fit-cpu.ts";

/** Powers of two, so that expected times are sums that one can check by hand. */
const COSTS: CpuCosts = {
  callUs: 1,
  meetUs: 0.5,
  opUs: 0,
  signalUs: 0.25,
  cachedCopyGBps: 1,
  copyGBps: 1,
  cachedReduceGBps: 2,
  reduceGBps: 2,
  packetGBps: 0.5,
  cacheBytes: 1e12,
};
const planOf = (name: string, numRanks: number, more = {}) =>
  compile(algorithm(name).make({ numRanks, ...more }), { verify: false });

describe("plans on a CPU host", () => {
  it("cost what their operations cost, a rank's strands one after the other", () => {
    // Each of two ranks reads the other's half (2 operands: 1 us per 1000 bytes) and writes its half to both.
    const fused = planOf("two-shot-fused-read-all-reduce", 2);
    const at = (sizeBytes: number, endsAlone = false) => simulateCpu(fused, { sizeBytes, costs: COSTS, endsAlone });
    expect(at(0).timeUs).toBeCloseTo(1.5 + 2 * 0.25, 1);
    expect(at(2000).timeUs - at(0).timeUs).toBeGreaterThan(1);
    expect(at(2000).timeUs - at(2000, true).timeUs).toBeCloseTo(0.5, 9);
    const long = at(2e6);
    expect(long.algbwGBps).toBeCloseTo(2e6 / long.timeUs / 1000, 9);
    expect(long.busbwGBps).toBeCloseTo(long.algbwGBps, 9);
    // Instances add strands, which share the core: the same bytes take the same time.
    const two = simulateCpu(planOf("two-shot-fused-read-all-reduce", 2, { instances: 2 }), {
      sizeBytes: 2e6,
      costs: COSTS,
    });
    expect(two.timeUs / long.timeUs).toBeCloseTo(1, 2);
  });

  it("end, for every algorithm of the library at 2 to 4 ranks, and take longer the more there is", () => {
    for (const entry of ALGORITHMS) {
      for (const n of [2, 3, 4].filter(entry.legal)) {
        const plan = compile(entry.make({ numRanks: n }), { verify: false });
        const times = [0, 1000, 1e5, 1e7].map((sizeBytes) => simulateCpu(plan, { sizeBytes, costs: COSTS }));
        expect(
          times.every(({ completed }) => completed),
          `${entry.name} ${n}`,
        ).toBe(true);
        expect([...times].sort((a, b) => a.timeUs - b.timeUs)).toEqual(times);
      }
    }
  });

  it("that hang do not end", () => {
    const plan = planOf("ring-all-reduce", 2);
    const without = {
      ...plan,
      ranks: plan.ranks.map((rank) =>
        rank.rank === 0
          ? {
              ...rank,
              strands: rank.strands.map((s) => ({ ...s, ops: s.ops.filter(({ kind }) => kind !== "signal") })),
            }
          : rank,
      ),
    };
    expect(simulateCpu(without, { sizeBytes: 1000, costs: COSTS }).completed).toBe(false);
  });

  it("move a unit each turn of a pipeline, not the whole range", () => {
    const plan = planOf("streaming-all-reduce", 2);
    const at = (sizeBytes: number) => simulateCpu(plan, { sizeBytes, costs: COSTS }).timeUs;
    expect(at(2 ** 26) / at(2 ** 22)).toBeCloseTo(16, 0);
    // The slowest that there is: a rank copies and reduces all, one after the other.
    expect(at(2 ** 26)).toBeLessThan((2 ** 26 / 1000) * 5);
  });

  it("are refused where they do not hold together, or take too many turns", () => {
    const plan = planOf("streaming-all-reduce", 2);
    const [first, second] = plan.ranks as [RankPlan, RankPlan];
    const far = { ...plan, ranks: [first, { ...second, channels: { ...second.channels, memory: [7, 7] } }] };
    expect(() => simulateCpu(far, { sizeBytes: 1000, costs: COSTS })).toThrow(/memory channel 0 leads to rank 7/);
    expect(() => simulateCpu(plan, { sizeBytes: 2 ** 49, costs: COSTS })).toThrow(/of more operations.*at this size/);
  });

  it("hold nothing for what a semaphore begins with", () => {
    const plan = planOf("ring-all-reduce", 2);
    const ranks = plan.ranks.map((rank) => ({
      ...rank,
      semaphores: [{ initialValue: 2 ** 40 }],
      strands: rank.strands.map((strand) => ({
        ...strand,
        ops: [{ kind: "acquire", semaphores: [0] } as const, ...strand.ops],
      })),
    }));
    expect(simulateCpu({ ...plan, ranks }, { sizeBytes: 1000, costs: COSTS }).completed).toBe(true);
  });
});

describe("fitting a CPU host", () => {
  it("finds the constants that made the times, well enough for plans that it did not see", () => {
    const base: CpuCosts = { ...COSTS, opUs: 0.05, copyGBps: 0.5, reduceGBps: 1, cacheBytes: 4e5 };
    const truth: CpuCosts = {
      ...base,
      callUs: 3,
      opUs: 0.12,
      signalUs: 0.6,
      cachedCopyGBps: 9,
      copyGBps: 4,
      cachedReduceGBps: 12,
      reduceGBps: 7,
      packetGBps: 2,
    };
    const rows = (names: readonly string[]): CpuMeasurement[] =>
      names.flatMap((name) => {
        const plan = planOf(name, 2);
        return [64, 4096, 65_536, 1 << 20, 1 << 24].map((sizeBytes) => ({
          name,
          plan,
          sizeBytes,
          endsAlone: false,
          timeUs: simulateCpu(plan, { sizeBytes, costs: truth }).timeUs,
        }));
      });
    const seen = rows([
      "ring-all-reduce",
      "one-shot-packet-all-reduce",
      "two-shot-read-all-reduce",
      "direct-all-gather",
    ]);
    const unseen = rows(["halving-doubling-all-reduce", "one-shot-all-reduce", "bruck-all-gather", "chain-broadcast"]);
    const fit = fitCpuCosts(seen, base);
    expect(fit.before).toBeGreaterThan(0.5);
    expect(fit.after).toBeLessThan(0.1);
    expect(cpuError(fit.costs, unseen)).toBeLessThan(0.15);
  });
});
