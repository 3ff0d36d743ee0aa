import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { recordedRoot } from "../../../test/support/recorded-root.ts";
import { detectOn, openMachine } from "../../machine/hardware/index.ts";
import type { FlightEntry } from "../../runtime/comm/index.ts";
import { diagnose, explain, explainFlight, findEngines } from "./index.ts";

const fixtures = fileURLToPath(new URL("../../../test/fixtures/machines/roots", import.meta.url));

async function examine(root: string) {
  const machine = await openMachine({ root });
  return diagnose(await detectOn(machine), machine);
}

const pci = (address: string, vendor: string, kind: string, more: Readonly<Record<string, string>> = {}) => {
  const folder = `/sys/devices/pci0000:00/${address}`;
  return Object.fromEntries(
    Object.entries({ vendor, device: "0x2204", class: kind, numa_node: "0", ...more }).map(([name, text]) => [
      `${folder}/${name}`,
      `${text}\n`,
    ]),
  );
};
const onBus = (address: string) => ({ [`/sys/bus/pci/devices/${address}`]: `/sys/devices/pci0000:00/${address}` });

describe("the doctor", () => {
  it.each([
    ["nvidia-version-mismatch", "DRIVER_LIBRARY_MISMATCH", "error", /reboot/],
    ["nvidia-no-devices", "DRIVER_WITHOUT_DEVICE", "warning", /dmesg/],
    ["nvidia-nouveau", "DEVICE_WITHOUT_DRIVER", "error", /Blacklist nouveau/],
    ["amd-no-driver", "DEVICE_WITHOUT_DRIVER", "error", /modprobe amdgpu/],
    ["nvidia-l4-4-masked", "MASKED_DEVICES", "info", /Unset/],
    ["nvidia-a100-pcie-inactive-links", "INACTIVE_LINKS", "warning", /nvlink -s/],
    ["nvidia-nvml-a40-bridges", "ECC_ERRORS", "error", /Drain/],
    ["nvidia-nvml-a40-bridges", "NO_PEER_ACCESS", "warning", /ACS and IOMMU/],
    ["nvidia-rtx5090-2-no-peer", "NO_PEER_ACCESS", "info", /gives this product no peer access/],
    ["nvidia-driver-not-loaded", "DRIVER_UNREACHABLE", "error", /modprobe nvidia/],
    ["nvidia-no-permission", "NO_PERMISSION", "error", /access to \/dev\/nvidia/],
    ["accel-of-unknown-driver", "DETECTION_WARNING", "warning", /chorale detect/],
    ["network-ib-down-roce", "PORT_DOWN", "warning", /cable/],
    ["nvidia-rtx4090-2", "PCIE_NARROW", "warning", /slot/],
    ["nvidia-smi-timed-out", "TOOL_TROUBLE", "warning", /dmesg/],
  ])("finds in %s: %s", async (name, code, severity, mend) => {
    const finding = (await examine(join(fixtures, name))).find((f) => f.code === code);
    expect(finding).toMatchObject({ code, severity });
    expect(finding?.mend).toMatch(mend);
  });

  it.each(["nvidia-a100-8-nvswitch", "amd-mi300x-8", "gaudi3-8", "neuron-trn1.32xlarge"])(
    "has nothing to say of %s",
    async (name) => {
      expect(await examine(join(fixtures, name))).toEqual([]);
    },
  );

  it("finds a driver without a device", async () => {
    const findings = await examine(recordedRoot({ "/sys/module/nvidia/version": "550.54\n" }));
    expect(findings).toMatchObject([
      { code: "DRIVER_WITHOUT_DEVICE", message: expect.stringContaining("nvidia") as unknown },
    ]);
  });

  it("finds device nodes that may not be opened", async () => {
    const root = recordedRoot({
      "/dev/nvidiactl": "",
      "/dev/kfd": "",
      "/meta.json": JSON.stringify({ access: { "/dev/nvidiactl": "denied", "/dev/kfd": "denied" } }),
    });
    const findings = (await examine(root)).filter((f) => f.code === "NO_PERMISSION");
    expect(findings.map((f) => f.message.split(" ")[0])).toEqual(["/dev/nvidiactl", "/dev/kfd"]);
    expect(findings[1]?.mend).toContain("render");
  });

  it("finds an IOMMU that translates and bridges that redirect, between GPUs that talk over PCIe", async () => {
    const gpu = (n: number) =>
      pci(`0000:00:0${n}.0`, "0x1002", "0x030000", { "iommu_group/type": "DMA-FQ", mem_info_vram_total: "8589934592" });
    const root = recordedRoot(
      {
        ...gpu(1),
        ...gpu(2),
        ...pci("0000:00:1c.0", "0x8086", "0x060400", { acs_flags: "SV RR CR UF" }),
        "/sys/bus/pci/drivers/amdgpu/new_id": "",
        "/proc/cmdline": "quiet intel_iommu=on\n",
      },
      {
        ...onBus("0000:00:01.0"),
        ...onBus("0000:00:02.0"),
        ...onBus("0000:00:1c.0"),
        "/sys/devices/pci0000:00/0000:00:01.0/driver": "/sys/bus/pci/drivers/amdgpu",
        "/sys/devices/pci0000:00/0000:00:02.0/driver": "/sys/bus/pci/drivers/amdgpu",
        "/sys/class/drm/card0/device": "/sys/devices/pci0000:00/0000:00:01.0",
        "/sys/class/drm/card1/device": "/sys/devices/pci0000:00/0000:00:02.0",
      },
    );
    const codes = (await examine(root)).map((f) => f.code);
    expect(codes).toContain("IOMMU_TRANSLATES");
    expect(codes).toContain("ACS_REDIRECTS");
  });

  it("says of every engine whether it is here, where it was looked for and how to get it", async () => {
    const engines = await findEngines([
      { name: "NCCL", files: ["libnccl-none.so.2"], folders: ["/nowhere"], howToGetIt: "Install libnccl2." },
    ]);
    expect(engines).toMatchObject([{ name: "NCCL", available: false, howToGetIt: "Install libnccl2." }]);
    expect(engines[0]?.detail).toContain("/nowhere/libnccl-none.so.2: no such file");
  });
});

