/** The doctor on NVIDIA machines: each finding from a root that has the fault, and silence from the same root without it. */
import { mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it, vi } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import { buildFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { CASES, nccl, rootOf, smi } from "../../../test/support/doctor-cases.ts";
import { detectOn, openMachine } from "../../machine/hardware/index.ts";
import { findEngines } from "./backend-libraries.ts";
import { builtForCuda } from "./gpu-facts-probe.ts";
import { diagnose, explain, type DoctorFinding as Finding, knownCause, readGpuFacts } from "./index.ts";
import { compareVersions } from "./nvidia.ts";

async function examine(root: string): Promise<Finding[]> {
  const machine = await openMachine({ root });
  const found = await diagnose(await detectOn(machine), machine, await readGpuFacts(machine, { exec: true }));
  // Every mask is told too; it is no fault.
  return found.filter((finding) => finding.code !== "MASKED_DEVICES");
}

describe("the doctor of NVIDIA GPUs and NCCL", () => {
  it("has nothing to say of a machine that is well", async () => {
    expect(await examine(rootOf({ commands: [smi("0, Enabled, Default", "1, Enabled, Default")] }))).toEqual([]);
  });

  it.each(CASES)("finds $code: $title", async ({ code, severity, bad, evidence, mend, good }) => {
    const found = await examine(rootOf(bad));
    expect(found.map((finding) => finding.code)).toEqual([code]);
    expect(found[0]?.severity).toBe(severity);
    expect(found[0]?.evidence?.join(" ")).toMatch(evidence);
    expect(found[0]?.mend).toMatch(mend);
    expect(await examine(rootOf(good))).toEqual([]);
  });

  it("finds an IOMMU that translates between GPUs on PCIe, which is why NCCL's peer access fails", async () => {
    const folder = "/sys/devices/pci0000:00";
    const files = Object.fromEntries(
      [1, 2].flatMap((n) =>
        Object.entries({ vendor: "0x10de", class: "0x030200", "iommu_group/type": "DMA" }).map(([name, text]) => [
          `${folder}/0000:${n}b:00.0/${name}`,
          `${text}\n`,
        ]),
      ),
    );
    const links = Object.fromEntries(
      [1, 2].map((n) => [`/sys/bus/pci/devices/0000:${n}b:00.0`, `${folder}/0000:${n}b:00.0`]),
    );
    const gpu = { name: "NVIDIA L40S", links: [], levels: { 0: 50, 1: 50 } };
    const found = await examine(rootOf({ files: { ...files, "/proc/cmdline": "quiet intel_iommu=on\n" }, links, gpu }));
    expect(found.map((finding) => finding.code)).toContain("IOMMU_TRANSLATES");
    const passed = await examine(
      rootOf({ files: { ...files, "/proc/cmdline": "intel_iommu=on iommu=pt\n" }, links, gpu }),
    );
    expect(passed.map((finding) => finding.code)).not.toContain("IOMMU_TRANSLATES");
  });

  it("raises no alarm on the recorded machines but what is true of them", async () => {
    const known = new Set(CASES.map(({ code }) => code));
    const found: string[] = [];
    for (const kind of ["roots", "real"]) {
      const folder = fileURLToPath(new URL(`../../../test/fixtures/machines/${kind}`, import.meta.url));
      for (const name of readdirSync(folder)) {
        for (const { code } of await examine(join(folder, name))) if (known.has(code)) found.push(`${name}: ${code}`);
      }
    }
    expect(found).toEqual([
      "nvidia-a100-mig: MIG_ENABLED",
      "nvidia-b200-fabric-down: LINKS_DOWN",
      "nvidia-nvml-a40-bridges: NO_PEER_ACCESS",
      "nvidia-rtx5090-2-no-peer: NO_PEER_ACCESS",
      "nvidia-version-mismatch: DRIVER_LIBRARY_MISMATCH",
    ]);
  });

  it("ignores facts that are none", async () => {
    for (const text of ["{", "[]", '{"cuda":{"noPeerAccess":[[0]]}}', '{"nccl":{"version":7}}', "null"]) {
      expect(await examine(rootOf({ files: { "/engines.json": text } }))).toEqual([]);
    }
  });

  it("compares versions by number", () => {
    expect(compareVersions("2.9.6", "2.14")).toBeLessThan(0);
    expect(compareVersions("2.28.3", "2.28.3")).toBe(0);
    expect(compareVersions("2.28.7", "2.28")).toBeGreaterThan(0);
  });
});

describe("chorale doctor", () => {
  it("prints what, the evidence and the mend; --json has the same and the facts", async () => {
    const root = rootOf({ env: { NCCL_P2P_DISABLE: "1" }, facts: nccl({ version: "2.10.3" }) });
    const run = (...flags: string[]) => runCli("doctor", "--root", root, ...flags);
    const plain = await run();
    expect(plain.code).toBe(1);
    expect(plain.out).toMatch(
      /^error {3}NCCL_TOO_OLD: NCCL is 2.10.3.*\n {8}> .*libnccl.so.2: 2.10.3\n {8}Install a newer/,
    );
    const json = JSON.parse((await run("--json")).out) as Record<string, unknown>;
    expect(json).toMatchObject({
      ok: false,
      findings: [
        {
          code: "NCCL_TOO_OLD",
          severity: "error",
          evidence: ["/usr/lib/libnccl.so.2: 2.10.3"],
          mend: expect.any(String),
        },
        { code: "NCCL_VARIABLE", severity: "warning", evidence: ["NCCL_P2P_DISABLE=1"] },
      ],
      facts: { nccl: { version: "2.10.3" } },
    });
  });
});

describe("facts of the libraries", () => {
  it("have the CUDA version that an NCCL was built for, wherever in the file it stands", () => {
    const folder = scratchFolder("nccl");
    const at = (offset: number, text: string) => {
      const path = join(folder, `${offset}.so`);
      const bytes = Buffer.alloc(9 * 2 ** 20);
      bytes.write(text, offset, "latin1");
      writeFileSync(path, bytes);
      return builtForCuda(path);
    };
    expect(at(4 * 2 ** 20 - 10, "NCCL version 2.28.3+cuda13.0\0")).toBe("13.0");
    expect(at(17, "NCCL version 2.18.5+cuda12.2\0")).toBe("12.2");
    expect(at(99, "NCCL version 2.x\0")).toBeUndefined();
    expect(builtForCuda("/no/such")).toBeUndefined();
  });

  const library = buildFakeGpu();
  it.skipIf(library === undefined)("are asked in a process of their own (needs g++)", async () => {
    vi.stubEnv("CHORALE_CUDA_LIBRARY", library).stubEnv("CHORALE_NCCL_LIBRARY", library);
    try {
      const machine = await openMachine({});
      const facts = await readGpuFacts(machine, { exec: true });
      expect(facts.cuda).toMatchObject({ version: expect.stringMatching(/^\d+\.\d+$/), noPeerAccess: [] });
      expect(facts.cuda?.names).toHaveLength(facts.cuda?.numDevices ?? -1);
      expect(facts.nccl).toMatchObject({ path: library, version: expect.stringMatching(/^2\.\d+\.\d+$/) });
      expect(await readGpuFacts(machine, { exec: false })).toEqual({});
      vi.stubEnv("FAKE_CUDA_DEVICES", "0");
      const { cuda } = await readGpuFacts(machine, { exec: true });
      expect(cuda).toEqual({ problem: expect.stringContaining("cuInit returned 100"), initStatus: 100 });
      const engines = (await findEngines()).filter(({ name }) => name === "CUDA driver" || name === "NCCL");
      expect(engines.map(({ available, detail }) => [available, detail])).toEqual([
        [true, library],
        [true, library],
      ]);
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it.skipIf(library === undefined)("find NCCL where the backend does, in a wheel too (needs g++)", async () => {
    const environment = scratchFolder("venv");
    const folder = join(environment, "lib/python3.12/site-packages/nvidia/nccl/lib");
    mkdirSync(folder, { recursive: true });
    symlinkSync(library ?? "", join(folder, "libnccl.so.2"));
    vi.stubEnv("VIRTUAL_ENV", environment).stubEnv("CHORALE_NCCL_LIBRARY", "");
    try {
      const [nccl] = (await findEngines()).filter(({ name }) => name === "NCCL");
      expect(nccl).toEqual({ name: "NCCL", available: true, detail: join(folder, "libnccl.so.2") });
    } finally {
      vi.unstubAllEnvs();
      rmSync(environment, { recursive: true });
    }
  });

  it("explain the texts of CUDA's and NCCL's errors", () => {
    expect(knownCause("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000")).toMatch(
      /one rank per GPU/,
    );
    expect(
      knownCause(
        "misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-a to 9637892 bytes, error: No space left on device (28)",
      ),
    ).toMatch(/shm-size/);
    expect(knownCause("CUDA driver version is insufficient for CUDA runtime version")).toMatch(/newer CUDA/);
    expect(knownCause("Failed to initialize NVML: Driver/library version mismatch")).toMatch(/reboot/);
    expect(knownCause("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")).toMatch(/End the process/);
    expect(knownCause("rank 3 threw a TypeError")).toBeUndefined();
    const dump = { schemaVersion: 1 as const, backend: "nccl", generation: 1, worldSize: 2, groups: [] };
    const ranks = [
      { rank: 0, failed: "ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1", entries: [] },
      { rank: 1, failed: "threw a TypeError", entries: [] },
    ];
    expect(explain([{ ...dump, ranks }]).failures).toEqual([
      { ...{ rank: 0, failed: ranks[0]?.failed }, mend: expect.stringMatching(/CUDA_VISIBLE_DEVICES/) },
      { rank: 1, failed: "threw a TypeError" },
    ]);
  });
});
