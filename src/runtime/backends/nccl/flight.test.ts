/** The flight recorder of a hang, and calls timed on the stream, over the stand-in library. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FlightDump, FlightEntry } from "chorale/comm";
import { explainFlight } from "chorale/doctor";
import { launch } from "chorale/world";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder, heldByFakeGpu, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { LANE_RING } from "../control/lanes.ts";
import { controlBytes } from "../control/layout.ts";
import { ControlSegment } from "../control/segment.ts";

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
          const notes = controls[member]?.flightNotes(member);
          const others = controls.map((_, m) => (m === member ? undefined : controls[0]?.flightNotes(m).read(seq)));
          notes?.issue(seq, issuedMs);
          notes?.reach(seq, "running");
          notes?.time(seq, 1.5, durationUs);
          notes?.end(seq, ok, 7);
          notes?.end(seq + LANE_RING, !ok, 8);
          expect(controls[0]?.flightNotes(member).read(seq)).toEqual({
            stage: ok ? "done" : "running",
            failed: !ok,
            issuedMs,
            endedMs: 7,
            startUs: 1.5,
            durationUs,
          });
          expect(notes?.read(seq + LANE_RING)).toBeUndefined();
          expect(controls.map((_, m) => (m === member ? undefined : controls[0]?.flightNotes(m).read(seq)))).toEqual(
            others,
          );
        },
      ),
      { seed: 20261120 },
    );
    expect(next.issued(0, { kind: "collective" })).toBe(0);
    expect([next.failed, next.blob, next.mail(1, 0)]).toEqual([false, undefined, undefined]);
    expect(segment.groups().map(({ name }) => name)).toEqual(["g", "next"]);
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

  it.each(["thread", "process"] as const)(
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
