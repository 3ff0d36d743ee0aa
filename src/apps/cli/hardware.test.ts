/** detect, topo and doctor as a user calls them. */
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it, vi } from "vitest";
import { CLI_PROCESS, runCli } from "../../../test/helpers/cli.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { inventorySchema, presetInventory } from "../../machine/topology/index.ts";

const fixtures = fileURLToPath(new URL("../../../test/fixtures", import.meta.url));
const root = (name: string) => join(fixtures, "machines/roots", name);

afterEach(() => vi.restoreAllMocks());

describe("chorale detect", () => {
  it("prints a table for people", async () => {
    const { code, out } = await runCli(
      "detect",
      "--root",
      root("nvidia-a100-mig"),
      "--columns",
      "id,name,memory,status",
    );
    expect(code).toBe(0);
    const rows = out.split("\n").map((row) => row.trim().split(/ {2,}/));
    expect(rows.slice(0, 5)).toEqual([
      ["ID", "NAME", "MEMORY", "STATUS"],
      ["cpu0", "AMD EPYC 7742 64-Core Processor", "64 GiB", "visible"],
      ["gpu0", "NVIDIA A100-SXM4-40GB", "40 GiB", "visible"],
      ["gpu0.mig0", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "19.5 GiB", "visible"],
      ["gpu0.mig1", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "4.75 GiB", "visible"],
    ]);
    expect(out).toMatch(/\n1 accelerator, 24.3 GiB of their memory visible\n$/);
  });

  it("prints one JSON document, and nothing else, on stdout", async () => {
    const { code, out } = await runCli("detect", "--root", root("amd-mi300x-8"), "--json");
    expect(code).toBe(0);
    const inventory = inventorySchema.parse(JSON.parse(out));
    expect(inventory.devices).toHaveLength(9);
  });

  it("prints TSV with the columns asked for, bare numbers, in the order asked for", async () => {
    const { out } = await runCli(
      "detect",
      "--root",
      root("gaudi3-8"),
      "--format",
      "tsv",
      "--columns",
      "id,mem,bw,util",
      "--sort",
      "temp",
      "--family",
      "gaudi",
    );
    const rows = out
      .trimEnd()
      .split("\n")
      .map((row) => row.split("\t"));
    expect(rows[0]).toEqual(["id", "memory", "bandwidth", "utilization"]);
    expect(rows.slice(1).map((row) => row[0])).toEqual([
      "acc7",
      "acc6",
      "acc5",
      "acc4",
      "acc3",
      "acc2",
      "acc1",
      "acc0",
    ]);
    expect(rows[1]).toEqual(["acc7", String(131072 * 1024 ** 2), "3700", "0"]);
  });

  it("exits with 1 when an alert is raised, and says why on stderr", async () => {
    const hot = await runCli("detect", "--root", root("nvidia-dgx1-v100-8"), "--alert", "temperature>=35");
    expect(hot.code).toBe(1);
    expect(hot.err.match(/alert temperature>=35: gpu\d/g)).toHaveLength(8);
    expect((await runCli("detect", "--root", root("nvidia-dgx1-v100-8"), "--alert", "memory>90%")).code).toBe(0);
    expect((await runCli("detect", "--root", root("nvidia-rtx4090-2"), "--alert", "free<30G")).code).toBe(1);
  });

  it("refuses what it does not know with 2, and says what is accepted", async () => {
    for (const [argv, accepted] of [
      [["--columns", "id,colour"], /memory/],
      [["--sort", "colour"], /memory/],
      [["--family", "gpu"], /nvidia-gpu/],
      [["--format", "xml"], /tsv/],
      [["--alert", "memory=90"], /memory>90%/],
      [["--alert", "name>3%"], /memory>90%/],
      [["--watch", "soon"], /0\.1 to 86400/],
      [["--tools", "/tmp"], /--root/],
      [["--frobnicate"], /frobnicate/],
      [["--root", "/no/such/root"], /proc/],
    ] as const) {
      const { code, err } = await runCli("detect", ...argv);
      expect([argv, code]).toEqual([argv, 2]);
      expect(err).toMatch(accepted);
    }
  });

  it.runIf(process.platform === "linux")("refuses to record where no folder can be made, at once", async () => {
    expect((await runCli("detect", "--root", root("nvidia-dgx1-v100-8"), "--record", "/proc/none/below")).code).toBe(2);
  });

  it("records a root that replays to the printed inventory, and refuses a folder in use", async () => {
    const folder = scratchFolder("record");
    const printed = await runCli(
      "detect",
      "--root",
      root("nvidia-a100-8-nvswitch"),
      "--record",
      join(folder, "r"),
      "--no-redact",
      "--json",
    );
    expect(printed.code).toBe(0);
    const replayed = await runCli("detect", "--root", join(folder, "r"), "--json");
    expect(replayed.out).toBe(printed.out);
    const original = JSON.parse(
      (await runCli("detect", "--root", root("nvidia-a100-8-nvswitch"), "--json")).out,
    ) as unknown;
    expect(JSON.parse(printed.out)).toEqual(original);
    expect((await runCli("detect", "--record", join(folder, "r"))).code).toBe(2);
  });

  it("redacts serial numbers, UUIDs and addresses unless told not to, equal ones equally", async () => {
    const folder = join(scratchFolder("record"), "r");
    await runCli("detect", "--root", root("nvidia-nvml-a40-bridges"), "--record", folder, "--json");
    const nvml = readFileSync(join(folder, "nvml.json"), "utf8");
    expect(nvml).not.toContain("aaaa-bbbb-cccc");
    expect(nvml).toMatch(/"uuid": "GPU-[0-9a-f]{8}-/);
    const again = join(scratchFolder("record"), "r");
    await runCli("detect", "--root", root("nvidia-nvml-a40-bridges"), "--record", again, "--json");
    expect(readFileSync(join(again, "nvml.json"), "utf8")).toBe(nvml);
  });

  it("runs emulated tools beside a root and says so", async () => {
    const { code, out, err } = await runCli(
      "detect",
      "--root",
      root("groq-card"),
      "--tools",
      join(fixtures, "tools/h200"),
      "--format",
      "tsv",
      "--columns",
      "id,name",
    );
    expect(code).toBe(0);
    expect(err).toMatch(/are executed/);
    expect(out.trimEnd().split("\n")).toHaveLength(1 + 1 + 4 + 1);
  });

  it("tells timings on stderr", async () => {
    const { err } = await runCli("detect", "--root", root("groq-card"), "--timings", "--json");
    expect(err).toMatch(/^nvidia\s+[\d.]+ ms$/m);
    expect(err).toMatch(/^total\s+[\d.]+ ms$/m);
  });
});

describe("chorale detect --watch", () => {
  it("prints one JSON document a line until it is told to stop, and then exits with 0", async () => {
    const words = ["detect", "--root", root("groq-card"), "--watch", "0.1", "--json"];
    const child = spawn(process.execPath, [...CLI_PROCESS, ...words], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const sequences: number[] = [];
    for await (const line of createInterface({ input: child.stdout })) {
      sequences.push((JSON.parse(line) as { sequence: number }).sequence);
      if (sequences.length === 3) child.kill("SIGTERM");
    }
    const code = child.exitCode ?? (await new Promise<number | null>((resolve) => child.once("exit", resolve)));
    expect(sequences.slice(0, 3)).toEqual([0, 1, 2]);
    expect(code).toBe(0);
  });
});

describe("chorale topo", () => {
  it("draws the matrix with islands, NICs and the legend of what occurs", async () => {
    const { code, out } = await runCli("topo", "--root", root("nvidia-a100-8-nvswitch"));
    expect(code).toBe(0);
    const rows = out.split("\n");
    expect(rows[0]?.trim().split(/\s+/)).toEqual([
      "gpu0",
      "gpu1",
      "gpu2",
      "gpu3",
      "gpu4",
      "gpu5",
      "gpu6",
      "gpu7",
      "nic0",
      "nic1",
      "nic2",
      "nic3",
      "NUMA",
    ]);
    expect(rows[3]?.split(/\s+/)).toEqual([
      "gpu2",
      "NV12",
      "NV12",
      "X",
      "NV12",
      "NV12",
      "NV12",
      "NV12",
      "NV12",
      "SYS",
      "PXB",
      "SYS",
      "SYS",
      "1",
    ]);
    expect(out).toMatch(/island0: gpu0 .* gpu7 \(nvlink, 300 GB\/s at the narrowest/);
    expect(out).toMatch(/nic0: mlx5_0 \(InfiniBand, ACTIVE, 200 Gb\/s\)/);
    expect(out).toMatch(/^PXB/m);
    expect(out).not.toMatch(/^XGMI/m);
  });

  it("prints links or hops in the cells of every fabric, and folds what is wider than the terminal", async () => {
    const { out } = await runCli("topo", "--root", root("neuron-trn1.32xlarge"));
    expect(
      Math.max(
        ...out
          .split("\n")
          .filter((row) => /^acc\d+ /.test(row))
          .map((row) => row.length),
      ),
    ).toBeLessThanOrEqual(120);
    expect(out).toMatch(/^acc0 +X +NL1 +NL\/2 +NL1/m);
    expect(out).toMatch(/^NL# +NeuronLink$/m);
    expect(out).toMatch(/neuronlink, rate unknown/);
    const mi250x = await runCli("topo", "--root", root("amd-mi250x-8"));
    expect(mi250x.out).toMatch(/^gpu0 +X +XGMI4 +XGMI1 +XGMI\/2/m);
    expect(mi250x.out).toMatch(/ring gpu0 gpu1 gpu3 gpu2 gpu4 gpu5 gpu7 gpu6\)/);
  });

  it("gives JSON with islands and rings, and Graphviz", async () => {
    const { out } = await runCli("topo", "--root", root("amd-two-xgmi-islands"), "--json");
    const { islands } = JSON.parse(out) as { islands: { devices: string[]; rings: { order: string[] }[] }[] };
    expect(islands.map((island) => island.devices.length)).toEqual([4, 4]);
    // The rings of the node: 0-1-2-3 and 4-5-7-6.
    expect(islands[1]?.rings[0]?.order).toHaveLength(4);
    const dot = (await runCli("topo", "--root", root("amd-two-xgmi-islands"), "--format", "dot")).out;
    expect(dot).toMatch(/^graph topology \{/);
    expect(dot).toContain('"gpu0" -- "gpu1" [label="xgmi"]');
    expect(dot.match(/\[shape=box/g)).toHaveLength(9);
  });

  it("draws presets, compositions and inventory files", async () => {
    expect((await runCli("topo", "--hardware", "mi300x-8")).out).toMatch(/^gpu0\s+X\s+XGMI/m);
    expect((await runCli("topo", "--hardware", "2x l40s-8 --nic 1xNDR")).out).toMatch(/n1\.gpu7/);
    const file = join(scratchFolder("file"), "inventory.json");
    writeFileSync(file, JSON.stringify(presetInventory("rtx4090-2")));
    expect((await runCli("topo", "--hardware", file)).out).toMatch(/^gpu0\s+X\s+PHB/m);
    writeFileSync(file, "{}");
    expect((await runCli("topo", "--hardware", file)).code).toBe(2);
    expect((await runCli("topo", "--hardware", "no-such-thing")).err).toMatch(/hgx-h100-8/);
  });

  it("refuses to measure what is not this machine", async () => {
    expect((await runCli("topo", "--measure", "--root", root("groq-card"))).code).toBe(2);
    expect((await runCli("topo", "--format", "png")).code).toBe(2);
  });
});

describe("chorale doctor", () => {
  it("exits with 1 on an error and says the mend; a recording says nothing of this machine's libraries", async () => {
    const { code, out } = await runCli("doctor", "--root", root("nvidia-version-mismatch"));
    expect(code).toBe(1);
    expect(out).toMatch(/^error\s+DRIVER_LIBRARY_MISMATCH/m);
    expect(out).not.toMatch(/engines/);
    const well = await runCli("doctor", "--root", root("gaudi2-8"), "--json");
    expect(well.code).toBe(0);
    expect(JSON.parse(well.out)).toMatchObject({ ok: true, findings: [], engines: [] });
  });
});
