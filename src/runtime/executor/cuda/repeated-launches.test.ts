/** Which launches are remembered, and when they become graphs. */
import { expect, it } from "vitest";
import type { CudaGraph } from "../../device/index.ts";
import { isDue, RepeatedLaunches } from "./repeated-launches.ts";

const closedBy = (closed: string[], name: string) => ({ close: () => closed.push(name) }) as unknown as CudaGraph;

it("makes a graph of a launch once, when it was made some times with the same buffers and size", () => {
  const launches = new RepeatedLaunches({});
  const due: number[] = [];
  for (let i = 0; i < 100; i++) {
    // Others in between, also one whose numbers come to the same sum.
    for (const [input, output, partBytes] of [
      [4096, 512, 64],
      [1024, 1536, 64],
    ] as const) {
      const known = launches.of(input, output, partBytes);
      expect(known).toMatchObject({ input, output, partBytes });
    }
    if (isDue(launches.of(1 << 20, 2 ** 46, 1024))) due.push(i);
  }
  expect(due).toEqual([8]);
});

it("closes the graphs of launches that make room, that share a place with others, and of all that are forgotten", () => {
  const closed: string[] = [];
  const launches = new RepeatedLaunches({});
  launches.keep(launches.of(0, 0, 1), closedBy(closed, "first"));
  launches.keep(launches.of(0, 0, 2), closedBy(closed, "second"));
  for (let i = 3; i <= 64; i++) launches.of(0, 0, i);
  expect(closed).toEqual([]);
  launches.of(0, 0, 65);
  expect(closed).toEqual(["first"]);
  // 14 of input is as much as twice 7 of size.
  launches.of(14, 0, 0);
  expect(closed).toEqual(["first", "second"]);
  launches.keep(launches.of(14, 0, 0), closedBy(closed, "third"));
  launches.clear();
  expect(closed).toEqual(["first", "second", "third"]);
  expect(launches.of(14, 0, 0).graph).toBeUndefined();
});

it("keeps 512 graphs of a device at most, of all its plans: the one that was not used for longest is made again", () => {
  const device = {};
  const closed: string[] = [];
  const plans = Array.from({ length: 9 }, () => new RepeatedLaunches(device));
  const [first, ...others] = plans as [RepeatedLaunches, ...RepeatedLaunches[]];
  for (const [p, launches] of plans.slice(0, 8).entries())
    for (let i = 1; i <= 64; i++) launches.keep(launches.of(0, 0, i), closedBy(closed, `${p} ${i}`));
  expect(closed).toEqual([]);
  // Used: now the second one is the oldest.
  expect(first.of(0, 0, 1).graph).toBeDefined();
  const last = others.at(-1) as RepeatedLaunches;
  last.keep(last.of(0, 0, 1), closedBy(closed, "8 1"));
  expect(closed).toEqual(["0 2"]);
  expect(first.of(0, 0, 2)).toMatchObject({ graph: undefined, times: 0 });
  first.clear();
  expect(closed.length).toBe(64);
});
