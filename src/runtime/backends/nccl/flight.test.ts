/** The flight recorder of a hang, and calls timed on the stream, over the stand-in library. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FlightDump, FlightEntry } from "chorale/comm";
import { explainFlight } from "chorale/doctor";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder, heldByFakeGpu, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";
import { controlBytes } from "../../memory/control-layout.ts";
import { ControlSegment } from "../../memory/control-segment.ts";
import { LANE_RING } from "../../memory/lanes.ts";

const available = useFakeGpu();

/** Runs `fn` with a folder for dumps. */
async function recorded<T>(fn: () => Promise<T>): Promise<{ dumps: FlightDump[]; report: string }> {
  const folder = mkdtempSync(join(tmpdir(), "chorale-flight-"));
  process.env["CHORALE_FLIGHT_DIR"] = folder;
  try {
    await fn();
    const dumps = readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")) as FlightDump);
    return { dumps, report: (await explainFlight(folder)).groups.map(({ message }) => message).join("\n") };
  } finally {
    delete process.env["CHORALE_FLIGHT_DIR"];
    rmSync(folder, { recursive: true, force: true });
  }
}

const short = (entries: readonly FlightEntry[] = []) =>
  entries.map(({ seq, op, state, reached }) => [seq, op, state, ...(reached === undefined ? [] : [reached])].join(" "));

describe("notes of calls", () => {
  it("keep what was written last, for the calls of the ring, apart by member and from the group's other words", () => {
    const segment = new ControlSegment(new SharedArrayBuffer(controlBytes(3)), 3);
    const controls = [0, 1, 2].map((member) => segment.group("g", [0, 1, 2], 0, member));
    const next = segment.group("next", [0, 1, 2], 0, 0);
    fc.assert(
      fc.property(
        fc.nat({ max: 2 }),
        fc.nat({ max: 5000 }),
        fc.double({ noNaN: true }),
        fc.double({ noNaN: true }),
        fc.boolean(),
        (member, seq, issuedMs, durationUs, ok) => {
          const notes = controls[member]?.notesOf(member).collectives;
          const others = controls.map((_, m) =>
            m === member ? undefined : controls[0]?.notesOf(m).collectives.read(seq),
          );
          notes?.issue(seq, issuedMs);
          notes?.reach(seq, "running");
          notes?.time(seq, 1.5, durationUs);
          notes?.end(seq, ok, 7);
          notes?.end(seq + LANE_RING, !ok, 8);
          expect(controls[0]?.notesOf(member).collectives.read(seq)).toEqual({
            stage: ok ? "done" : "running",
            failed: !ok,
            issuedMs,
            endedMs: 7,
            startUs: 1.5,
            durationUs,
          });
          expect(notes?.read(seq + LANE_RING)).toBeUndefined();
          expect(
            controls.map((_, m) => (m === member ? undefined : controls[0]?.notesOf(m).collectives.read(seq))),
          ).toEqual(others);
        },
      ),
      { seed: 20261120 },
    );
    expect(next.issued(0, { kind: "collective" })).toBe(0);
    expect([next.failed, next.blob, next.mail(1, 0)]).toEqual([false, undefined, undefined]);
    expect(segment.groups().map(({ name }) => name)).toEqual(["g", "next"]);
  });

  it("keep sends and receives in the order of issue, beside the collectives' and as many, each with what it is", () => {
    const segment = new ControlSegment(new SharedArrayBuffer(controlBytes(3)), 3);
    const group = segment.group("g", [0, 1, 2], 0, 0);
    const next = segment.group("next", [0, 1, 2], 0, 0);
    const word = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
    // Numbers pass 2^31, where marks begin anew. Each is issued, comes as far as `stage` says (3: done, 4: failed at once), and of three one is given a time.
    const call = fc.record({
      call: word,
      count: word,
      seq: fc.nat({ max: 2 ** 40 }),
      stage: fc.nat({ max: 4 }),
      timeMs: fc.nat(),
    });
    const expected: object[][] = [[], [], []];
    fc.assert(
      fc.property(fc.nat({ max: 2 }), fc.array(call, { maxLength: 40 }), (member, calls) => {
        const notes = group.notesOf(member).pairs;
        const known = expected[member] ?? [];
        for (const { call, count, seq, stage, timeMs } of calls) {
          const number = 2 ** 31 - 100 + known.length;
          notes.issue(number, timeMs, { call, count }, seq);
          if (stage === 1 || stage === 2) notes.reach(number, stage === 1 ? "started" : "running");
          if (stage > 2) notes.end(number, stage === 3, timeMs + 1);
          if (stage === 3) notes.time(number, 2, 3);
          known.push({
            call,
            count,
            seq,
            issuedMs: timeMs,
            stage: (["issued", "started", "running", "done", "issued"] as const)[stage],
            failed: stage === 4,
            endedMs: stage > 2 ? timeMs + 1 : 0,
            ...(stage === 3 ? { startUs: 2, durationUs: 3 } : { startUs: 0, durationUs: 0 }),
          });
        }
        for (const of of [0, 1, 2]) {
          expect(group.notesOf(of).pairs.read()).toEqual(expected[of]?.slice(-LANE_RING));
          expect(group.notesOf(of).collectives.read(2 ** 31 - 101 + known.length)).toBeUndefined();
        }
        expect(next.notesOf(0).pairs.read()).toEqual([]);
      }),
      { seed: 20261120 },
    );
    expect(Math.max(...expected.map(({ length }) => length))).toBeGreaterThan(2 * LANE_RING);
  });
});

