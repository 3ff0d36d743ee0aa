/** What differs between two plans, operation by operation, as data and as text. */
import type { ExecutionPlan, Op, RankPlan } from "./execution-plan.ts";
import { formatOp } from "./print-plan.ts";

/** One difference. `where` is a place in words; a side that is absent has nothing there. */
export interface PlanDifference {
  readonly where: string;
  readonly a?: string;
  readonly b?: string;
}

/** Lists longer than this are compared position by position, not by longest common subsequence. */
const MAX_ALIGNED = 2_000;

function plain(value: unknown): string {
  return JSON.stringify(value, (_, v: unknown) => (typeof v === "bigint" ? v.toString() : v)) ?? "undefined";
}

/** Aligns two lists of lines by their longest common subsequence. */
function align(
  a: readonly string[],
  b: readonly string[],
): { readonly a?: string; readonly b?: string; readonly at: number }[] {
  if (a.length * b.length > MAX_ALIGNED * MAX_ALIGNED) {
    return Array.from({ length: Math.max(a.length, b.length) }, (_, at) => ({
      at,
      ...(a[at] === undefined ? {} : { a: a[at] }),
      ...(b[at] === undefined ? {} : { b: b[at] }),
    })).filter((d) => d.a !== d.b);
  }
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] =
        a[i] === b[j]
          ? (lengths[(i + 1) * width + j + 1] as number) + 1
          : Math.max(lengths[(i + 1) * width + j] as number, lengths[i * width + j + 1] as number);
    }
  }
  const out: { a?: string; b?: string; at: number }[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      i++;
      j++;
    } else if (
      j >= b.length ||
      (i < a.length && (lengths[(i + 1) * width + j] as number) >= (lengths[i * width + j + 1] as number))
    ) {
      out.push({ a: a[i] as string, at: i });
      i++;
    } else {
      out.push({ b: b[j] as string, at: j });
      j++;
    }
  }
  return out;
}

function lines(ops: readonly Op[]): string[] {
  return ops.flatMap((op) =>
    op.kind === "pipeline"
      ? [
          `pipeline ${op.numChunks} chunks by ${op.unitBytes} B {`,
          ...op.body.map((inner) => `  ${formatOp(inner)}`),
          "}",
        ]
      : [formatOp(op)],
  );
}

function diffRank(a: RankPlan, b: RankPlan): PlanDifference[] {
  const found: PlanDifference[] = [];
  const compare = (what: string, x: unknown, y: unknown) => {
    if (plain(x) !== plain(y)) found.push({ where: `rank ${a.rank} ${what}`, a: plain(x), b: plain(y) });
  };
  for (const buffer of ["input", "output", "scratch"] as const)
    compare(`${buffer} chunks`, a[buffer].chunks, b[buffer].chunks);
  for (const kind of ["memory", "port", "switch"] as const)
    compare(`${kind} channels`, a.channels[kind], b.channels[kind]);
  compare("semaphores", a.semaphores, b.semaphores);
  for (let s = 0; s < Math.max(a.strands.length, b.strands.length); s++) {
    for (const { at, ...sides } of align(lines(a.strands[s]?.ops ?? []), lines(b.strands[s]?.ops ?? []))) {
      found.push({ where: `rank ${a.rank} strand ${s} op ${at}`, ...sides });
    }
  }
  return found;
}

/** All differences of two plans. Empty: they do the same, in the same way. Names and source lines do not count. */
export function diffPlans(a: ExecutionPlan, b: ExecutionPlan): PlanDifference[] {
  const found: PlanDifference[] = [];
  const compare = (what: string, x: unknown, y: unknown) => {
    if (plain(x) !== plain(y)) found.push({ where: what, a: plain(x), b: plain(y) });
  };
  compare("collective", a.collective.operation, b.collective.operation);
  compare("in place", a.collective.inPlace, b.collective.inPlace);
  const { instances: _, ...optionsA } = a.options;
  const { instances: __, ...optionsB } = b.options;
  compare("options", optionsA, optionsB);
  compare("number of ranks", a.ranks.length, b.ranks.length);
  for (let r = 0; r < Math.min(a.ranks.length, b.ranks.length); r++)
    found.push(...diffRank(a.ranks[r] as RankPlan, b.ranks[r] as RankPlan));
  return found;
}

/** Differences as text: `-` is of the first plan, `+` of the second. */
export function printDiff(differences: readonly PlanDifference[]): string {
  let where = "";
  return differences
    .flatMap((d) => {
      const place = d.where.replace(/ op \d+$/, "");
      const head = place === where ? [] : [`@ ${place}`];
      where = place;
      return [...head, ...(d.a === undefined ? [] : [`- ${d.a}`]), ...(d.b === undefined ? [] : [`+ ${d.b}`])];
    })
    .join("\n");
}
