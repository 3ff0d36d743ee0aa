/** What a run of a schedule leaves behind when it cannot go on. */
import { expect, it } from "vitest";
import { Reducer } from "./reducer.ts";
import type { Schedule } from "./schedule.ts";
import { ScheduleRun } from "./schedule-run.ts";

it("lets go of the grants that it holds when a strand throws", () => {
  let numHeld = 0;
  const carrier = {
    send: () => {},
    receive: () => {},
    hold: () => void numHeld++,
    release: () => void numHeld--,
  };
  const schedule: Schedule = {
    name: "broken",
    window: 1,
    numStrands: 1,
    scratchBytes: 0,
    strand: () => {
      throw new Error("no strand");
    },
  };
  const nothing = { input: new Uint8Array(0), output: new Uint8Array(0), operator: undefined };
  const run = new ScheduleRun(schedule, nothing, new Reducer(), carrier, () => {});
  expect(() => run.start()).toThrow("no strand");
  expect(numHeld).toBe(0);
});
