/** Which launches are remembered, and when they become graphs. */
import { expect, it } from "vitest";
import type { CudaGraph } from "../../device/index.ts";
import { isDue, RepeatedLaunches } from "./repeated-launches.ts";

const closedBy = (closed: string[], name: string) => ({ close: () => closed.push(name) }) as unknown as CudaGraph;

it("makes a graph of a launch once, when it was made some times with the same buffers and size", () => {
  const launches = new RepeatedLaunches();
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
  const launches = new RepeatedLaunches();
  launches.of(0, 0, 1).graph = closedBy(closed, "first");
  launches.of(0, 0, 2).graph = closedBy(closed, "second");
  for (let i = 3; i <= 64; i++) launches.of(0, 0, i);
  expect(closed).toEqual([]);
  launches.of(0, 0, 65);
  expect(closed).toEqual(["first"]);
  // 14 of input is as much as twice 7 of size.
  launches.of(14, 0, 0);
  expect(closed).toEqual(["first", "second"]);
  launches.of(14, 0, 0).graph = closedBy(closed, "third");
  launches.clear();
  expect(closed).toEqual(["first", "second", "third"]);
  expect(launches.of(14, 0, 0).graph).toBeUndefined();
});
