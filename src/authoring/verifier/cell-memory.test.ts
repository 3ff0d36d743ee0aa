import { describe, expect, it } from "vitest";
import {
  allReduce,
  at,
  broadcast,
  codes,
  copy,
  far,
  nop,
  planOf,
  put,
  signal,
  wait,
} from "../../../test/support/small-plans.ts";
import type { ExecutionPlan, Op } from "../plan/index.ts";
import { verifyPlan } from "./index.ts";

describe("order", () => {
  const twoSteps = (between: readonly Op[]) =>
    planOf(
      [
        [
          [
            copy(at("scratch", 0, 2), at("input", 0, 2)),
            ...between,
            copy(at("output", 0), at("scratch", 0)),
            copy(at("output", 1), at("scratch", 1)),
          ],
        ],
      ],
      { input: 2, output: 2, scratch: 2 },
      { ...allReduce, chunksPerPart: 2 },
    );
  it("orders the same position without synchronisation, other positions not", () => {
    // output[1] reads position 1 of the first copy at its own position 0.
    expect(codes(twoSteps([]))).toEqual(["hazard"]);
    expect(codes(twoSteps([nop]))).toEqual([]);
    expect(
      codes(
        planOf(
          [[[copy(at("scratch", 0, 2), at("input", 0, 2)), copy(at("output", 0, 2), at("scratch", 0, 2))]]],
          { input: 2, output: 2, scratch: 2 },
          { ...allReduce, chunksPerPart: 2 },
        ),
      ),
    ).toEqual([]);
  });
  it("needs a signal that releases and a wait that acquires", () => {
    const through = (s: Op, w: Op) => {
      const plan = planOf(
        [
          [[put(far(1, "scratch", 0), at("input", 0)), s, copy(at("output", 0), at("input", 0))]],
          [[w, copy(at("output", 0), at("scratch", 0))]],
        ],
        { input: 1, output: 1, scratch: 1 },
        broadcast,
      );
      return codes({
        ...plan,
        ranks: plan.ranks.map((r) => (r.rank === 1 ? { ...r, input: { chunks: 0, segments: 1 } } : r)),
      });
    };
    expect(through(signal(), wait())).toEqual([]);
    expect(through(signal(true), wait())).toEqual(["race"]);
    expect(through(signal(), wait(true))).toEqual(["race"]);
  });
  it("knows when a race reaches no output", () => {
    const verdict = verifyPlan(
      planOf(
        [
          [
            [copy(at("output", 0), at("input", 0)), copy(at("scratch", 0), at("input", 0))],
            [copy(at("scratch", 0), at("output", 0))],
          ],
        ],
        { input: 1, output: 1, scratch: 1 },
        allReduce,
      ),
    );
    expect(verdict.ok).toBe(true);
    expect(verdict.findings.map((f) => f.code)).toContain("race");
  });
  it("takes equal concurrent writes as benign", () => {
    const same: Op[] = [copy(at("output", 0), at("input", 0))];
    expect(codes(planOf([[same, same]], { input: 1, output: 1 }, allReduce))).toEqual([]);
  });
  it("lets a packet prove that what went into it was read", () => {
    // Rank 1 sends back the sum; rank 0 may overwrite the input that it had sent, in place.
    const packets = (extra: readonly Op[]) =>
      planOf(
        [
          [
            [put(far(1, "scratch", 0), at("input", 0), "pack")],
            [...extra, copy(at("input", 0), at("scratch", 0), "unpack")],
          ],
          [
            [
              {
                kind: "reduce",
                op: "sum",
                packets: true,
                src: [at("input", 0), at("scratch", 0)],
                remoteSrc: [],
                dst: at("input", 0),
                remoteDst: [far(0, "scratch", 0)],
                channelKind: "memory",
                channels: [0],
              },
            ],
          ],
        ],
        { input: 1, output: 1, scratch: 1 },
        { ...allReduce, inPlace: true },
      );
    expect(codes(packets([]))).toEqual([]);
  });
});

