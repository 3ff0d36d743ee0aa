import { expect, it } from "vitest";
import { WorkClock } from "./work-clock.ts";

it("counts work, not waiting, and gives waiting back to solvers that count the wall's time", async () => {
  const clock = new WorkClock();
  const busyUntil = performance.now() + 80;
  while (performance.now() < busyUntil || clock.seconds < 0.06);
  const wall = performance.now();
  const worked = clock.seconds;
  await new Promise((resolve) => setTimeout(resolve, 300));
  const waited = (performance.now() - wall) / 1000;
  expect(clock.seconds - worked).toBeLessThan(waited / 2);
  expect(clock.wallSeconds(1)).toBeGreaterThan(1.3);
  expect(clock.wallSeconds(1)).toBeLessThanOrEqual(16);
});
