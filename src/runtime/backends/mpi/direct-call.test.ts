/** Calls straight from tensors that ranks of one host lend each other, without MPI: two ranks in one process. */
import { expect, it } from "vitest";
import { copyMemory } from "../../../foreign/native/index.ts";
import { HostAddresses, removeGrowingArena } from "../../memory/index.ts";
import { DirectCall } from "./direct-call.ts";
import { createHostArena, HostArena } from "./host-arena.ts";
import { HostGroup } from "./host-plans.ts";
import type { CallTarget } from "./mpi-entry.ts";

const hasMmap = process.platform === "linux" || process.platform === "darwin";
const COUNT = 100_000;

it.skipIf(!hasMmap)("a call whose tensors another group has taken out of reach fails in its own group alone", () => {
  const shared = createHostArena(2);
  const arenas = [0, 1].map(() => new HostArena(shared, 2));
  const addresses = new HostAddresses();
  const target = { mpi: { library: { copy: copyMemory() }, addresses } } as unknown as CallTarget;
  const calls = arenas.map((arena, rank) => {
    const span = (count: number) => {
      const block = arena.room.allocate(4 * count);
      if (block === undefined) throw new Error("no room");
      return addresses.span(new Float32Array(block.buffer, 0, count));
    };
    const host = { arena, documents: [], topology: "own-cores", measures: false };
    const group = new HostGroup(host, "world", [0, 1], rank, 0);
    const none = { root: 0, counts: undefined, sendCounts: [], recvCounts: [] };
    const call = { op: "all_gather", dtype: "f32", count: COUNT, rank, size: 2, ...none } as const;
    return new DirectCall(
      group,
      { ...call, send: span(COUNT), recv: span(2 * COUNT) },
      { otherwise: () => expect.unreachable("all can read the tensors") },
    );
  });
  for (const one of calls) one.begin(target);
  const [mine, theirs] = arenas as [HostArena, HostArena];
  mine.room.keep();
  for (let looks = 0; mine.running.size > 0; looks++) {
    expect(looks).toBeLessThan(10_000);
    // As a thread does that waits in another group.
    for (const one of [...mine.running, ...theirs.running]) one.advance();
  }
  expect(() => calls[0]?.advance()).toThrow(/tensors were taken out of the other ranks' reach/);
  expect(calls[1]?.advance()).toBe(true);
  for (const arena of arenas) arena.close();
  removeGrowingArena(shared);
});