describe("races", () => {
  it("says what would mend a race: which side is relaxed, a flush, or a signal", () => {
    const hintOf = (plan: ExecutionPlan) => verifyPlan(plan, { lint: false }).findings[0]?.hint;
    const handOver = (relaxed: readonly [boolean, boolean]) =>
      planOf(
        [
          [[copy(at("output", 0), at("input", 0)), put(far(1, "scratch", 0), at("input", 0)), signal(relaxed[0])]],
          [[wait(relaxed[1]), copy(at("output", 0), at("scratch", 0))]],
        ],
        { input: 1, output: 1, scratch: 1 },
        { operation: "broadcast", root: 0 },
      );
    expect(codes(handOver([false, false]))).toEqual([]);
    expect(hintOf(handOver([true, false]))).toMatch(/signal or wait between the two is relaxed/);
    expect(hintOf(handOver([false, true]))).toMatch(/signal or wait between the two is relaxed/);
    const byProxy = { ...put(far(1, "output", 0), at("scratch", 0)), channelKind: "port", notify: "signal" } as Op;
    const reuse = [copy(at("scratch", 0), at("input", 0)), nop, byProxy, copy(at("scratch", 0), at("input", 1))];
    const waits: Op = { kind: "wait", relaxed: false, channelKind: "port", channels: [0] };
    const plan = planOf([[[copy(at("output", 0), at("input", 0)), ...reuse]], [[waits]]], {
      input: 2,
      output: 1,
      scratch: 1,
    });
    expect(hintOf(plan)).toMatch(/proxy reads the source of a put later: flush/);
    const packets = planOf(
      [[[put(far(1, "scratch", 0), at("input", 0), "pack")]], [[copy(at("output", 0), at("scratch", 0), "unpack")]]],
      { input: 1, output: 1, scratch: 1 },
    );
    expect(verifyPlan(packets, { lint: false, promises: { relaunch: true } }).findings[0]?.message).toMatch(
      /packets (from|to) scratch\[0\] of rank 1 while .* packets (from|to) it/,
    );
  });
  it("finds a read that races with one of two competing writes, though it is over before the other", () => {
    // Rank 0 reads scratch and then overwrites it, to no avail; rank 1's put may come before the read.
    const both = (late: readonly Op[]) =>
      planOf(
        [
          [[copy(at("scratch", 0), at("input", 0)), signal(), ...late]],
          [[wait(), put(far(0, "scratch", 0), at("input", 0))]],
        ],
        { input: 1, output: 1, scratch: 1 },
      );
    const read = copy(at("output", 0), at("scratch", 0));
    expect(codes(both([read]))).toEqual(["race"]);
    expect(codes(both([read, copy(at("scratch", 0), at("output", 0))]))).toEqual(["race"]);
    expect(verifyPlan(both([read, copy(at("scratch", 0), at("input", 0))])).ok).toBe(false);
  });
  it("does not take a value for certain because an earlier write repeats it, where another value competes", () => {
    // scratch[0] of rank 1 is written twice by rank 0 with one value, and by rank 1 with another, in no order.
    const plan = (own: readonly Op[]) =>
      planOf(
        [
          [[put(far(1, "scratch", 0), at("input", 0)), signal(), wait(), put(far(1, "scratch", 0), at("input", 0))]],
          [[...own, signal(), wait(), copy(at("output", 0), at("scratch", 0))]],
        ],
        { input: 1, output: 1, scratch: 1 },
      );
    expect(codes(plan([]))).toEqual([]);
    expect(codes(plan([copy(at("scratch", 0), at("input", 0))]))).toEqual(["race"]);
  });
  it("sees what one of two competing sides wrote in between, where both wrote the same at last", () => {
    // Rank 0 writes scratch[0] of rank 1 twice, rank 1 writes it itself and reads it: nothing orders the two.
    const plan = (first: number) =>
      planOf(
        [
          [[put(far(1, "scratch", 0), at("output", first)), put(far(1, "scratch", 0), at("output", 0))]],
          [[get, copy(at("output", 0), at("scratch", 0))]],
        ].map((strands) => strands.map((ops) => [...start, ...ops])),
        { input: 2, output: 2, scratch: 1 },
      );
    const start = [copy(at("output", 0, 2), at("input", 0, 2)), signal(), wait()];
    const get: Op = {
      kind: "get",
      channelKind: "memory",
      channels: [0],
      src: [far(0, "output", 0)],
      dst: [at("scratch", 0)],
    };
    expect(codes(plan(0))).toEqual([]);
    expect(codes(plan(1))).toEqual(["race"]);
  });
});