describe.skipIf(!available)("NCCL's flight recorder (needs a C++ compiler)", () => {
  /** Two rounds that end, and a third that rank 1 never joins: it is stuck in a loop of its own. */
  const hang = (isolation: "thread" | "process", flightTimings?: boolean) => async () => {
    const devices = fakeGpuFolder();
    const world = launch({
      ranks: 2,
      backend: "nccl",
      isolation,
      graceMs: 100,
      backendOptions: flightTimings === undefined ? {} : { flightTimings },
      ...(isolation === "process" ? { env: { FAKE_GPU_FOLDER: devices.path } } : {}),
      onOutput: () => {},
      run: async (world) => {
        const x = world.tensor("f32", [8]);
        await world.comm.allReduce(x);
        await world.comm.allReduce(x);
        if (world.rank === 1) for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000);
        await world.comm.allReduce(x, { timeoutMs: 300 });
      },
    });
    await expect(world).rejects.toThrow();
    devices.remove();
  };

  it.each(spread(["thread", "process"] as const, 2))(
    "tells of a stuck %s which call did not end, and how far it came",
    async (how) => {
      const { dumps, report } = await recorded(hang(how));
      const [first, second] = dumps[0]?.ranks ?? [];
      expect(short(first?.entries)).toEqual(["0 all_reduce done", "1 all_reduce done", "2 all_reduce failed started"]);
      expect(short(second?.entries)).toEqual(["0 all_reduce done", "1 all_reduce done"]);
      const [a, b, c] = first?.entries ?? [];
      expect(a?.timeMs).toBeGreaterThan(Date.now() - 60_000);
      expect(a?.endMs).toBeGreaterThanOrEqual(a?.timeMs ?? 0);
      expect((c?.endMs ?? 0) - (c?.timeMs ?? 0)).toBeGreaterThan(290);
      expect(b?.durationUs).toBeUndefined();
      expect(report).toMatch(
        /all_reduce\(f32\[8\], sum\) \(#2\) waits for ranks \[1\]: rank 1 last issued all_reduce.*#1, done.*; rank 0 has it on its stream, issued at 20/,
      );
    },
  );

  it("times calls on the stream when asked, and tells a call that the stream is in", async () => {
    const { dumps, report } = await recorded(hang("thread", true));
    const [a, b, c] = dumps[0]?.ranks[0]?.entries ?? [];
    expect(short([a, b, c] as FlightEntry[])).toEqual([
      "0 all_reduce done",
      "1 all_reduce done",
      "2 all_reduce failed running",
    ]);
    for (const entry of [a, b]) expect(entry?.durationUs).toBeGreaterThan(0);
    // The second began when the first was over.
    expect(b?.startUs).toBeGreaterThanOrEqual((a?.startUs ?? 0) + (a?.durationUs ?? 0));
    expect(report).toContain("rank 0 is in it on its stream");
  });

  /** Rank 0 sends twice and exchanges in a batch; then waits for a message that rank 1, stuck in a loop, never sends. */
  const hangInReceive = (isolation: "thread" | "process", flightTimings: boolean) => async () => {
    const devices = fakeGpuFolder();
    const world = launch({
      ranks: 3,
      backend: "nccl",
      isolation,
      graceMs: 100,
      backendOptions: { flightTimings },
      ...(isolation === "process" ? { env: { FAKE_GPU_FOLDER: devices.path } } : {}),
      onOutput: () => {},
      run: async (world) => {
        const pair = await world.comm.split(world.rank === 1 ? -1 : 0); // ranks 0 and 2
        if (pair === undefined) return;
        const x = world.tensor("f32", [8]);
        const y = world.tensor("f32", [3]);
        const other = 1 - pair.rank;
        if (pair.rank === 0) pair.send(x, other);
        if (pair.rank === 0) await pair.send(new Int32Array(5), other);
        else await Promise.all([pair.recv(x, other), pair.recv(new Int32Array(5), other)]);
        await pair.batch((group) => {
          group.send(x, other);
          group.allReduce(y);
          group.recv(world.tensor("f32", [8]), other);
        });
        await pair.barrier();
        if (pair.rank === 1) for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000);
        await pair.recv(y, other, { timeoutMs: 300 });
      },
    });
    await expect(world).rejects.toThrow();
    devices.remove();
  };

  const receivers = [
    ["thread", false],
    ["process", false],
    ["thread", true],
  ] as const;
  it.each(spread(receivers, 3))("tells of a stuck %s which receive has no send (timings: %s)", async (how, timings) => {
    const { dumps, report } = await recorded(hangInReceive(how, timings));
    const of = (rank: number) => {
      const entries = dumps[0]?.ranks[rank]?.entries ?? [];
      return entries.filter(({ group }) => group !== "world");
    };
    const told = (rank: number) =>
      of(rank).map(({ op, call, seq, state, reached, peer, dtype, count, inBatch }) =>
        peer === undefined
          ? [`${seq} ${op} ${state}`]
          : [
              `${seq} ${call} ${state}${inBatch ? " in a batch" : ""}`,
              peer,
              dtype,
              count,
              ...(reached ? [reached] : []),
            ],
      );
    expect(told(0)).toEqual([
      ["0 send(f32[8], peer 1) done", 1, "f32", 8],
      ["1 send(i32[5], peer 1) done", 1, "i32", 5],
      ["0 all_reduce done"],
      ["2 send(f32[8], peer 1) done in a batch", 1, "f32", 8],
      ["0 recv(f32[8], peer 1) done in a batch", 1, "f32", 8],
      ["1 barrier done"],
      ["1 recv(f32[3], peer 1) failed", 1, "f32", 3, "issued"],
    ]);
    expect(told(1)).toEqual([]);
    expect(told(2)).toEqual([
      ["0 recv(f32[8], peer 0) done", 0, "f32", 8],
      ["1 recv(i32[5], peer 0) done", 0, "i32", 5],
      ["0 all_reduce done"],
      ["0 send(f32[8], peer 0) done in a batch", 0, "f32", 8],
      ["2 recv(f32[8], peer 0) done in a batch", 0, "f32", 8],
      ["1 barrier done"],
    ]);
    const last = of(0).at(-1);
    expect((last?.endMs ?? 0) - (last?.timeMs ?? 0)).toBeGreaterThan(290);
    for (const entry of [...of(0).slice(0, -1), ...of(2)]) {
      expect(entry.timeMs).toBeGreaterThan(Date.now() - 60_000);
      expect(entry.endMs).toBeGreaterThanOrEqual(entry.timeMs);
      expect(entry.durationUs !== undefined).toBe(timings);
    }
    expect(report).toMatch(
      /: recv\(f32\[3\], peer 1\) of rank 0 \(#1 from rank 2\) waits for rank 2, which has not sent: rank 2 last issued barrier\(\) \(#1, done\); rank 0 has called it, and the engine has not taken it, issued at 20/,
    );
    expect(report).not.toMatch(/the transport is stuck/);
  });

  it("frees its events, calls in batches and graphs included", async () => {
    const before = heldByFakeGpu(buildFakeGpu() ?? "");
    const results = await launch({
      ranks: 2,
      backend: "nccl",
      backendOptions: { flightTimings: true },
      run: async (world) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [4]);
        for (let i = 0; i < 600; i++) comm.allReduce(x);
        comm.batch((group) => {
          group.allReduce(x);
          group.allGather(x);
        });
        await comm.barrier();
        const graph = comm.capture((group) => void group.allReduce(x));
        await comm.replay(graph);
        return comm.stats().operations["all_reduce"]?.calls;
      },
    });
    // A batch counts as its first call's operation.
    expect(results).toEqual([601, 601]);
    expect(heldByFakeGpu(buildFakeGpu() ?? "")).toEqual(before);
  });
});
