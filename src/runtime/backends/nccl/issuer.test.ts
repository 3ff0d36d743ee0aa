/** What the queue is given of calls of different kinds. */
import { setFlagsFromString } from "node:v8";
import { expect, it } from "vitest";
import type { NcclLibrary } from "../../../foreign/nccl/index.ts";
import { CallSequence } from "../../progress/index.ts";
import { CallIssuer } from "./issuer.ts";
import type { NcclContext } from "./nccl-context.ts";
import { type Entry, partsOfCall } from "./nccl-entry.ts";
import { kindOf, LastCall, type PrepareContext, type Prepared } from "./prepare.ts";
import type { CommQueue } from "./queue.ts";
import type { Staged } from "./staging.ts";

setFlagsFromString("--allow-natives-syntax");
const haveSameMap = new Function("a", "b", "return %HaveSameMap(a, b)") as (a: object, b: object) => boolean;

const sequence = new CallSequence(2);
const context = { sequence, plans: undefined } as PrepareContext;

/** An issuer whose queue keeps what it is given. */
function issuerOf() {
  const given: Entry[] = [];
  const queue = { push: (entry: Entry) => void given.push(entry) } as unknown as CommQueue;
  const rank = { library: { optional: {} } as NcclLibrary, settings: { timeoutMs: 1000 }, barrierWord: 2 ** 40 };
  return { given, issuer: new CallIssuer(rank as unknown as NcclContext, queue, context, "world") };
}

it("gives the queue objects of one form for barriers, broadcasts and all-reduces: V8 compiles its paths for one", () => {
  const { given, issuer } = issuerOf();
  const none: readonly never[] = [];
  const common = { dtype: "f32", count: 5, send: 2 ** 41, recv: 2 ** 42, root: 0, redop: 0 } as const;
  const counts = { counts: none, sendCounts: none, recvCounts: none, plan: undefined, step: undefined };
  const arrival = new LastCall().first(context, "all_reduce", "f32", 5, "sum", 0);
  const call = { op: "all_reduce", ...common, ...counts } as const;
  issuer.push(partsOfCall(call, arrival, [kindOf(arrival.print.call, 5)], undefined, undefined, "result", 20), {});
  issuer.launch([issuer.barrier()], "barrier", {}, () => undefined);
  const said = sequence.of("broadcast", "f32", 5, { root: 0 });
  const broadcast: Prepared = {
    op: "broadcast",
    call: { ...call, op: "broadcast" },
    arrival: said,
    kind: kindOf(said.print.call, 5),
    scalar: undefined,
    // Of a tensor on the device: there is nothing to do for it afterwards.
    staged: [{ address: 2 ** 41 } as Staged],
    source: undefined,
    target: undefined,
    result: undefined,
    sizeBytes: 20,
  };
  issuer.launch([broadcast], "broadcast", {}, () => undefined);
  const [first, ...others] = given as [Entry, ...Entry[]];
  expect(others.map(({ op }) => op)).toEqual(["barrier", "broadcast"]);
  for (const other of others) {
    expect(haveSameMap(first, other)).toBe(true);
    for (const key of ["arrivals", "kinds", "storages", "finish", "members"] as const)
      expect([key, haveSameMap(first[key], other[key])]).toEqual([key, true]);
    expect(haveSameMap(first.arrivals[0] as object, other.arrivals[0] as object)).toBe(true);
  }
  // The barrier's call is written elsewhere than what `prepareQuickly` makes, in the same order.
  expect(Object.keys(others[0]?.single ?? {})).toEqual(Object.keys(call));
});
