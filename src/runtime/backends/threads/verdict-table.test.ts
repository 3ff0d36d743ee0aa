import { describe, expect, it, vi } from "vitest";
import { Heap } from "./heap.ts";
import { createThreadsHost, failRank } from "./host.ts";
import { VERDICT, WORLD } from "./layout.ts";
import { hashesOf, VerdictTable } from "./verdict-table.ts";

function tables(ranks: number) {
  const handle = createThreadsHost({ ranks });
  const all = Array.from({ length: ranks }, (_, rank) => new VerdictTable(new Heap(handle, rank), rank));
  return { handle, all, words: new Int32Array(handle.memory.buffer) };
}

describe("what ranks tell each other of plans", () => {
  it("is found out once, and told to all", () => {
    const [first, second] = tables(2).all;
    expect(first?.ask("is it so?")).toBeUndefined();
    first?.tell("is it so?", true);
    expect([second?.ask("is it so?"), first?.ask("is it so?")]).toEqual([true, true]);
    expect(second?.ask("and this?")).toBeUndefined();
  });

  it("is not waited for when the rank that finds it out has died: one of the others does, and tells", () => {
    const { handle, all } = tables(3);
    const [dying, second, third] = all;
    expect(dying?.ask("is it so?")).toBeUndefined();
    failRank(handle, 0, "it was killed");
    const wait = vi.spyOn(Atomics, "wait");
    expect(second?.ask("is it so?")).toBeUndefined();
    expect(wait).not.toHaveBeenCalled();
    wait.mockRestore();
    second?.tell("is it so?", false);
    expect(third?.ask("is it so?")).toBe(false);
  });

  it("passes over an entry whose rank died while it wrote it", () => {
    const { all, words } = tables(2);
    const [hash] = hashesOf("is it so?");
    const claimed = 1;
    words[WORLD.verdicts + VERDICT.words * ((hash >>> 0) % VERDICT.numEntries) + VERDICT.state] = claimed;
    expect(all[1]?.ask("is it so?")).toBeUndefined();
  });
});
