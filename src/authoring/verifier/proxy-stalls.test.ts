import { describe, expect, it } from "vitest";
import {
  acquire,
  at,
  broadcast,
  codes,
  copy,
  far,
  nop,
  planOf,
  put,
  release,
  signal,
  wait,
} from "../../../test/support/small-plans.ts";
import type { Op } from "../plan/index.ts";
import { verifyPlan } from "./index.ts";

describe("proxies", () => {
  it("has proxies read the source later", () => {
    const port = (...rest: Op[]) => {
      const plan = planOf(
        [
          [
            [
              copy(at("scratch", 0), at("input", 0)),
              nop,
              {
                kind: "put",
                format: "plain",
                notify: "signal",
                channelKind: "port",
                channels: [0],
                src: [at("scratch", 0)],
                dst: [far(1, "output", 0)],
              },
              ...rest,
              copy(at("scratch", 0), at("scratch", 1)),
              copy(at("output", 0), at("input", 0)),
            ],
          ],
          [[{ kind: "wait", relaxed: false, channelKind: "port", channels: [0] }]],
        ],
        { input: 1, output: 1, scratch: 2 },
        broadcast,
      );
      return codes({
        ...plan,
        ranks: plan.ranks.map((r) => (r.rank === 1 ? { ...r, input: { chunks: 0, segments: 1 } } : r)),
      });
    };
    expect(port(nop)).toEqual(["race"]);
    expect(port({ kind: "flush", channelKind: "port", channels: [0] })).toEqual([]);
  });
  it("orders requests to the proxy behind block-wide synchronisation only, not behind a relaxed signal", () => {
    const byProxy = { ...put(far(1, "output", 0), at("scratch", 0)), channelKind: "port", notify: "signal" } as Op;
    const waits: Op = { kind: "wait", relaxed: false, channelKind: "port", channels: [0] };
    const plan = (between: readonly Op[]) =>
      planOf([[[copy(at("scratch", 0), at("input", 0)), ...between, byProxy]], [[wait(true), waits]]], {
        input: 1,
        output: 1,
        scratch: 1,
      });
    expect(codes(plan([nop, signal(true)]))).toEqual([]);
    expect(codes(plan([signal()]))).toEqual([]);
    expect(codes(plan([signal(true)]))).toEqual(["race"]);
  });
  it("finds a proxy that cannot raise a put's signal while its strand waits for packets, and holds others up", () => {
    const byProxy = { ...put(far(1, "output", 0), at("input", 0)), channelKind: "port", notify: "signal" } as Op;
    const rung = (kind: "signal" | "wait", channel = 0): Op => ({
      kind,
      relaxed: false,
      channelKind: "port",
      channels: [channel],
    });
    const unpack = copy(at("output", 0), at("scratch", 0), "unpack");
    // Rank 1 sends the packet when the other strand of rank 0 has signalled, through the same proxy.
    const plan = (first: readonly Op[], other: readonly Op[]) => {
      const waits = [rung("wait", 1), put(far(0, "scratch", 0), at("input", 0), "pack"), rung("wait")];
      const made = planOf([[first, other], [waits]], { input: 1, output: 1, scratch: 1, semaphores: [0] });
      return {
        ...made,
        ranks: made.ranks.map((r) => ({ ...r, channels: { ...r.channels, port: r.rank === 0 ? [1, 1] : [0, 0] } })),
      };
    };
    const found = verifyPlan(plan([unpack, byProxy], [rung("signal", 1)]), { lint: false }).findings;
    expect(found.map(({ code }) => code)).toEqual(["deadlock"]);
    expect(found[0]?.message).toMatch(/waits for the proxy to raise a signal of rank 0 on port channel 1/);
    expect(found[0]?.hint).toMatch(/nop \(sync\) between these packets and the put/);
    // Apart, or with the signal surely issued before, it ends.
    expect(codes(plan([unpack, nop, byProxy], [rung("signal", 1)]))).toEqual([]);
    expect(codes(plan([acquire(0), unpack, byProxy], [rung("signal", 1), release(0)]))).toEqual([]);
    expect(codes(plan([acquire(0), unpack, byProxy], [release(0), rung("signal", 1)]))).toEqual(["deadlock"]);
  });
});

describe("what may be done ahead of packets", () => {
  it("does not pass competing waits of which a relaxed one may overtake the packets before it", () => {
    // The relaxed wait may take the first signal, for which the strand waits that sends the packet.
    const plan = (between: readonly Op[]) =>
      planOf(
        [
          [[signal(), wait(), signal()]],
          [
            [copy(at("output", 0), at("scratch", 0), "unpack"), ...between, wait(true)],
            [wait(), copy(at("scratch", 0), at("input", 0), "pack"), signal()],
          ],
        ],
        { input: 1, output: 1, scratch: 1 },
      );
    expect(codes(plan([]))).toEqual(["undecided"]);
    expect(codes(plan([nop]))).toEqual([]);
  });
});