describe("a flight-recorder dump", () => {
  const entry = (seq: number, call: string, state: FlightEntry["state"] = "done"): FlightEntry => ({
    group: "world",
    seq,
    op: call.split("(")[0] ?? "",
    call,
    state,
    timeMs: 0,
  });
  const dump = (
    ranks: readonly { rank: number; failed?: string; entries: ReturnType<typeof entry>[] }[],
    generation = 0,
  ) => ({
    schemaVersion: 1 as const,
    backend: "tcp",
    generation,
    worldSize: 4,
    groups: [{ name: "world", ranks: [0, 1, 2, 3] }],
    ranks: [...ranks],
  });
  const done = (rank: number) => ({ rank, entries: [entry(1, "barrier()")] });

  it("names who has not come, and what that rank did last", () => {
    const waiting = [0, 1, 2].map((rank) => ({
      rank,
      entries: [entry(1, "barrier()"), entry(2, "all_reduce(f32, 8)", "issued")],
    }));
    const { groups } = explain([dump([...waiting, done(3)])]);
    expect(groups).toMatchObject([{ verdict: "stuck", missing: [{ rank: 3 }] }]);
    expect(groups[0]?.message).toBe(
      "world: all_reduce(f32, 8) (#2) waits for ranks [3]: rank 3 last issued barrier() (#1, done)",
    );
  });

  it("tells a mismatch, a transport that is stuck, and a rank that left no dump", () => {
    const at = (rank: number, call: string) => ({ rank, entries: [entry(1, call, "issued")] });
    expect(
      explain([dump([0, 1, 2, 3].map((rank) => at(rank, rank < 3 ? "barrier()" : "broadcast(f32, 4)")))]).groups[0]
        ?.message,
    ).toBe(
      "world: operation #1 differs between ranks: ranks [0, 1, 2] called barrier(); ranks [3] called broadcast(f32, 4)",
    );
    expect(explain([dump([0, 1, 2, 3].map((rank) => at(rank, "barrier()")))]).groups[0]?.message).toMatch(
      /the transport is stuck/,
    );
    expect(explain([dump([0, 1, 2].map((rank) => at(rank, "barrier()")))]).groups[0]?.missing).toEqual([
      { rank: 3, last: "left no dump" },
    ]);
    expect(explain([dump([0, 1, 2, 3].map(done))]).groups[0]?.verdict).toBe("complete");
  });

  it("says where the strands of a plan stood, and does not blame the transport then", () => {
    const stands = ["strand 0 at op 8, wait memory 0 (ring.ts:36:11)"];
    const at = (rank: number) => ({
      rank,
      entries: [{ ...entry(1, "run(sum, parts of 8 x f32)", "failed"), ...(rank === 2 ? { strands: stands } : {}) }],
    });
    const { groups } = explain([dump([0, 1, 2, 3].map(at))]);
    expect(groups[0]?.message).toBe(
      "world: all ranks are in run(sum, parts of 8 x f32) (#1) and none has finished" +
        "; rank 2 stood in its plan: strand 0 at op 8, wait memory 0 (ring.ts:36:11)",
    );
  });

  it("names the mismatch that the ranks found themselves", () => {
    const at = (rank: number) => ({ rank, entries: [entry(1, "all_reduce(f32[4], preMulSum)", "failed")] });
    const sides = [0, 3].map((rank) => ({ rank, call: `all_reduce(f32[4], preMulSum) with scalar ${rank}` }));
    const failure = { code: "MISMATCH", problem: "ranks of world disagree on operation #1", sides };
    const failed = dump([0, 1, 2, 3].map(at));
    const { groups } = explain([{ ...failed, groups: failed.groups.map((group) => ({ ...group, failure })) }]);
    expect(groups[0]).toMatchObject({
      verdict: "mismatch",
      waiting: [{ rank: 0 }, { rank: 1 }, { rank: 2 }, { rank: 3 }],
    });
    expect(groups[0]?.message).toBe(
      "world: ranks of world disagree on operation #1: rank 0 called all_reduce(f32[4], preMulSum) with scalar 0" +
        "; rank 3 called all_reduce(f32[4], preMulSum) with scalar 3",
    );
    const other = { code: "ABORTED", reason: "on purpose" };
    const aborted = explain([{ ...failed, groups: failed.groups.map((group) => ({ ...group, failure: other })) }]);
    expect(aborted.groups[0]?.verdict).toBe("stuck");
  });

  it("says how far each rank came, and what calls took on the stream, where the engine tells", () => {
    const timeMs = Date.UTC(2026, 0, 2, 3, 4, 5);
    const timed = (seq: number, startUs: number, durationUs: number) => ({
      ...entry(seq, "barrier()"),
      timeMs,
      startUs,
      durationUs,
    });
    const at = (rank: number, state: FlightEntry["state"], reached?: "running") => ({
      rank,
      entries: [
        timed(1, 0, 5),
        timed(2, 10, 20 + rank),
        { ...entry(3, "all_reduce(f32)"), timeMs, state, ...(reached && { reached }) },
      ],
    });
    const stuck = explain([dump([at(0, "issued"), at(1, "started"), at(2, "failed", "running"), at(3, "running")])]);
    expect(stuck.groups[0]?.message).toBe(
      "world: all ranks are in all_reduce(f32) (#3) and none has finished: the transport is stuck, not the program" +
        "; rank 0 has called it, and the engine has not taken it, issued at 2026-01-02T03:04:05.000Z" +
        "; rank 1 has it on its stream, issued at 2026-01-02T03:04:05.000Z" +
        "; rank 2 is in it on its stream, issued at 2026-01-02T03:04:05.000Z" +
        "; rank 3 is in it on its stream, issued at 2026-01-02T03:04:05.000Z",
    );
    expect(stuck.groups[0]?.timings?.[3]).toEqual({
      rank: 3,
      calls: 2,
      totalUs: 28,
      slowest: { call: "barrier()", seq: 2, durationUs: 23 },
    });
    const half = explain([dump([at(0, "done"), at(1, "started"), at(2, "done"), at(3, "done")])]);
    expect(half.groups[0]?.message).toMatch(
      /all_reduce\(f32\) \(#3\) is done on ranks \[0, 2, 3\] and not on the others; rank 0 is done with it; rank 1 has it/,
    );
  });

  it("tells of sends and receives, which pairs number by themselves, and what hangs behind them", () => {
    const pairCall = (
      op: "send" | "recv",
      peer: number,
      seq: number,
      state: FlightEntry["state"],
      inBatch = false,
    ) => ({
      ...entry(seq, `${op}(f32[8], peer ${peer})`, state),
      op,
      peer,
      dtype: "f32",
      count: 8,
      inBatch,
    });
    const sum = (state: FlightEntry["state"]) => entry(3, "all_reduce(f32)", state);
    // The ranks of the group are the world's 4 to 7.
    const of = (...entries: (readonly FlightEntry[])[]) => {
      const all = dump(entries.map((one, i) => ({ rank: 4 + i, entries: [...one] })));
      return explain([{ ...all, groups: [{ name: "world", ranks: [4, 5, 6, 7] }] }]).groups[0];
    };
    // Rank 5 waits for what rank 4 has not sent: the others are in the operation behind it, 4 and 5 not.
    const behind = of(
      [pairCall("send", 1, 0, "done")],
      [pairCall("recv", 0, 0, "done"), pairCall("recv", 0, 1, "issued"), sum("issued")],
      [sum("issued")],
      [sum("issued")],
    );
    expect(behind).toMatchObject({ verdict: "stuck", missing: [{ rank: 4 }] });
    expect(behind?.message).toBe(
      "world: all_reduce(f32) (#3) waits for ranks [4]: rank 4 last issued send(f32[8], peer 1) (#0, done)" +
        "; recv(f32[8], peer 0) of rank 5 (#1 from rank 4) waits for rank 4, which has not sent" +
        ": rank 4 last issued send(f32[8], peer 1) (#0, done); rank 5 has called it, and the engine has not taken it",
    );
    // All have called the operation, and rank 5's waits in its queue: no fault of the transport.
    const blocked = of(
      [sum("started")],
      [pairCall("recv", 2, 0, "issued"), sum("issued")],
      [sum("started")],
      [sum("started")],
    );
    expect(blocked?.message).toMatch(
      /none has finished; rank 4 .*; recv\(f32\[8\], peer 2\) of rank 5 .* rank 6, which has not sent/,
    );
    // Both ends are there.
    const both = of([pairCall("send", 3, 7, "running", true)], [], [], [pairCall("recv", 0, 7, "started", true)]);
    expect(both).toMatchObject({
      verdict: "stuck",
      missing: [],
      waiting: [
        { rank: 4, seq: 7 },
        { rank: 7, seq: 7 },
      ],
    });
    expect(both?.message).toBe(
      "world: send(f32[8], peer 3) of rank 4 (#7 to rank 7, in a batch) is not done, though rank 7 receives" +
        ": rank 7 has it on its stream; rank 4 is in it on its stream" +
        "; recv(f32[8], peer 0) of rank 7 (#7 from rank 4, in a batch) is not done, though rank 4 has sent" +
        ": rank 4 is in it on its stream; rank 7 has it on its stream",
    );
    // A send in a batch is NCCL's, and one outside of it is mail: neither ever ends.
    const unfit = of([pairCall("send", 3, 7, "issued", true)], [], [], [pairCall("recv", 0, 7, "issued", false)]);
    expect(unfit?.verdict).toBe("mismatch");
    expect(unfit?.message).toMatch(
      /send\(f32\[8\], peer 3\) of rank 4 \(#7 to rank 7, in a batch\) does not fit recv\(f32\[8\], peer 0\) of rank 7, outside of a batch/,
    );
    const ended = of([pairCall("send", 1, 0, "done"), sum("done")], [sum("done")], [sum("done")], [sum("done")]);
    expect(ended).toMatchObject({ verdict: "complete", waiting: [], missing: [] });
  });

  it("blames nobody for a send or receive that may be older than what is noted", () => {
    const pairCalls = (op: "send" | "recv", peer: number, from: number, num: number) =>
      Array.from({ length: num }, (_, i) => ({ ...entry(from + i, `${op}(f32[4], peer ${peer})`), op, peer }));
    const stuckIn = (seq: number, peers: readonly FlightEntry[] | undefined) => {
      const hung = { ...entry(seq, "recv(f32[4], peer 1)", "issued"), op: "recv", peer: 1 };
      const ranks = [{ rank: 0, entries: [hung] }, ...(peers === undefined ? [] : [{ rank: 1, entries: [...peers] }])];
      const { message, missing } = explain([dump(ranks)]).groups[0] ?? {};
      const words = /\(#\d from rank 1\) (.*?): rank 1 (.*); rank 0/.exec(message ?? "");
      return [words?.[1], words?.[2], missing?.map(({ rank }) => rank)];
    };
    const last = (peer: number, seq: number) => `last issued send(f32[4], peer ${peer}) (#${seq}, done)`;
    // 64 notes of others: the send may have been before them.
    expect(stuckIn(0, pairCalls("send", 2, 6, 64))).toEqual([
      "is not done; whether rank 1 has sent is not known",
      last(2, 69),
      [],
    ]);
    expect(stuckIn(0, pairCalls("send", 2, 0, 63))).toEqual(["waits for rank 1, which has not sent", last(2, 62), [1]]);
    // A later one to the same rank: it was made, whether or not the ring is full.
    for (const num of [1, 64])
      expect(stuckIn(0, pairCalls("send", 0, 1, num))).toEqual([
        "is not done, though rank 1 has sent and called others since",
        last(0, num),
        [],
      ]);
    // An earlier one is noted: a later one would be too. What rank 1 sends to others or receives is no sign.
    const earlier = [...pairCalls("send", 0, 4, 1), ...pairCalls("recv", 0, 9, 30), ...pairCalls("send", 2, 6, 33)];
    expect(stuckIn(5, earlier)).toEqual(["waits for rank 1, which has not sent", last(2, 38), [1]]);
    expect(stuckIn(0, undefined)).toEqual(["is not done; whether rank 1 has sent is not known", "left no dump", [1]]);
  });

  it("does not wait for a rank that is so far ahead that its call is no longer noted", () => {
    const ahead = Array.from({ length: 64 }, (_, i) => entry(3 + i, "broadcast(f32[4], root 0)"));
    const hung = (rank: number) => ({ rank, entries: [entry(2, "broadcast(f32[4], root 0)", "issued")] });
    const { missing, message } = explain([dump([{ rank: 0, entries: ahead }, ...[1, 2, 3].map(hung)])]).groups[0] ?? {};
    expect(missing).toEqual([]);
    expect(message).toBe(
      "world: broadcast(f32[4], root 0) (#2) is not done on ranks [1, 2, 3]" +
        "; rank 0 has called it and others since: it last issued broadcast(f32[4], root 0) (#66, done)",
    );
    const one = explain([dump([{ rank: 0, entries: ahead }, hung(1), hung(2), done(3)])]).groups[0];
    expect(one?.missing.map(({ rank }) => rank)).toEqual([3]);
    expect(one?.message).toMatch(/waits for ranks \[3\]: rank 3 .*; rank 0 has called it and others since/);
  });

  it("is of the latest run in a folder that has dumps of several, told apart by time, world and ranks", async () => {
    const folder = scratchFolder("flight");
    const write = (name: string, content: object) => writeFileSync(join(folder, name), JSON.stringify(content));
    const at = (rank: number, call: string) => ({ rank, entries: [entry(1, call, "issued")] });
    // Earlier: another backend, a later generation; the same world; hours ago, of a rank that the last run tells nothing of.
    write("flight-50000000-7-3.json", { ...dump([0, 1, 2, 3].map(done), 3), backend: "mpi" });
    write("flight-60000000-8-1.json", dump([0, 1].map(done), 1));
    write("flight-40000000-8-1.json", dump([done(3)], 1));
    write("flight-60100000-9-1.json", dump([at(2, "barrier()")], 1));
    write("flight-60100500-9-1.json", dump([at(0, "barrier()"), { rank: 2, failed: "died", entries: [] }], 1));
    write("flight-60099000-9-1.json", dump([at(1, "broadcast(f32, 4)")], 1));
    const report = await explainFlight(folder);
    expect(report).toMatchObject({
      backend: "tcp",
      generation: 1,
      leftOut: 3,
      failures: [{ rank: 2, failed: "died" }],
    });
    expect(report.groups[0]?.message).toBe(
      "world: operation #1 differs between ranks: ranks [0, 2] called barrier(); ranks [1] called broadcast(f32, 4)",
    );
  });

  it("is read from a folder of one dump a rank, the latest generation first", async () => {
    const folder = scratchFolder("flight");
    for (const rank of [0, 1, 2])
      writeFileSync(
        join(folder, `rank${rank}.json`),
        JSON.stringify(dump([{ rank, entries: [entry(5, "barrier()", "issued")] }], 2)),
      );
    writeFileSync(join(folder, "old.json"), JSON.stringify(dump([done(3)], 1)));
    writeFileSync(
      join(folder, "rank3.json"),
      JSON.stringify(dump([{ rank: 3, failed: "out of memory", entries: [] }], 2)),
    );
    const report = await explainFlight(folder);
    expect(report).toMatchObject({ generation: 2, failures: [{ rank: 3, failed: "out of memory" }] });
    expect(report.groups[0]?.message).toMatch(/rank 3 issued nothing in this group; failed: out of memory/);
    expect(report.leftOut).toBe(1);
    writeFileSync(join(folder, "bad.json"), "{}");
    await expect(explainFlight(folder)).rejects.toThrow(/bad.json/);
    await expect(explainFlight("/no/such")).rejects.toThrow(/--flight/);
  });
});
