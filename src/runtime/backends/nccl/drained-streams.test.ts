import { describe, expect, it } from "vitest";
import { CUDA_STATUS } from "../../../foreign/cuda/index.ts";
import { ControlSegment, controlBytes } from "../../memory/index.ts";
import { CommunicatorTeardown } from "./communicator-teardown.ts";
import type { CommunicatorParts, NcclContext } from "./nccl-context.ts";
import type { CommQueue } from "./queue.ts";

/** A group of one that its program has closed, on a rank whose driver and library are these functions. */
function closedGroup(fails: boolean, happens: (what: string) => void, looks: number) {
  const segment = new ControlSegment(new SharedArrayBuffer(controlBytes(1)), 1);
  const control = segment.group("g", [0], 0, 0);
  let left = looks;
  const cuStreamQuery = () => {
    happens("look");
    return left-- > 0 ? CUDA_STATUS.notReady : CUDA_STATUS.success;
  };
  const rank = {
    at: { device: { closed: false, poison: undefined, driver: { api: { cuStreamQuery } } } },
    segment,
    jointTurn: segment.jointTurn(0),
    settings: { worldRank: 0, interprocess: true },
    poller: { add: ({ poll }: { poll(): boolean }) => expect(poll()).toBe(false) },
  } as unknown as NcclContext;
  const closing = (what: string) => ({ close: () => happens(what) });
  const stream = { closed: false, handle: 1n, ...closing("stream") };
  const queue = {
    options: { control, ranks: [0], stream },
    // It was aborted when it failed.
    handle: { comm: undefined, surrender: () => undefined },
    cause: fails ? new Error("failed") : undefined,
    releaseExposed: () => happens("failed calls' memory"),
  } as unknown as CommQueue;
  control.announceClose();
  const parts = {
    queue,
    graphs: { ...closing("graphs"), release: () => happens("graphs' memory") },
    plans: closing("plans"),
    ranks: [0],
  };
  new CommunicatorTeardown(rank).retire(parts as unknown as CommunicatorParts);
}

describe("a group that is freed", () => {
  it.each([
    [
      "first ends what is on its stream where it failed alone",
      true,
      ["look", "look", "look", "graphs", "plans", "graphs' memory", "failed calls' memory", "stream"],
    ],
    ["is idle where it did not", false, ["graphs", "plans", "graphs' memory", "failed calls' memory", "stream"]],
  ])("%s", (_what, fails, order) => {
    const seen: string[] = [];
    closedGroup(fails, (what) => seen.push(what), 2);
    expect(seen).toEqual(order);
  });
});
