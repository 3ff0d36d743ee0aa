/** Which calls share a schedule that was made for an earlier one. */
import { expect, it } from "vitest";
import type { Call } from "../../../collectives/index.ts";
import { KnownSchedules } from "./known-schedules.ts";

const call = (more: Partial<Call> = {}): Call => ({
  op: "all_reduce",
  numRanks: 3,
  rank: 1,
  dtype: "f32",
  redop: "sum",
  inputCount: 1,
  ...more,
});
const place = { rank: 1, size: 3, elementBytes: 4 };

it("keeps the schedule of a call that is made again, and makes one for every other", () => {
  const known = new KnownSchedules();
  const first = known.of(call(), place, 400);
  expect(known.of(call(), place, 400)).toBe(first);
  const broadcast = known.of(call({ op: "broadcast", root: 0 }), place, 400);
  const others = [
    known.of(call(), place, 404),
    known.of(call(), { ...place, elementBytes: 2 }, 400),
    broadcast,
    known.of(call({ op: "broadcast", root: 2 }), place, 400),
  ];
  expect(new Set([first, ...others]).size).toBe(5);
  expect(known.of(call({ op: "broadcast", root: 0 }), place, 400)).toBe(broadcast);
  expect(known.counts()).toEqual({ "all_reduce bruck": 4, "broadcast binomial": 3 });
});

it("keeps none of calls with counts of their own, and forgets the oldest of many sizes", () => {
  const known = new KnownSchedules();
  const varied = call({ op: "all_gather_v", counts: [1, 2, 3] });
  expect(known.of(varied, place, 24)).not.toBe(known.of(varied, place, 24));
  const first = known.of(call(), place, 4);
  for (let bytes = 8; bytes < 8 + 4 * 16; bytes += 4) known.of(call(), place, bytes);
  expect(known.of(call(), place, 4)).not.toBe(first);
});
