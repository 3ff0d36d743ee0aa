/**
 * Random programs: all ranks issue the same calls in the same order, and each is free in the rest: tensors or arrays,
 * in place or apart, waiting or awaiting, several calls under way or one. Finds what no single call shows: ranks that
 * choose different algorithms, buffers given back too early, queues that cross.
 */
import { COLLECTIVE_NAMES } from "../../collectives/index.ts";
import { DTYPE_NAMES } from "../../core/index.ts";
import type { Communicator } from "../../runtime/comm/index.ts";
import { placementsOf, redopsOf, whyNot } from "./case-selection.ts";
import { type CountKind, type DataCase, describeCase, runDataCase } from "./data-cases.ts";
import { rowAndColumn } from "./expectations.ts";
import type { RankContext, SemanticCase } from "./rank-context.ts";
import { hashOf, pick } from "./seeded-random.ts";

const COUNTS: readonly CountKind[] = ["zero", "one", "odd", "uneven", "pow2", "odd", "uneven", "pow2"];
/** One call in so many is large. */
const LARGE_EVERY = 24;
/** Calls under way at once, at most. */
const MAX_PENDING = 6;

/** The call of a step: what all ranks agree on, and this rank's way of making it. */
function stepOf(seed: number, step: number, comm: Communicator, mixed: boolean): DataCase {
  const agreed = (what: number) => hashOf(seed, step, what);
  const own = (what: number) => hashOf(seed, step, what, comm.rank + 100);
  const op = pick(comm.size > 1 ? [...COLLECTIVE_NAMES, "send" as const] : COLLECTIVE_NAMES, agreed(1));
  const dtype = op === "barrier" ? "f32" : pick(DTYPE_NAMES, agreed(2));
  return {
    op,
    dtype,
    redop: pick(redopsOf(op, dtype), agreed(3)),
    ranks: comm.size,
    count: op === "barrier" ? "one" : agreed(10) % LARGE_EVERY === 0 ? "large" : pick(COUNTS, agreed(4)),
    placement: pick(placementsOf(op), mixed || op !== "all_reduce" ? own(5) : agreed(5)),
    storage: own(6) % 2 === 0 ? "tensor" : "array",
    drive: own(7) % 3 === 0 ? "wait" : "await",
  };
}

async function run(context: RankContext, groups: readonly Communicator[]): Promise<void> {
  const { seed, programCalls } = context;
  const pending: Promise<unknown>[] = [];
  for (let step = 0; step < programCalls; step++) {
    const comm = pick(groups, hashOf(seed, step, 8));
    const has = comm.capabilities();
    const c = stepOf(seed, step, comm, has.features["mixedInPlace"] !== false);
    if (whyNot(c, has) !== undefined) continue;
    const fail = (problem: string) => context.fail(`step ${step}, ${describeCase(c)}: ${problem}`);
    // The call is issued before the first await, so the order of calls is the program's on every rank.
    pending.push(
      runDataCase({ ...context, comm, fail }, c, hashOf(seed, step)).catch((error: unknown) => {
        throw new Error(`step ${step}, ${describeCase(c)}: ${String(error)}`, { cause: error });
      }),
    );
    const full = pending.length >= MAX_PENDING || hashOf(seed, step, 9, comm.rank) % 4 === 0;
    if (full) await Promise.all(pending.splice(0));
  }
  await Promise.all(pending);
}

function program(ranks: number): SemanticCase {
  return {
    name: `a random program of ${ranks} ranks`,
    ranks,
    run: (context) => run(context, [context.comm]),
  };
}

export const RANDOM_PROGRAMS: readonly SemanticCase[] = [
  program(2),
  program(3),
  program(8),
  {
    name: "a random program over three groups that overlap",
    ranks: 4,
    needs: ["split"],
    async run(context) {
      const { comm } = context;
      const [row, column] = await rowAndColumn(comm);
      await run(context, [comm, row, column]);
      await row.close();
      await column.close();
    },
  },
];
