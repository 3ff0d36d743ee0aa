import { expect, it } from "vitest";
import type { DeviceStorage } from "../../device/index.ts";
import type { QueuedWork } from "../../progress/index.ts";
import { Entry, type EntryParts } from "./nccl-entry.ts";

it("counts each tensor of a call once, whether it is read, written or both", () => {
  const tensor = () => ({ allocation: { pendingUses: 0, exposures: 0 } }) as unknown as DeviceStorage;
  const work = {} as QueuedWork<unknown>;
  const entryOf = (parts: Partial<EntryParts>) => new Entry(work, { op: "all_reduce", arrivals: [], ...parts }, 1000);
  const [inPlace, source, target, ...storages] = [tensor(), tensor(), tensor(), tensor(), tensor()];
  const entries = [{ source: inPlace, target: inPlace }, { source, target }, { storages }].map(entryOf);
  const counts = () =>
    [inPlace, source, target, ...storages].map((one) => [one?.allocation.pendingUses, one?.allocation.exposures]);
  for (const entry of entries) entry.countUse(1);
  expect(counts()).toEqual(Array(5).fill([1, 0]));
  for (const entry of entries) entry.countExposure(1);
  expect(counts()).toEqual(Array(5).fill([1, 1]));
  for (const entry of entries) entry.countUse(-1);
  for (const entry of entries) entry.countExposure(-1);
  expect(counts()).toEqual(Array(5).fill([0, 0]));
});
