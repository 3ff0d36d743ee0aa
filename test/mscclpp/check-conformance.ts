/**
 * Compares one line of conformance data with what chorale makes of its trace. Plans are compared as data; the order of
 * `access_channel_types` and of the ids inside one fused signal, wait or flush carries no meaning and is sorted first.
 */

import { parseExact } from "../../src/authoring/interchange/exact-json.ts";
import { ChoraleError } from "../../src/core/index.ts";
import { replayToText, type Trace } from "./replay-trace.ts";

export interface ConformanceResult {
  readonly id: string;
  /** Absent when it conforms. */
  readonly problem?: string;
  /** When the data has the printed text: whether ours is the same, byte for byte. */
  readonly sameText?: boolean;
}

interface Line {
  readonly id?: string;
  readonly case?: number;
  readonly trace: Trace;
  readonly double_post?: boolean;
  readonly plan?: unknown;
  readonly plan_text?: string;
  readonly error?: readonly [string, string];
}

const SETS = new Set(["signal", "rlxsignal", "wait", "rlxwait", "flush"]);

function normal(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(normal);
  if (typeof value !== "object" || value === null) return value;
  const record = value as Record<string, unknown>;
  return Object.fromEntries(
    Object.entries(record).map(([key, inner]) => {
      const sorted = key === "access_channel_types" || (key === "channel_ids" && SETS.has(String(record["name"])));
      return [
        key,
        sorted && Array.isArray(inner)
          ? [...inner].sort((a, b) => (typeof a === "number" ? a - Number(b) : String(a) < String(b) ? -1 : 1))
          : normal(inner),
      ];
    }),
  );
}

/** The first place where two plans differ, in words. */
function difference(expected: unknown, actual: unknown, path = "plan"): string | undefined {
  if (Object.is(expected, actual)) return undefined;
  if (typeof expected !== "object" || typeof actual !== "object" || expected === null || actual === null) {
    return `${path} is ${JSON.stringify(actual)}, expected ${JSON.stringify(expected)}`;
  }
  const a = Object.keys(expected);
  const b = Object.keys(actual);
  for (const key of new Set([...a, ...b])) {
    const inner = difference(
      (expected as Record<string, unknown>)[key],
      (actual as Record<string, unknown>)[key],
      `${path}.${key}`,
    );
    if (inner !== undefined) return inner;
  }
  return a.join() === b.join()
    ? undefined
    : `${path} has its fields in another order: ${b.join()}, expected ${a.join()}`;
}

/** Checks one line of conformance data. */
export function checkConformance(text: string): ConformanceResult {
  const line = parseExact(text) as Line;
  const id = line.id ?? `case ${line.case}`;
  let ours: string;
  try {
    ours = replayToText(line.trace, line.double_post === true ? 2 : 1);
  } catch (error) {
    if (line.error !== undefined && error instanceof ChoraleError) return { id };
    return {
      id,
      problem:
        line.error === undefined ? `raised ${String(error)}` : `raised an error that is not ours: ${String(error)}`,
    };
  }
  if (line.error !== undefined) return { id, problem: `made a plan; expected an error: ${line.error.join(": ")}` };
  const expected = line.plan_text === undefined ? line.plan : parseExact(line.plan_text);
  const problem = difference(normal(expected), normal(parseExact(ours)));
  return {
    id,
    ...(problem === undefined ? {} : { problem }),
    ...(line.plan_text === undefined ? {} : { sameText: line.plan_text === ours || `${line.plan_text}\n` === ours }),
  };
}
