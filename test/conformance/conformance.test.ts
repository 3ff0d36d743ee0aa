import { allCases, type CaseEvent, describeCase, pairwise, runConformance, SEMANTIC_CASES } from "chorale/conformance";
import { describe, expect, it } from "vitest";
import { spread } from "../support/spread.ts";
import { failuresOf } from "./failures.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
console.log(`conformance seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

describe("the choice of cases", () => {
  const all = allCases();

  it("has every operation with every dtype and number of ranks", () => {
    const seen = new Set(all.map((c) => `${c.op} ${c.dtype} ${c.ranks}`));
    expect(seen.has("reduce_scatter_v f8e5m2 5")).toBe(true);
    expect(seen.has("all_to_all bf16 8")).toBe(true);
    expect(all.some((c) => c.redop === "bxor" && c.dtype === "f32")).toBe(false);
    expect(all.some((c) => c.op === "all_to_all" && c.placement === "same")).toBe(false);
  });

  it("covers every pair of choices with few cases, whatever the seed", () => {
    // Of two numbers of ranks: all of them are three times as many.
    const all = allCases([2, 3]);
    const chosen = pairwise(all, seed);
    expect(chosen.length).toBeLessThan(260);
    const pairs = (cases: typeof chosen) =>
      new Set(
        cases.flatMap((c) => [
          `${c.op}/${c.dtype}`,
          `${c.dtype}/${c.redop}`,
          `${c.op}/${c.ranks}`,
          `${c.placement}/${c.count}`,
          `${c.op}/${c.placement}`,
        ]),
      );
    expect(pairs(chosen)).toEqual(pairs(all));
    expect(pairwise(all, seed + 1)).not.toEqual(chosen);
  });
});

describe("threads backend: data", () => {
  it("moves and reduces as the reference says (a pairwise-covering subset)", { timeout: 300_000 }, async () => {
    // `npm run conformance:full` has every case of every number of ranks.
    const ranks = [3, ...spread([1, 2, 4, 5, 8], 5)];
    const result = await runConformance({ backend: "threads", only: "data", seed, ranks });
    expect(failuresOf(result)).toEqual([]);
    expect(result.numPassed).toBeGreaterThan(150);
  });
});

describe("threads backend: behaviour", () => {
  // One world for each number of ranks runs all cases; each is reported by itself.
  let run: ReturnType<typeof runConformance> | undefined;
  it.each(SEMANTIC_CASES.map(({ name, ranks }) => `${name} (${ranks} ranks)`))(
    "%s",
    { timeout: 600_000 },
    async (name) => {
      run ??= runConformance({ backend: "threads", only: "behaviour", seed, interleavings: 5, programCalls: 8 });
      const result = await run;
      expect(failuresOf(result).filter((text) => text.startsWith(name))).toEqual([]);
      expect(result.numPassed + result.failed.length).toBe(SEMANTIC_CASES.length);
    },
  );
});

describe("the suite itself", () => {
  it.each([
    "one bit on every rank",
    "one bit of the last element on one rank",
    "a byte behind the result",
    "the input",
  ])("notices an all-reduce that damages %s", { timeout: 60_000 }, async (damage) => {
    const result = await runConformance({
      module: new URL("./broken/broken-rank.ts", import.meta.url),
      env: { BROKEN: damage },
      only: "data",
      ranks: [2],
      filter: "all_reduce f32 sum ranks=2 count=odd output=apart",
      full: true,
      seed,
    });
    expect(result.failed.length).toBeGreaterThan(0);
    expect(result.numPassed).toBe(0);
  });

  it("tells of each case that ended, and in which one a world ended", { timeout: 60_000 }, async () => {
    const events: CaseEvent[] = [];
    const common = {
      only: "data",
      ranks: [2],
      full: true,
      seed,
      onCase: (event: CaseEvent) => events.push(event),
    } as const;
    const namesOf = (filter: string) =>
      allCases([2])
        .map(describeCase)
        .filter((name) => name.includes(filter));
    const gather = "all_gather bf16 ranks=2 count=odd";
    await runConformance({ ...common, filter: gather });
    const ended = events.filter(({ ms }) => ms !== undefined && ms > 0);
    expect(ended.map(({ name }) => name)).toEqual(namesOf(gather));
    expect(ended.map(({ place, total }) => `${place}/${total}`)).toEqual(ended.map((_, i) => `${i + 1}/12`));

    events.length = 0;
    const sum = "all_reduce f32 sum ranks=2 count=odd output=apart";
    const module = new URL("./broken/broken-rank.ts", import.meta.url);
    await runConformance({ ...common, module, env: { BROKEN: "the rank" }, filter: sum });
    expect(events.map(({ name }) => name)).toEqual(namesOf(sum));
    expect(events.every(({ ms }) => ms === undefined)).toBe(true);
  });

  it("skips, and says so, what a backend does not have", { timeout: 60_000 }, async () => {
    const result = await runConformance({
      module: new URL("./broken/broken-rank.ts", import.meta.url),
      env: { BROKEN: "no bf16" },
      only: "data",
      ranks: [2],
      filter: "all_gather bf16 ranks=2 count=odd",
      full: true,
      seed,
    });
    expect(result.failed).toEqual([]);
    expect(result.skipped).toEqual([{ why: "no bf16", cases: 12 }]);
    expect(result.numPassed).toBe(0);
  });
});
