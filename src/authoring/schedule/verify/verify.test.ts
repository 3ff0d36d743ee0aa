import { describe, expect, it } from "vitest";
import { DEFAULT_PLAN_OPTIONS, type ExecutionPlan, type Op, type PlanCollective, type Range } from "../ir.ts";
import { type FindingCode, renderFindings, type VerifyOptions, verifyPlan } from "./index.ts";

const at = (buffer: Range["buffer"], index: number, size = 1): Range => ({ buffer, index, size });
const far = (rank: number, buffer: Range["buffer"], index: number, size = 1) => ({ rank, buffer, index, size });
const nop: Op = { kind: "nop" };
const copy = (dst: Range, src: Range, format: "plain" | "pack" | "unpack" = "plain"): Op => ({
  kind: "copy",
  format,
  src,
  dst,
});
const put = (dst: ReturnType<typeof far>, src: Range, format: "plain" | "pack" = "plain"): Op => ({
  kind: "put",
  format,
  notify: "none",
  channelKind: "memory",
  channels: [0],
  src: [src],
  dst: [dst],
});
const signal = (relaxed = false, channel = 0): Op => ({
  kind: "signal",
  relaxed,
  channelKind: "memory",
  channels: [channel],
});
const wait = (relaxed = false, channel = 0): Op => ({
  kind: "wait",
  relaxed,
  channelKind: "memory",
  channels: [channel],
});
const acquire = (id: number): Op => ({ kind: "acquire", semaphores: [id] });
const release = (id: number): Op => ({ kind: "release", semaphores: [id] });
const sum = (dst: Range, ...src: Range[]): Op => ({
  kind: "reduce",
  op: "sum",
  packets: false,
  src,
  remoteSrc: [],
  dst,
  remoteDst: [],
  channels: [],
});

/** Two ranks (or as many as `ops` has) joined by one channel each way, or by `port` channels; ops by rank and strand. */
function planOf(
  ops: readonly (readonly (readonly Op[])[])[],
  chunks: { input: number; output: number; scratch?: number; semaphores?: readonly number[] },
  collective: Partial<PlanCollective> = {},
): ExecutionPlan {
  const n = ops.length;
  const peers = (rank: number) => Array.from({ length: n }, (_, r) => r).filter((r) => r !== rank);
  return {
    schemaVersion: 1,
    name: "test",
    mode: "imported",
    collective: { operation: "test", numRanks: n, chunksPerPart: 1, inPlace: false, ...collective },
    options: DEFAULT_PLAN_OPTIONS,
    ranks: ops.map((strands, rank) => ({
      rank,
      input: { chunks: chunks.input, segments: 1 },
      output: { chunks: chunks.output, segments: 1 },
      scratch: { chunks: chunks.scratch ?? 0, segments: 1 },
      channels: { memory: peers(rank), port: peers(rank), switch: [] },
      semaphores: (chunks.semaphores ?? []).map((initialValue) => ({ initialValue })),
      strands: strands.map((list, id) => ({ id, ops: list })),
    })),
    sources: [],
  };
}
const codes = (plan: ExecutionPlan, options: VerifyOptions = { lint: false }): FindingCode[] => [
  ...new Set(
    verifyPlan(plan, options)
      .findings.filter((f) => f.severity === "error")
      .map((f) => f.code),
  ),
];
const broadcast = { operation: "broadcast", root: 0 } as const;
const allReduce = { operation: "all_reduce" } as const;
/** Rank 0 copies its input to its own and rank 1's output. */
const send = (between: readonly Op[], receiver: readonly Op[]) => {
  const plan = planOf(
    [[[copy(at("output", 0), at("input", 0)), put(far(1, "output", 0), at("input", 0)), ...between]], [receiver]],
    { input: 1, output: 1 },
    broadcast,
  );
  return { ...plan, ranks: plan.ranks.map((r) => (r.rank === 1 ? { ...r, input: { chunks: 0, segments: 1 } } : r)) };
};

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
});

describe("ends", () => {
  it("spells a wait cycle out", () => {
    const plan = planOf([[[wait(), signal()]], [[wait(), signal()]]], { input: 0, output: 0 });
    const { findings } = verifyPlan(plan);
    expect(findings[0]).toMatchObject({ code: "deadlock", rank: 0, strand: 0, op: 0 });
    expect(findings[0]?.message).toMatch(/wait cycle: rank 0 .* rank 1/);
    expect(findings[0]?.related).toHaveLength(1);
    expect(renderFindings(plan, findings)).toContain("> ");
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
                    { rank: 0, chunk: 1 },
                  ],
                },
              ],
            ],
          },
        },
      );
    // With the lock both additions count (the test's post-condition wants input[1] twice, which is "doubled"): no race.
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
    const many = planOf([[Array.from({ length: 65 }, () => nop)]], { input: 0, output: 0 });
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
  it("tells a chunk that is written in part from one that is not written", () => {
    const half = { ...copy(at("output", 0), at("input", 0)), tbg: { index: 0, size: 2 } } as Op;
    const messageOf = (ops: readonly Op[]) =>
      verifyPlan(planOf([[ops]], { input: 1, output: 1 }, allReduce), { lint: false }).findings[0]?.message;
    expect(messageOf([half])).toMatch(/is written only in part/);
    expect(messageOf([])).toMatch(/is never written/);
  });
  it("refuses what does not hold together", () => {
    expect(codes(planOf([[[copy(at("output", 0), at("input", 7))]]], { input: 1, output: 1 }))).toEqual(["malformed"]);
    expect(codes(planOf([[[signal(false, 9)]], [[]]], { input: 0, output: 0 }))).toEqual(["malformed"]);
    expect(codes(planOf([[[]], [[]]], { input: 1, output: 1 }, { ...allReduce, numRanks: 3 }))).toEqual(["malformed"]);
    const wrongPeer = planOf([[[put(far(2, "output", 0), at("input", 0))]], [[]], [[]]], { input: 1, output: 1 });
    expect(codes(wrongPeer)).toEqual(["wrong-peer"]);
  });
});
