import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { afterRunning, runningTime, STOPPED_MS } from "./running-time.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** What a stop does: time goes on, and no timer fires meanwhile. */
function stopFor(ms: number): void {
  vi.setSystemTime(Date.now() + ms);
  const now = performance.now.bind(performance);
  vi.spyOn(performance, "now").mockImplementation(() => now() + ms);
}

it("counts time between looks, and a stop as nothing", () => {
  const start = runningTime(10_000_000);
  expect(runningTime(10_000_000 + STOPPED_MS) - start).toBe(STOPPED_MS);
  // Stopped for an hour between two looks; then it goes on counting.
  expect(runningTime(10_000_000 + STOPPED_MS + 3_600_000) - start).toBe(STOPPED_MS);
  expect(runningTime(10_000_100 + STOPPED_MS + 3_600_000) - start).toBe(STOPPED_MS + 100);
  // A time that was taken before the last look is not a stop.
  expect(runningTime(10_000_050 + STOPPED_MS + 3_600_000) - start).toBe(STOPPED_MS + 50);
});

it("calls back after so much running time, however long it was stopped", () => {
  const done = vi.fn();
  afterRunning(10_000, done);
  vi.advanceTimersByTime(4_500);
  stopFor(3_600_000);
  vi.advanceTimersByTime(5_000);
  expect(done).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1_600);
  expect(done).toHaveBeenCalledTimes(1);
});

it("calls back once, at its time, or never when it is cancelled", () => {
  const [soon, late, never] = [vi.fn(), vi.fn(), vi.fn()];
  afterRunning(50, soon);
  afterRunning(60_000, late);
  const cancelled = afterRunning(5_000, never);
  vi.advanceTimersByTime(51);
  expect(soon).toHaveBeenCalledTimes(1);
  vi.advanceTimersByTime(2_000);
  cancelled.cancel();
  vi.advanceTimersByTime(57_900);
  expect(late).not.toHaveBeenCalled();
  vi.advanceTimersByTime(100);
  expect([soon, late, never].map((fn) => fn.mock.calls.length)).toEqual([1, 1, 0]);
});

it("hears first what came while the thread stood still", async () => {
  vi.useRealTimers();
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const near = connect((server.address() as { port: number }).port, "127.0.0.1");
  const [far] = (await once(server, "connection")) as [Socket];
  await once(near, "connect");
  const order: string[] = [];
  const heard = new Promise<void>((resolve) => {
    far.once("data", () => {
      order.push("data");
      timer.cancel();
      resolve();
    });
  });
  const timer = afterRunning(1, () => order.push("late"));
  near.write("x");
  for (const until = performance.now() + 20; performance.now() < until; );
  await heard;
  expect(order).toEqual(["data"]);
  near.destroy();
  far.destroy();
  server.close();
});
