/** How many calls are timed, by a clock that the calls themselves move. */
import { performance } from "node:perf_hooks";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Communicator } from "../../../runtime/comm/index.ts";
import { time } from "./call-timing.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/** A call that takes 0.3 ms for the first 40 times, as long as what compiles it takes, and then so many microseconds. */
function stepOf(usOf: (call: number) => number) {
  const state = { clockMs: 0, numCalls: 0 };
  vi.spyOn(performance, "now").mockImplementation(() => state.clockMs);
  const work = { wait: () => {}, then: undefined as never };
  const run = () => {
    state.clockMs += state.numCalls++ < 40 ? 0.3 : usOf(state.numCalls) / 1000;
    return work;
  };
  const comm = { barrier: () => work, gatherObjects: async (one: unknown) => [one] };
  return { state, comm: comm as unknown as Communicator, step: { run, calls: 1 } };
}

describe("a loop of calls", () => {
  it("is as long as it should be by what a call takes when it is warm, whatever the first ones took", async () => {
    const { comm, step } = stepOf(() => 1);
    const { us, iterations } = await time(comm, step, { drive: "wait", repeats: 3 }, undefined, true);
    // A third of 60 ms.
    expect(iterations).toBe(20_000);
    expect(us).toBeCloseTo(1, 5);
  });

  it("is not longer for calls that were fast for a moment", async () => {
    // The second round and a part of the third one.
    const { comm, step } = stepOf((call) => (call < 2000 ? 1 : 60));
    const { iterations } = await time(comm, step, { drive: "wait", repeats: 3 }, undefined, true);
    expect(iterations).toBe(Math.round(20 / 0.06));
  });

  it("has the calls that were asked for, after as many as were asked for to warm up", async () => {
    const { comm, step, state } = stepOf(() => 1);
    const { iterations } = await time(comm, step, { drive: "wait", repeats: 3, warmup: 7 }, 11, true);
    // Eighteen find out how long a call takes.
    expect([iterations, state.numCalls]).toEqual([11, 18 + 7 + 3 * 11]);
  });
});
