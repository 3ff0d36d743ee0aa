/** How much a small collective puts into one message, without ranks. */
import { expect, it } from "vitest";
import { WIRE_OPS } from "../../comm/index.ts";
import { eagerLimitBytes, laneRoomBytes, MAX_RING_RANKS, ROOM_BYTES } from "./collective-path.ts";
import { memberLayout } from "./layout.ts";

const WHOLE = ["reduce_scatter", "all_to_all", "scatter"];

it("sends no message that is larger than its slot, in a group of any size", () => {
  for (let n = 2; n <= MAX_RING_RANKS; n++) {
    for (const op of WIRE_OPS) {
      const most = eagerLimitBytes(op, n);
      const isLane = op === "gather" || op === "reduce" || (op === "scatter" && n === 2);
      const bytes = isLane || !WHOLE.includes(op) ? most : n * most;
      expect([op, n, bytes <= (isLane ? laneRoomBytes(n) : ROOM_BYTES)]).toEqual([op, n, true]);
    }
  }
});

it("sets nothing aside for small collectives in groups that have no rings", () => {
  const [with32, with33, with256] = [32, 33, 256].map((n) => memberLayout(n, 64));
  expect(with33!.ways).toBeLessThan(with32!.ways);
  expect(with256!.ways - with256!.tasks).toBe(0);
  expect(WIRE_OPS.filter((op) => eagerLimitBytes(op, MAX_RING_RANKS + 1) >= 0)).toEqual([]);
});

it("has room for what a member does in each operation that is ever small", () => {
  const { ways, tasks, taskBytes } = memberLayout(MAX_RING_RANKS, 64);
  const small = WIRE_OPS.filter((op) => eagerLimitBytes(op, 2) >= 0 || eagerLimitBytes(op, MAX_RING_RANKS) >= 0);
  expect((ways - tasks) / taskBytes).toBeGreaterThanOrEqual(small.length);
});
