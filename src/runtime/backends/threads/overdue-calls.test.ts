/**
 * Calls whose deadline is over when all ranks have come, since this rank's thread was held up between its last look and
 * its clock: ranks of one thread, and a clock that is set ahead.
 */
import { expect, it } from "vitest";
import { ranksHere } from "../../../../test/helpers/ranks-here.ts";
import { algorithm } from "../../../authoring/algorithms/index.ts";
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import { TimeoutError } from "../../../core/index.ts";
import { runningTime, type Work } from "../../comm/index.ts";
import type { ThreadsWork } from "./threads-work.ts";

const ring = algorithm("ring-all-reduce").make({ numRanks: 2 });

/** Has a rank find its call overdue, without a look at the others before. */
function findOverdue(work: Work<unknown>): void {
  const { engine } = work as ThreadsWork<unknown>;
  engine.checkDeadlines(runningTime());
  engine.checkDeadlines(runningTime() + 3_600_000);
}

it("goes on with a call to which the others came before its deadline was looked at", async () => {
  const { a, b } = ranksHere(2);
  const works = [a, b].map(({ world }) => world.barrier());
  findOverdue(works[0] as Work<unknown>);
  await Promise.all(works);
});

it("says where the strands stand of a run that hangs, though none had begun", async () => {
  const { a, b } = ranksHere(2);
  const plan = structuredClone(ring.plan()) as ExecutionPlan;
  // Rank 1 does nothing at all.
  (plan.ranks[1] as { strands: unknown }).strands = [];
  const works = [a, b].map(({ world }) => world.run(plan, { input: new Float32Array(8), force: true }));
  findOverdue(works[0] as Work<unknown>);
  const [error] = await Promise.all(
    works.map((work) =>
      work.then(
        () => undefined,
        (e: unknown) => e,
      ),
    ),
  );
  expect(error).toBeInstanceOf(TimeoutError);
  expect((error as TimeoutError).message).toMatch(
    /arrived: ranks \[0, 1\], missing: ranks \[\][\s\S]*rank 0 strand 0 at op \d+, wait/,
  );
});
