/** What graphs that were captured hold, and when they give it back. */
import { expect, it } from "vitest";
import type { Allocation, CudaGraph, DeviceStorage } from "../../device/index.ts";
import { CapturedGraphs, Recording } from "./graphs.ts";
import type { Prepared } from "./prepare.ts";

function graphOf() {
  let onClose: (() => void) | undefined;
  const close = () => {
    graph.closed = true;
    onClose?.();
  };
  const reserve = (_: string, told: () => void) => {
    onClose = told;
    return () => {};
  };
  const graph = { closed: false, reserve, close };
  return graph as unknown as CudaGraph;
}

function recorded(reachesPeers: boolean) {
  const storage = { allocation: { pendingUses: 0, exposures: 0 } } as unknown as DeviceStorage;
  const recording = new Recording();
  const arrival = {
    lane: { kind: "collective" },
    print: { call: 1, count: 2, hash: 3 },
  } as unknown as Prepared["arrival"];
  recording.add({ arrival, source: storage, target: storage, kind: 77 }, reachesPeers);
  return { captured: recording.captured, uses: () => storage.allocation.exposures };
}

function graphsOf() {
  const freed: Allocation[] = [];
  const group = { isSound: true };
  const graphs = new CapturedGraphs(
    (one) => void freed.push(one),
    () => group.isSound,
  );
  const standIn = { address: 1n, sizeBytes: 8, pendingUses: 0, exposures: 0 };
  return { graphs, group, freed, standIn };
}

it("keep memory that members' graphs come to until they are closed, and only that", () => {
  const { graphs, freed, standIn } = graphsOf();
  const [reached, other] = [recorded(true), recorded(false)];
  const first = graphs.add(graphOf(), reached.captured, "g", [standIn]);
  graphs.add(graphOf(), other.captured, "g", []);
  expect([reached.uses(), other.uses(), freed]).toEqual([1, 0, []]);
  first.close();
  expect([reached.uses(), freed]).toEqual([0, [standIn]]);
  expect(() => graphs.replayable(first, "g")).toThrow("graph was closed");
  expect(() => graphs.replayable(graphOf(), "g")).toThrow("a graph of another communicator");
});

it("keep it where their group has failed or ends: members' last replays of theirs may still run", () => {
  const { graphs, group, freed, standIn } = graphsOf();
  const reached = recorded(true);
  const [one, other] = [0, 1].map(() => graphs.add(graphOf(), reached.captured, "g", [standIn]));
  group.isSound = false;
  one?.close();
  expect(() => graphs.replayable(one as CudaGraph, "g")).toThrow("graph was closed");
  graphs.close();
  expect([other?.closed, reached.uses(), freed]).toEqual([true, 2, []]);
  graphs.release();
  expect([reached.uses(), freed]).toEqual([0, [standIn, standIn]]);
});

it("say which kinds of calls an open graph has", () => {
  const { graphs } = graphsOf();
  const graph = graphs.add(graphOf(), recorded(false).captured, "g", []);
  expect([graphs.uses(77), graphs.uses(78)]).toEqual([true, false]);
  graph.close();
  expect(graphs.uses(77)).toBe(false);
});
