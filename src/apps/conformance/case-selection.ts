/**
 * Which data cases are run: all of them, or a subset in which every legal pair of two choices occurs (each operation
 * with each dtype, each dtype with each operator, each number of ranks with each count, and so on), drawn from a seed.
 * Pairwise covering: most defects need no more than two choices to coincide (Kuhn, Wallace, Gallo 2004).
 */

import { OPERATION_NAMES, operationInfo } from "../../collectives/index.ts";
import { DTYPE_NAMES, DTYPES, type DType } from "../../core/index.ts";
import type { Capabilities } from "../../runtime/comm/index.ts";
import { type CaseRedop, COUNT_KINDS, type DataCase, type Placement } from "./data-cases.ts";
import { mix } from "./seeded-random.ts";

export const RANK_COUNTS = [1, 2, 3, 4, 5, 8] as const;
const OPERATORS: readonly CaseRedop[] = ["sum", "prod", "min", "max", "avg", "preMulSum"];
const BITWISE: readonly CaseRedop[] = ["band", "bor", "bxor"];

/** The legal operators of an operation and dtype; `none` for operations that do not reduce. */
export function redopsOf(op: DataCase["op"], dtype: DType): readonly DataCase["redop"][] {
  return !operationInfo(op).reduces ? ["none"] : DTYPES[dtype].isFloat ? OPERATORS : [...OPERATORS, ...BITWISE];
}

/** The ways of passing an output. */
export function placementsOf(op: DataCase["op"]): readonly Placement[] {
  if (op === "send" || op === "recv" || op === "barrier") return ["none"];
  switch (operationInfo(op).inPlace) {
    case "same":
      return ["none", "same", "apart"];
    case "never":
      return ["none", "apart"];
    default:
      return ["none", "own part", "apart"];
  }
}

/**
 * Every legal case. The large count is tried once for each operation, dtype, operator and number of ranks, with
 * placement, storage and drive taken in turn: it costs a thousand times what the others do.
 */
export function allCases(ranks: readonly number[] = RANK_COUNTS): DataCase[] {
  const cases: DataCase[] = [];
  let turn = 0;
  for (const n of ranks) {
    for (const op of OPERATION_NAMES) {
      const info = operationInfo(op);
      if (op === "recv" || (op === "send" && n === 1)) continue; // a send case receives too
      const dtypes = info.input === "none" ? (["f32"] as const) : DTYPE_NAMES;
      for (const dtype of dtypes) {
        for (const redop of redopsOf(op, dtype)) {
          const ways = placementsOf(op).flatMap((placement) =>
            (["tensor", "array"] as const).flatMap((storage) =>
              (["wait", "await"] as const).map((drive) => ({ placement, storage, drive })),
            ),
          );
          for (const count of info.input === "none" ? (["one"] as const) : COUNT_KINDS) {
            const chosen = count === "large" ? ways.slice(turn % ways.length, (turn % ways.length) + 1) : ways;
            turn++;
            for (const way of chosen) cases.push({ op, dtype, redop, ranks: n, count, ...way });
          }
        }
      }
    }
  }
  return cases;
}

/** Why a backend cannot run a case, or `undefined`. Refused calls are not the data cases' business. */
export function whyNot(c: DataCase, has: Capabilities): string | undefined {
  if (!has.operations.includes(c.op)) return `no ${c.op}`;
  if (c.op === "send" && has.features["sendOutsideBatch"] === false) return "no sendOutsideBatch";
  if (!has.dtypes.includes(c.dtype)) return `no ${c.dtype}`;
  if (c.redop !== "none" && !(has.reduceOps[c.dtype] ?? []).includes(c.redop)) return `no ${c.redop} on ${c.dtype}`;
  if (c.ranks > (has.maxRanks ?? Number.POSITIVE_INFINITY)) return `at most ${has.maxRanks} ranks`;
  return c.storage === "array" && !has.hostTensors ? "no arrays in host memory" : undefined;
}

const FIELDS = ["op", "dtype", "redop", "ranks", "count", "placement", "storage", "drive"] as const;
/** More choices than any field has. */
const BASE = 16;

const PAIRS = (FIELDS.length * (FIELDS.length - 1)) / 2;

/** The pairs of choices of every case, as small numbers: `PAIRS` of each. */
function pairTable(cases: readonly DataCase[]): Uint16Array {
  const codes = FIELDS.map(() => new Map<string | number, number>());
  const table = new Uint16Array(cases.length * PAIRS);
  const choice = FIELDS.map(() => 0);
  let at = 0;
  for (const c of cases) {
    for (const [i, field] of FIELDS.entries()) {
      const known = codes[i]!;
      let code = known.get(c[field]);
      if (code === undefined) {
        code = known.size;
        known.set(c[field], code);
      }
      choice[i] = code;
    }
    for (let i = 0; i < FIELDS.length; i++) {
      for (let j = i + 1; j < FIELDS.length; j++) {
        table[at++] = ((i * FIELDS.length + j) * BASE + choice[i]!) * BASE + choice[j]!;
      }
    }
  }
  return table;
}

/** A subset of `cases` with every pair that occurs in `cases`, drawn from `seed`; greedy, best of a few at each step. */
export function pairwise(cases: readonly DataCase[], seed: number): DataCase[] {
  const table = pairTable(cases);
  const keys = cases.map((_, i) => mix(i ^ mix(seed)));
  const order = cases.map((_, i) => i).sort((a, b) => keys[a]! - keys[b]!);
  const covered = new Uint8Array(2 ** 16);
  // How many new pairs a case brought when it was last looked at: it never brings more later.
  const most = new Uint8Array(cases.length).fill(255);
  const chosen: DataCase[] = [];
  // First those that bring many new pairs, then fewer and fewer, and at last every one that brings any.
  for (const wanted of [24, 18, 12, 8, 4, 2, 1]) {
    for (const i of order) {
      if (most[i]! < wanted) continue;
      const pairs = table.subarray(i * PAIRS, (i + 1) * PAIRS);
      let fresh = 0;
      for (const pair of pairs) fresh += 1 - (covered[pair] as number);
      most[i] = fresh;
      if (fresh < wanted) continue;
      chosen.push(cases[i] as DataCase);
      for (const pair of pairs) covered[pair] = 1;
    }
  }
  return chosen;
}
