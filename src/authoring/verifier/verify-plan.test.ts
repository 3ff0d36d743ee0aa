import { describe, expect, it } from "vitest";
import {
  acquire,
  allReduce,
  at,
  codes,
  copy,
  far,
  nop,
  planOf,
  put,
  release,
  send,
  signal,
  sum,
  wait,
} from "../../../test/support/small-plans.ts";
import type { Op, Range } from "../plan/index.ts";
import { renderFindings, verifyPlan } from "./index.ts";

describe("results", () => {
  it("passes a right plan", () => expect(codes(send([signal()], [wait()]))).toEqual([]));
  it("misses a contribution, doubles one, misplaces one", () => {
    const reduce = (...src: Range[]) =>
      planOf(
        [
          [[put(far(1, "scratch", 0), at("input", 0)), signal(), wait(), sum(at("output", 0), ...src)]],
          [
            [
              put(far(0, "scratch", 0), at("input", 0)),
              signal(),
              wait(),
              sum(at("output", 0), at("input", 0), at("scratch", 0)),
            ],
          ],
        ],
        { input: 1, output: 1, scratch: 1 },
        allReduce,
      );
    expect(codes(reduce(at("input", 0), at("scratch", 0)))).toEqual([]);
    expect(codes(reduce(at("input", 0)))).toEqual(["missing-contribution"]);
    expect(codes(reduce(at("input", 0), at("scratch", 0), at("scratch", 0)))).toEqual(["doubled-contribution"]);
    expect(
      codes(
        planOf(
          [[[copy(at("output", 0), at("input", 1)), copy(at("output", 1), at("input", 0))]]],
          { input: 2, output: 2 },
          { ...allReduce, chunksPerPart: 2 },
        ),
      ),
    ).toEqual(["misplaced"]);
  });
  it("finds outputs that nobody writes, and overwritten inputs", () => {
    expect(codes(planOf([[[]]], { input: 1, output: 1 }, allReduce))).toEqual(["undefined-output"]);
    const overwrites = planOf(
      [[[copy(at("output", 0), at("input", 0)), nop, copy(at("input", 0), at("scratch", 0))]]],
      { input: 1, output: 1, scratch: 1 },
      allReduce,
    );
    expect(codes(overwrites)).toEqual(["input-overwritten"]);
    expect(codes({ ...overwrites, collective: { ...overwrites.collective, mayOverwriteInput: true } })).toEqual([]);
  });
});

