/** What graphs that were captured hold, and when they give it back. */
import { expect, it } from "vitest";
import type { Allocation, CudaGraph, DeviceStorage } from "../../device/index.ts";
import { CapturedGraphs, Recording } from "./graphs.ts";
import type { Prepared } from "./prepare.ts";

function graphOf() {
  const graph = { closed: false, reserve: () => () => {}, close: () => void Object.assign(graph, { closed: true }) };
  return graph as unknown as CudaGraph;
}

function recorded(isTold: boolean) {
  const storage = { allocation: { pendingUses: 0, exposures: 0 } } as unknown as DeviceStorage;
  const recording = new Recording();
  const arrival = {
    lane: { kind: "collective" },
    print: { call: 1, count: 2, hash: 3 },
  } as unknown as Prepared["arrival"];
  recording.add({ arrival, source: storage, target: storage, kind: 77 }, isTold);
  return { captured: recording.captured, uses: () => storage.allocation.exposures };
}

it("keep memory that members' graphs copy to until they are closed, and only that", () => {
  const freed: Allocation[] = [];
  let isSound = true;
  const graphs = new CapturedGraphs(
    (one) => void freed.push(one),
    () => isSound,
  );
  const [told, other] = [recorded(true), recorded(false)];
  const standIn = { address: 1n, sizeBytes: 8, pendingUses: 0, exposures: 0 };
  const first = graphs.add(graphOf(), told.captured, "g", [standIn]);
  graphs.add(graphOf(), other.captured, "g", []);
  expect([told.uses(), other.uses()]).toEqual([1, 0]);
  first.close();
  // The group has failed: members' last replays of theirs may still run.
  isSound = false;
  graphs.add(graphOf(), other.captured, "g", []);
  expect([told.uses(), freed]).toEqual([1, []]);
  isSound = true;
  graphs.add(graphOf(), other.captured, "g", []);
  expect([told.uses(), freed]).toEqual([0, [standIn]]);
});

it("keep it while their group ends: members may still run theirs", () => {
  const freed: Allocation[] = [];
  const graphs = new CapturedGraphs(
    (one) => void freed.push(one),
    () => true,
  );
  const told = recorded(true);
  const standIn = { address: 1n, sizeBytes: 8, pendingUses: 0, exposures: 0 };
  const graph = graphs.add(graphOf(), told.captured, "g", [standIn]);
  graphs.close();
  graphs.add(graphOf(), recorded(false).captured, "g", []);
  expect([graph.closed, told.uses(), freed]).toEqual([true, 1, []]);
  graphs.release();
  expect([told.uses(), freed]).toEqual([0, [standIn]]);
});

it("say which kinds of calls an open graph has", () => {
  const graphs = new CapturedGraphs(
    () => {},
    () => true,
  );
  const graph = graphs.add(graphOf(), recorded(false).captured, "g", []);
  expect([graphs.uses(77), graphs.uses(78)]).toEqual([true, false]);
  graph.close();
  expect(graphs.uses(77)).toBe(false);
});
