import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { evenStages } from "./chunks.ts";
import { bestSplit, type StageChoice, type Totals } from "./split.ts";

const seed = Number(process.env.CHORALE_SEED ?? Date.now() & 0x7fffffff);

function everySplit(layers: number, stages: number): number[][] {
  const from = (first: number, left: number): number[][] =>
    left === 1
      ? [[layers]]
      : Array.from({ length: layers - first - left + 1 }, (_, at) => first + at + 1).flatMap((end) =>
          from(end, left - 1).map((rest) => [end, ...rest]),
        );
  return layers < stages ? [] : from(0, stages).map((ends) => [0, ...ends]);
}

interface Case {
  readonly layers: readonly { readonly a: number; readonly b: number; readonly bytes: number }[];
  readonly stages: readonly { readonly speed: number; readonly memory: number; readonly extra: number }[];
}

const cases: fc.Arbitrary<Case> = fc.record({
  layers: fc.array(
    fc.record({
      a: fc.integer({ min: 0, max: 9 }),
      b: fc.integer({ min: 0, max: 9 }),
      bytes: fc.integer({ min: 1, max: 9 }),
    }),
    { minLength: 1, maxLength: 8 },
  ),
  stages: fc.array(
    fc.record({
      speed: fc.constantFrom(1, 2, 5),
      memory: fc.integer({ min: 5, max: 40 }),
      extra: fc.integer({ min: 0, max: 3 }),
    }),
    { minLength: 1, maxLength: 5 },
  ),
});

function costOf({ layers, stages }: Case) {
  return (stage: number, first: number, end: number): StageChoice | undefined => {
    const own = layers.slice(first, end);
    const { speed = 1, memory = 0, extra = 0 } = stages[stage] ?? {};
    const total = (key: "a" | "b" | "bytes") => own.reduce((sum, layer) => sum + layer[key], 0);
    const memoryBytes = total("bytes");
    return memoryBytes > memory ? undefined : { a: total("a") / speed + extra, b: total("b") / speed, memoryBytes };
  };
}

const SCORES: readonly ((totals: Totals) => number)[] = [
  ({ sumA, sumB }) => sumA + sumB,
  ({ sumA, maxA, sumB, maxB }) => sumB + 7 * maxB + 3 * Math.max(sumA, 4 * maxA),
  ({ maxA }) => maxA,
  ({ maxMemory }) => maxMemory,
];

describe("the split of layers over stages", () => {
  it(`is the best of all splits, for every objective (seed ${seed})`, () => {
    fc.assert(
      fc.property(cases, fc.integer({ min: 0, max: SCORES.length - 1 }), (input, which) => {
        const score = SCORES[which] ?? SCORES[0]!;
        const cost = costOf(input);
        let best = Number.POSITIVE_INFINITY;
        for (const bounds of everySplit(input.layers.length, input.stages.length)) {
          const choices = input.stages.map((_, stage) => cost(stage, bounds[stage] ?? 0, bounds[stage + 1] ?? 0));
          if (choices.some((choice) => choice === undefined)) continue;
          const of = (key: keyof StageChoice) => choices.map((choice) => choice?.[key] ?? 0);
          const total = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);
          best = Math.min(
            best,
            score({
              sumA: total(of("a")),
              maxA: Math.max(...of("a")),
              sumB: total(of("b")),
              maxB: Math.max(...of("b")),
              maxMemory: Math.max(...of("memoryBytes")),
            }),
          );
        }
        const found = bestSplit(input.layers.length, input.stages.length, cost, score, {
          withMemory: which === 3,
          even: evenStages(input.layers.length, input.stages.length, 1),
        });
        if (best === Number.POSITIVE_INFINITY) expect(found).toBeUndefined();
        else {
          expect(found).toBeDefined();
          expect(found === undefined ? 0 : score(found)).toBeCloseTo(best, 6);
          expect(found?.bounds[0]).toBe(0);
          expect(found?.bounds.at(-1)).toBe(input.layers.length);
        }
      }),
      { numRuns: 2000, seed },
    );
  });

  it("gives nothing when there are more stages than layers, and nothing above the limit", () => {
    const cost = () => ({ a: 1, b: 1, memoryBytes: 1 });
    const of = (layers: number, stages: number, limit?: number) =>
      bestSplit(layers, stages, cost, ({ sumA }) => sumA, {
        even: evenStages(layers, stages, 1),
        ...(limit === undefined ? {} : { limit }),
      });
    expect(of(2, 3)).toBeUndefined();
    expect(of(4, 2, 1.9)).toBeUndefined();
    expect(of(4, 2, 2)?.sumA).toBe(2);
  });
});