describe("ends", () => {
  it("spells a wait cycle out", () => {
    const plan = planOf([[[wait(), signal()]], [[wait(), signal()]]], { input: 0, output: 0 });
    const { findings } = verifyPlan(plan);
    expect(findings[0]).toMatchObject({ code: "deadlock", rank: 0, strand: 0, op: 0 });
    expect(findings[0]?.message).toMatch(/wait cycle: rank 0 .* rank 1/);
    expect(findings[0]?.related).toHaveLength(1);
    expect(findings[0]?.waits).toHaveLength(2);
    const text = renderFindings(plan, findings);
    expect(text).toContain("> ");
    // A line for each.
    expect(text).toMatch(/: wait cycle:\n +rank 0 strand 0 .* <- rank 1 .*\n +rank 1 strand 0 .* <- rank 0 /);
  });
  it("finds lost and surplus signals, by channel", () => {
    expect(codes(planOf([[[wait()]], [[]]], { input: 0, output: 0 }))).toEqual(["unmatched-wait"]);
    expect(codes(planOf([[[signal()]], [[]]], { input: 0, output: 0 }))).toEqual(["surplus-signal"]);
  });
  it("wants semaphores back at their beginning", () => {
    expect(codes(planOf([[[release(0)]]], { input: 0, output: 0, semaphores: [0] }))).toEqual([
      "semaphore-not-restored",
    ]);
    expect(codes(planOf([[[acquire(0)]]], { input: 0, output: 0, semaphores: [0] }))).toEqual(["deadlock"]);
    expect(codes(planOf([[[acquire(0), release(0)]]], { input: 0, output: 0, semaphores: [1] }))).toEqual([]);
  });
  it("decides for locks, whoever comes first", () => {
    const critical = (other: number): Op[] => [
      acquire(0),
      sum(at("output", 0), at("output", 0), at("scratch", other)),
      nop,
      release(0),
    ];
    const lock = (initial: number) =>
      planOf(
        [
          [
            [copy(at("output", 0), at("input", 0)), copy(at("scratch", 0), at("input", 1)), release(1), release(1)],
            [acquire(1), ...critical(0)],
            [acquire(1), ...critical(0)],
          ],
        ],
        { input: 2, output: 1, scratch: 1, semaphores: [initial, 0] },
        {
          operation: "custom",
          custom: {
            name: "x",
            inputChunks: [2],
            outputChunks: [1],
            post: [
              [
                {
                  kind: "reduce",
                  from: [
                    { rank: 0, chunk: 0 },
                    { rank: 0, chunk: 1 },
                  ],
                },
              ],
            ],
          },
        },
      );
    // With the lock both additions count (the test's post-condition wants input[1] once): no race.
    expect(codes(lock(1))).toEqual(["doubled-contribution"]);
    expect(codes(lock(2))).toEqual(["race"]);
    // Two locks taken in opposite order.
    expect(
      codes(
        planOf(
          [
            [
              [acquire(0), acquire(1), release(1), release(0)],
              [acquire(1), acquire(0), release(0), release(1)],
            ],
          ],
          { input: 0, output: 0, semaphores: [1, 1] },
        ),
      ),
    ).toEqual(["deadlock"]);
  });
  it("finds barriers that do not fit", () => {
    const barrier = (numStrands: number): Op => ({ kind: "barrier", barrier: 0, numStrands });
    expect(codes(planOf([[[barrier(2)], [barrier(2)]]], { input: 0, output: 0 }))).toEqual([]);
    expect(codes(planOf([[[barrier(2)], []]], { input: 0, output: 0 }))).toEqual(["barrier-mismatch"]);
    expect(codes(planOf([[[barrier(2)], [barrier(2)], [barrier(2)], [barrier(2)]]], { input: 0, output: 0 }))).toEqual([
      "barrier-mismatch",
    ]);
  });
  it("finds loops that run a different number of times", () => {
    const loop = (numChunks: number, op: Op): Op => ({
      kind: "pipeline",
      unitBytes: 64,
      numChunks,
      body: [op as never],
    });
    expect(codes(planOf([[[loop(2, signal())]], [[loop(2, wait())]]], { input: 0, output: 0 }))).toEqual([]);
    expect(codes(planOf([[[loop(3, signal())]], [[loop(2, wait())]]], { input: 0, output: 0 }))).toEqual([
      "loop-mismatch",
    ]);
  });
});

