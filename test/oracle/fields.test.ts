/**
 * Every field of MSCCL++ files, changed: what the verifier passes no run breaks, and no field that says what the plan
 * does is read past. The campaign mutates plans; this mutates the files that plans are read from.
 */
import { describe, expect, it } from "vitest";
import { ALGORITHMS, algorithm } from "../../src/authoring/algorithms/index.ts";
import { readMscclpp, writeMscclppPieces } from "../../src/authoring/interchange/index.ts";
import { compile } from "../../src/authoring/language/index.ts";
import { type ExecutionPlan, withTables } from "../../src/authoring/plan/index.ts";
import { spread } from "../support/spread.ts";
import { isShapeless, judge } from "./judge.ts";

type Path = readonly (string | number)[];

function* leavesOf(value: unknown, path: Path = []): Generator<{ readonly path: Path; readonly value: unknown }> {
  if (typeof value !== "object" || value === null) yield { path, value };
  else for (const [key, inner] of Object.entries(value)) yield* leavesOf(inner, [...path, key]);
}

const LETTERS = ["i", "o", "s"];
const KINDS = ["memory", "port", "switch"];
/** Other values of a field; none of a name that is free or of units (tiny ones make the oracle's cells too many). */
function others(path: Path, value: unknown): readonly unknown[] {
  const key = path.at(-1);
  const without = (list: readonly unknown[]) => list.filter((item) => item !== value);
  if (typeof value === "boolean") return [!value];
  if (typeof value === "number") return key === "unit_size" ? [] : value > 0 ? [value - 1, value + 1] : [value + 1];
  if (LETTERS.includes(value as string)) return without(LETTERS);
  return KINDS.includes(value as string) ? without(KINDS) : [];
}

function changed(document: unknown, path: Path, value: unknown): unknown {
  const copy = structuredClone(document) as Record<string, unknown>;
  let at = copy;
  for (const key of path.slice(0, -1)) at = at[key] as Record<string, unknown>;
  at[path.at(-1)!] = value;
  return copy;
}

/** A field's name without its place: `op put.src_buff.index`. */
function fieldOf(document: unknown, path: Path): string {
  let at = document as Record<string, unknown>;
  let op = "";
  const words: string[] = [];
  for (const key of path) {
    at = at[key] as Record<string, unknown>;
    if (key === "gpus" || key === "threadblocks" || /^\d+$/.test(String(key))) {
      if (typeof at?.["name"] === "string") op = `op ${at["name"]}.`;
    } else words.push(String(key));
  }
  return `${op}${words.filter((word) => word !== "ops").join(".")}`;
}

function documentOf(plan: ExecutionPlan): unknown {
  const pieces: string[] = [];
  const { name, collective, options } = plan;
  const header = {
    name,
    collective: collective.operation.replaceAll("_", ""),
    inPlace: collective.inPlace,
    options: { ...options, maxMessageSizeBytes: 2n ** 40n },
  };
  writeMscclppPieces(header, plan.ranks.map(withTables), (piece) => pieces.push(piece));
  return JSON.parse(pieces.join(""));
}

const NAMES = ALGORITHMS.filter(({ collective, legal }) => /^all_|^reduce_scatter$/.test(collective) && legal(2))
  .map(({ name }) => name)
  .filter((name) => name !== "direct-all-to-all-v");
/** So many changes of one field in some of the algorithms do not all happen to name what is the same, as two channels to one rank. */
const ENOUGH = 8;
/** Fields that change nothing when launched once: sizes and room, launches, threads, order of what is the same. */
const HARMLESS =
  /^(inplace|reuse_resources|use_double_scratch_buffer|num_threads_per_block|buffer_alignment|m(in|ax)_message_size|scratch_chunks)$/;

describe("every field of a MSCCL++ file", () => {
  it("is minded: what passes with a field changed, no run breaks", { timeout: 120_000 }, () => {
    const seen = new Map<string, { mutants: number; passed: number }>();
    let seed = 1;
    for (const [i, name] of spread(NAMES, 3).entries()) {
      const plan = compile(algorithm(name).make({ numRanks: 2, instances: i % 3 === 0 ? 2 : 1 }), { verify: false });
      const document = documentOf(plan);
      for (const { path, value } of leavesOf(document)) {
        for (const other of others(path, value)) {
          if (seed++ % 3 !== 0 && typeof value === "number") continue;
          const field = fieldOf(document, path);
          const count = seen.get(field) ?? { mutants: 0, passed: 0 };
          seen.set(field, { ...count, mutants: count.mutants + 1 });
          let mutant: ExecutionPlan;
          try {
            mutant = readMscclpp(changed(document, path, other), name);
          } catch {
            continue;
          }
          const { verdict, failure } = judge(mutant, { runs: 6, seed, steered: 8 });
          const what = `${name}: ${path.join(".")} from ${String(value)} to ${String(other)} (seed ${seed})`;
          if (verdict.ok) {
            expect(failure, what).toBeUndefined();
            seen.set(field, { mutants: count.mutants + 1, passed: count.passed + 1 });
          } else if (!isShapeless(verdict)) expect(failure, `${what}: ${verdict.findings[0]?.message}`).toBeDefined();
        }
      }
    }
    const readPast = [...seen]
      .filter(([field, { mutants, passed }]) => mutants >= ENOUGH && passed === mutants && !HARMLESS.test(field))
      .map(([field]) => field);
    expect(readPast).toEqual([]);
    expect([...seen.values()].reduce((sum, { mutants }) => sum + mutants, 0)).toBeGreaterThan(300);
  });
});
