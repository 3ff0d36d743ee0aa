import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { interpret } from "../../../test/support/interpret.ts";
import type { ChunkValue } from "../../collectives/index.ts";
import { UnsupportedError } from "../../core/index.ts";
import { type Chunk, compile, customCollective, program } from "../language/index.ts";
import { verifyPlan } from "../verifier/index.ts";

const CHUNKS = 3;
type Place = readonly [rank: number, buffer: number, index: number];
interface Step {
  readonly dst: Place;
  readonly src: Place;
  readonly others: readonly Place[];
  readonly size: number;
  readonly strand: number;
}

const place = (ranks: number, buffers: number) => fc.tuple(fc.nat(ranks - 1), fc.nat(buffers - 1), fc.nat(CHUNKS - 2));
const steps = (ranks: number) =>
  fc.array(
    fc.record({
      // The input is only read.
      dst: fc.tuple(fc.nat(ranks - 1), fc.integer({ min: 1, max: 2 }), fc.nat(CHUNKS - 2)),
      src: place(ranks, 3),
      others: fc.array(place(ranks, 3), { maxLength: 2 }),
      size: fc.integer({ min: 1, max: 2 }),
      strand: fc.nat(2),
    }),
    { minLength: 1, maxLength: 14 },
  );

/** Runs the steps one after the other. @returns what each output chunk holds: input chunks, with repetition */
function sequentially(ranks: number, list: readonly Step[]): (string[] | undefined)[][] {
  const memory = new Map<string, string[] | undefined>();
  for (let r = 0; r < ranks; r++) for (let c = 0; c < CHUNKS; c++) memory.set(`${r} 0 ${c}`, [`${r}:${c}`]);
  const read = ([r, b, i]: Place, k: number) => memory.get(`${r} ${b} ${i + k}`);
  for (const { dst, src, others, size } of list) {
    // Each operand is read whole before the result is written: operations whose sides overlap are left out by `legal`.
    const values = Array.from({ length: size }, (_, k) => {
      const operands = [src, ...others].map((p) => read(p, k));
      return operands.every((o) => o !== undefined) ? operands.flatMap((o) => o ?? []) : undefined;
    });
    values.forEach((value, k) => {
      memory.set(`${dst[0]} ${dst[1]} ${dst[2] + k}`, value);
    });
  }
  return Array.from({ length: ranks }, (_, r) => Array.from({ length: CHUNKS }, (_, c) => memory.get(`${r} 1 ${c}`)));
}

/** One operation must not read what it writes at another position; a reduction is done by dst's rank from its own source. */
function legal({ dst, src, others, size }: Step): boolean {
  const apart = (p: Place) => p[0] !== dst[0] || p[1] !== dst[1] || Math.abs(p[2] - dst[2]) >= size;
  return [src, ...others].every(apart) && (others.length === 0 || src[0] === dst[0]);
}

function build(ranks: number, list: readonly Step[], links: "memory" | "port", instances: number) {
  const post = sequentially(ranks, list);
  const value = (rank: number, chunk: number): ChunkValue | null => {
    const refs = post[rank]?.[chunk]?.map((ref) => ({
      rank: Number(ref.split(":")[0]),
      chunk: Number(ref.split(":")[1]),
    }));
    return refs === undefined ? null : { kind: "reduce", from: refs };
  };
  const collective = customCollective("random", ranks, {
    inputChunks: () => CHUNKS,
    outputChunks: () => CHUNKS,
    post: value,
  });
  const made = program(
    { name: "random" as string, collective, autoSync: "full", instances, links: () => links },
    (p) => {
      const scratch = p.ranks.map((rank) => rank.scratch(CHUNKS));
      const chunk = ([r, b, i]: Place, size: number): Chunk<string> => {
        const rank = p.rank(r);
        return (b === 0 ? rank.input : b === 1 ? rank.output : scratch[r]!).slice(i, i + size);
      };
      for (const { dst, src, others, size, strand } of list) {
        if (others.length === 0) p.copy(chunk(dst, size), chunk(src, size), strand);
        else
          p.reduce(
            chunk(dst, size),
            chunk(src, size),
            others.map((o) => chunk(o, size)),
            strand,
          );
      }
    },
  );
  const doubled = post.flat().some((refs) => refs !== undefined && new Set(refs).size !== refs.length);
  return { made, doubled };
}

/** Reading what nobody wrote is the program's mistake, not the compiler's. */
function defined(ranks: number, list: readonly Step[]): boolean {
  return list.every((_, i) => {
    const before = new Set<string>();
    for (let r = 0; r < ranks; r++) for (let c = 0; c < CHUNKS; c++) before.add(`${r} 0 ${c}`);
    for (const step of list.slice(0, i))
      for (let k = 0; k < step.size; k++) before.add(`${step.dst[0]} ${step.dst[1]} ${step.dst[2] + k}`);
    const step = list[i] as Step;
    return [step.src, ...step.others].every(([r, b, at]) =>
      Array.from({ length: step.size }, (_, k) => before.has(`${r} ${b} ${at + k}`)).every(Boolean),
    );
  });
}

describe("autoSync full", () => {
  it.each([
    ["memory", 1, 1],
    ["memory", 2, 1],
    ["memory", 3, 1],
    ["memory", 2, 2],
    ["port", 2, 1],
    ["port", 3, 1],
  ] as const)(
    "keeps the order of random programs over %s channels, %i ranks, %i instances, whatever the interleaving",
    (links, ranks, instances) => {
      let compiled = 0;
      fc.assert(
        fc.property(steps(ranks), fc.nat(1000), (all, seed) => {
          const list: Step[] = [];
          for (const step of all) if (legal(step) && defined(ranks, [...list, step])) list.push(step);
          if (list.length === 0) return;
          const { made, doubled } = build(ranks, list, links, instances);
          let plan: ReturnType<typeof compile>;
          try {
            plan = compile(made, { verify: false });
          } catch (error) {
            // What a proxy has put, its own rank cannot read back: refused, not miscompiled.
            if (links === "port" && error instanceof UnsupportedError) return;
            throw error;
          }
          compiled++;
          for (let trial = 0; trial < 3; trial++) expect(interpret(plan, seed + trial)).toBeUndefined();
          if (doubled) return;
          const findings = verifyPlan(plan, {
            lint: false,
            promises: { outputAtRankEnd: true, reuseAtRankEnd: true },
          }).findings;
          expect(findings.map((finding) => `${finding.code}: ${finding.message}`)).toEqual([]);
        }),
        { numRuns: 150 },
      );
      expect(compiled).toBeGreaterThan(50);
    },
  );
});