describe("more", () => {
  it("checks stronger promises only when asked", () => {
    const late = send([signal()], []);
    const plan = send([signal()], [wait()]);
    expect(codes(plan, { promises: { outputAtRankEnd: true, reuseAtRankEnd: true } })).toEqual([]);
    expect(codes(late)).toEqual(["surplus-signal"]);
    const silent = send([], []);
    expect(codes(silent)).toEqual([]);
    expect(codes(silent, { promises: { outputAtRankEnd: true } })).toEqual(["late-output"]);
  });
  it("sees scratch reused by the next launch", () => {
    const ring = (rest: readonly Op[]) =>
      planOf(
        [0, 1].map((r) => [
          [
            put(far(1 - r, "scratch", 0), at("input", 0)),
            signal(),
            wait(),
            sum(at("output", 0), at("input", 0), at("scratch", 0)),
            ...rest,
          ],
        ]),
        { input: 1, output: 1, scratch: 1 },
        allReduce,
      );
    expect(codes(ring([]))).toEqual([]);
    expect(codes(ring([]), { promises: { relaunch: true } })).toEqual(["relaunch-race"]);
    expect(codes(ring([signal(), wait()]), { promises: { relaunch: true } })).toEqual([]);
  });
  it("names limits and defects of an executor", () => {
    const many = planOf([[Array.from({ length: 65 }, () => nop)]], { input: 1, output: 1 });
    expect(codes(many)).toEqual([]);
    expect(codes(many, { target: "mscclpp" })).toEqual(["limit-exceeded"]);
    const max: Op = { ...sum(at("output", 0), at("input", 0)), op: "max" } as Op;
    expect(codes(planOf([[[max]]], { input: 1, output: 1 }), { target: "mscclpp" })).toEqual(["target-defect"]);
  });
  it("lints", () => {
    const { ok, findings } = verifyPlan(
      planOf(
        [[[copy(at("scratch", 0), at("input", 0)), copy(at("output", 0), at("input", 0))]]],
        { input: 1, output: 1, scratch: 1 },
        allReduce,
      ),
    );
    expect(ok).toBe(true);
    expect(findings.map((f) => f.code)).toEqual(["dead-copy"]);
  });
  it("tells a chunk that is written in part from one that is not written", () => {
    const half = { ...copy(at("output", 0), at("input", 0)), tbg: { index: 0, size: 2 } } as Op;
    const messageOf = (ops: readonly Op[]) =>
      verifyPlan(planOf([[ops]], { input: 1, output: 1 }, allReduce), { lint: false }).findings[0]?.message;
    expect(messageOf([half])).toMatch(/is written only in part/);
    expect(messageOf([])).toMatch(/is never written/);
  });
  it("refuses what does not hold together", () => {
    for (const other of [{}, undefined, null, { ranks: [] }]) {
      expect(verifyPlan(other as never).findings.map((f) => f.message)).toEqual(["this is not an execution plan"]);
    }
    expect(codes(planOf([[[copy(at("output", 0), at("input", 7))]]], { input: 1, output: 1 }))).toEqual(["malformed"]);
    expect(codes(planOf([[[signal(false, 9)]], [[]]], { input: 0, output: 0 }))).toEqual(["malformed"]);
    expect(codes(planOf([[[]], [[]]], { input: 1, output: 1 }, { ...allReduce, numRanks: 3 }))).toEqual(["malformed"]);
    const wrongPeer = planOf([[[put(far(2, "output", 0), at("input", 0))]], [[]], [[]]], { input: 1, output: 1 });
    expect(codes(wrongPeer)).toEqual(["wrong-peer"]);
  });
});

describe("plans of very many strands", () => {
  it("are checked, though there are more of them than a call has arguments", () => {
    const strands = Array.from({ length: 130_000 }, () => [nop]);
    expect(codes(planOf([strands], { input: 0, output: 0 }))).toEqual([]);
  });
});

describe("strands that compete for a lock", () => {
  const locked = (...ops: Op[]): Op[] => [acquire(0), ...ops, release(0)];
  it("may end differently in each order: a plan of no meaning is wrong then", () => {
    const one = at("output", 0);
    const doubles = locked(sum(one, one, one));
    const adds = locked(sum(one, one, at("input", 0)));
    const begins: Op[] = [copy(one, at("input", 1)), { kind: "barrier", barrier: 0, numStrands: 2 }];
    const plan = (a: Op[], b: Op[]) =>
      planOf(
        [
          [
            [...begins, ...a],
            [begins[1]!, ...b],
          ],
        ],
        { input: 2, output: 1, semaphores: [1] },
      );
    expect(codes(plan(doubles, adds))).toEqual(["race"]);
    expect(codes(plan(adds, adds))).toEqual([]);
    expect(codes(plan(doubles, doubles))).toEqual([]);
  });

  it.each([3, 6])("are decided: %i contenders that add into one place", (contenders) => {
    const meet: Op = { kind: "barrier", barrier: 0, numStrands: contenders };
    const strands = Array.from({ length: contenders }, (_, i) => [
      ...(i === 0 ? [copy(at("output", 0), at("input", 0))] : []),
      meet,
      ...(i === 0 ? [] : locked(sum(at("output", 0), at("output", 0), at("input", i)))),
    ]);
    const from = Array.from({ length: contenders }, (_, chunk) => ({ rank: 0, chunk }));
    const plan = planOf(
      [strands],
      { input: contenders, output: 1, semaphores: [1] },
      {
        operation: "custom",
        custom: { name: "sum", inputChunks: [contenders], outputChunks: [1], post: [[{ kind: "reduce", from }]] },
      },
    );
    expect(codes(plan)).toEqual([]);
    expect(codes({ ...plan, ranks: [{ ...plan.ranks[0]!, semaphores: [{ initialValue: 2 }] }] })).not.toEqual([]);
  });
});
