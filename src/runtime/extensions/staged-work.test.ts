/** Works of several stages, without ranks. */
import { describe, expect, it } from "vitest";
import { PendingWork, SettledWork } from "../comm/index.ts";
import { OpenWorks, StagedWork, type Stages } from "./staged-work.ts";

/** A collective that the test ends. */
class Collective extends PendingWork<number> {
  wait(): number {
    this.complete(1);
    return this.result();
  }
  protected onAwaited(): void {}
}

const MANY = 6_000;

/** Works that start one after the other; the first is at `collective`. */
function chain(collective: Collective, ends: () => number): readonly StagedWork<number>[] {
  const works: StagedWork<number>[] = [];
  for (let i = 0; i < MANY; i++) {
    const stages = function* (): Stages<number> {
      if (i === 0) yield collective;
      return ends();
    };
    works.push(new StagedWork<number>(i, "op", "world", stages, works.at(-1) as StagedWork<unknown> | undefined));
  }
  return works;
}

describe("works that start one after the other", () => {
  it("fail by the thousand when their group does", async () => {
    const collective = new Collective(0, "op", "world");
    const works = chain(collective, () => {
      throw new Error("gone");
    });
    collective.fail(new Error("gone"));
    await expect(works.at(-1)).rejects.toThrow("gone");
    expect(works.filter(({ state }) => state === "failed")).toHaveLength(MANY);
  });

  it("end by the thousand when the last is waited for", () => {
    const works = chain(new Collective(0, "op", "world"), () => 2);
    expect(works.at(-1)?.wait()).toBe(2);
    expect(works.filter(({ state }) => state === "done")).toHaveLength(MANY);
  });
});

describe("open works", () => {
  it("tell of a failure that nobody looked at, and of no other", async () => {
    const failing = () =>
      new StagedWork<number>(
        0,
        "op",
        "world",
        function* () {
          yield new SettledWork<number>(0, "op", "world", { error: new Error("late") });
          return 0;
        },
        undefined,
      ) as StagedWork<unknown>;
    const works = new OpenWorks();
    const [seen, unseen] = [failing(), failing()];
    works.add(seen);
    await expect(seen).rejects.toThrow("late");
    await works.endAll();
    works.report();
    works.add(unseen);
    await works.endAll();
    expect(() => works.report()).toThrow("late");
  });
});
