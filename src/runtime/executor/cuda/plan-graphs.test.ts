/** Which launches go as graphs, and whose arguments those have. */
import { expect, it } from "vitest";
import type { CudaKernel, CudaStream } from "../../device/index.ts";
import type { LaunchGraph } from "../../device/internal.ts";
import { PlanGraphs } from "./plan-graphs.ts";

const stream = {} as CudaStream;
const kernel = {} as CudaKernel;

/** Graphs that write down what they run: a launch is its size here. */
function planGraphs(mayMake = () => true) {
  const seen = { made: 0, changed: 0, closed: 0, plain: 0, ran: [] as number[], repeated: [] as number[] };
  let written = 0;
  const make = () => {
    if (!mayMake()) return undefined;
    seen.made++;
    let own = written;
    const graph: Partial<LaunchGraph> = {
      takeArguments: () => {
        if (own !== written) seen.changed++;
        own = written;
      },
      launch: () => void seen.ran.push(own),
      close: () => void seen.closed++,
    };
    return graph as LaunchGraph;
  };
  const graphs = new PlanGraphs(make, (partBytes) => void seen.repeated.push(partBytes));
  const launch = (partBytes: number) => {
    if (graphs.relaunch(stream, 1, 2, partBytes)) return;
    written = partBytes;
    if (!graphs.launch(stream, 1, 2, partBytes, kernel)) seen.plain++;
  };
  return { graphs, seen, launch };
}

it("launches a plan some times without graphs, and then makes few, whatever sizes come", () => {
  const { seen, launch } = planGraphs();
  const sizes = Array.from({ length: 10_000 }, (_, i) => 1 + ((i * 7919) % 4211));
  for (const size of sizes) launch(size);
  expect(seen).toMatchObject({ made: 4, plain: 8, closed: 0 });
  expect(seen.ran).toEqual(sizes.slice(8));
});

it("changes no arguments of up to four launches that take turns", () => {
  const { seen, launch } = planGraphs();
  for (let i = 0; i < 12; i++) launch(100 + i);
  const before = seen.changed;
  const turns = Array.from({ length: 100 }, (_, i) => 100 + 8 + ((i * 3) % 4));
  for (const size of turns) launch(size);
  expect(seen.changed).toBe(before);
  expect(seen.ran.slice(4)).toEqual(turns);
  // A fifth takes the place of the one that was not used for longest: the others stay.
  launch(1);
  expect(seen.changed).toBe(before + 1);
  for (const size of turns.slice(-3)) launch(size);
  expect(seen.changed).toBe(before + 1);
});

it("takes arguments again that were changed otherwise, or that it failed to take", () => {
  const { graphs, seen, launch } = planGraphs();
  for (let i = 0; i < 20; i++) launch(5);
  graphs.forget();
  launch(5);
  expect(graphs.relaunch(stream, 1, 2, 5)).toBe(true);
  expect(seen.ran.every((size) => size === 5)).toBe(true);
  const failing = new PlanGraphs(
    () =>
      ({
        takeArguments: () => {
          throw new Error("no");
        },
        launch: () => {},
        close: () => {},
      }) as unknown as LaunchGraph,
    () => {},
  );
  for (let i = 0; i < 8; i++) failing.launch(stream, 1, 2, 5, kernel);
  expect(() => failing.launch(stream, 1, 2, 5, kernel)).toThrow("no");
  expect(failing.relaunch(stream, 1, 2, 5)).toBe(false);
});

it("tells once of a size that is launched again and again, and not of those that come by chance", () => {
  const { seen, launch } = planGraphs();
  for (let i = 0; i < 10_000; i++) launch(1 + ((i * 7919) % 4211));
  expect(seen.repeated).toEqual([]);
  for (let i = 0; i < 300; i++) launch(7 + (i % 3));
  expect(seen.repeated.sort()).toEqual([7, 8, 9]);
});

it("goes on without graphs where none can be made, and closes those that it has", () => {
  let numAsked = 0;
  const without = planGraphs(() => ++numAsked < 0);
  for (let i = 0; i < 20; i++) without.launch(i);
  expect(without.seen).toMatchObject({ plain: 20, ran: [] });
  expect(numAsked).toBe(1);
  const some = planGraphs();
  for (let i = 0; i < 20; i++) some.launch(i);
  some.graphs.close();
  expect(some.seen).toMatchObject({ made: 4, closed: 4 });
  some.launch(19);
  expect(some.seen.plain).toBe(9);
});
