/** What trials of version 0.1 found in detection, beside the machines of test/fixtures/machines/trials.mjs. */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { diagnose } from "../../apps/doctor/index.ts";
import { ratesOf } from "../../planner/cost/device-rates.ts";
import type { Device, Inventory } from "../topology/index.ts";
import { acceleratorMemory, bestDevice } from "./find-devices.ts";
import { detect, detectOn, findDevices, openMachine } from "./index.ts";
import type { CommandResult, Machine } from "./machine.ts";

const GiB = 1024 ** 3;
const roots = fileURLToPath(new URL("../../../test/fixtures/machines/roots", import.meta.url));
const recorded = (name: string) => detect({ root: join(roots, name) });
const made: string[] = [];

function emptyRoot(): string {
  const folder = scratchFolder("trial");
  made.push(folder);
  mkdirSync(join(folder, "proc"));
  writeFileSync(join(folder, "proc/meminfo"), "MemTotal: 67108864 kB\n");
  return folder;
}

afterEach(() => {
  for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** An empty machine whose tools answer as given, after a delay. */
async function withTools(answers: Readonly<Record<string, string | Partial<CommandResult>>>, delayMs = () => 0) {
  const machine = await openMachine({ root: emptyRoot() });
  const commands: Machine["commands"] = {
    run: async ({ tool, args }) => {
      await new Promise((resolve) => setTimeout(resolve, delayMs()));
      const key = Object.keys(answers).find((start) => `${tool} ${args.join(" ")}`.startsWith(start));
      const answer = key === undefined ? undefined : answers[key];
      if (answer === undefined) return undefined;
      const base = { argv: [tool, ...args], exitCode: 0, stdout: "", stderr: "", timedOut: false };
      return typeof answer === "string" ? { ...base, stdout: answer } : { ...base, ...answer };
    },
  };
  return { ...machine, commands };
}

async function findingsOf(name: string) {
  const options = { root: join(roots, name) };
  const machine = await openMachine(options);
  return diagnose(await detectOn(machine, options), machine);
}

const gpu = (i: number, rest: Partial<Device> = {}): Device => ({
  id: `gpu${i}`,
  family: "nvidia-gpu",
  vendor: "NVIDIA",
  name: "NVIDIA A100-SXM4-80GB",
  index: i,
  memoryBytes: 80 * GiB,
  visible: true,
  ...rest,
});
const inventoryOf = (devices: Device[]): Inventory => ({
  schemaVersion: 1,
  devices,
  topology: { nodes: [], links: [] },
  warnings: [],
});

describe("point 12: shared memory", () => {
  it("takes the GPU of an APU before its NPU, with what it may map of main memory", async () => {
    expect(bestDevice(await recorded("amd-strix-halo"))).toMatchObject({ id: "gpu0", memoryBytes: 62.5 * GiB });
  });

  it("has no slot to blame on a superchip", async () => {
    const findings = await findingsOf("nvidia-gh200-hbm-node");
    expect(findings.map((finding) => finding.code)).not.toContain("PCIE_NARROW");
  });
});

describe("point 15: a sick GPU costs its own answers only", () => {
  it("doctor names the corrupted infoROM", async () => {
    expect(await findingsOf("nvidia-inforom-corrupt")).toMatchObject([
      { code: "INFOROM_CORRUPT", severity: "warning" },
    ]);
  });

  it("doctor names the lost GPU, and reads the log though nothing else is listed", async () => {
    const findings = await findingsOf("nvidia-lost-gpu");
    expect(findings).toContainEqual(expect.objectContaining({ code: "GPU_LOST", severity: "error" }));
    const machine = await openMachine({ root: join(roots, "nvidia-lost-gpu") });
    const dmesg = { argv: ["dmesg"], exitCode: 0, stderr: "", timedOut: false };
    const log = "NVRM: Xid (PCI:0000:65:00): 79, pid=0\nNVRM: Xid (PCI:0000:65:00): 149, NETIR\n";
    const commands: Machine["commands"] = {
      run: async ({ tool }) => (tool === "dmesg" ? { ...dmesg, stdout: log } : undefined),
    };
    const none = { ...machine, commands };
    const found = await diagnose(await detectOn(none), none);
    expect(found).toContainEqual(
      expect.objectContaining({
        code: "XID_ERRORS",
        severity: "error",
        message: expect.stringMatching(/79 .*149 \(NVLink/),
      }),
    );
  });

  it("doctor says that a fabric which is not ready is the cause", async () => {
    const codes = (await findingsOf("nvidia-b200-fabric-down")).map((finding) => finding.code);
    expect(codes).toContain("LINKS_DOWN");
  });
});

describe("point 17: the fabric's state", () => {
  it.each([
    [{ state: 0, status: 3 }, []],
    [{ state: 3, status: 0 }, []],
    [{ state: 3, status: 999 }, ['GPU 0: its NVLink fabric is not ready; its state is "Completed, NVML status 999"']],
    [{ state: 2, status: 0 }, ['GPU 0: its NVLink fabric is not ready; its state is "In Progress"']],
  ])("NVML's %j", async (fabric, messages) => {
    const machine = await openMachine({ root: emptyRoot() });
    const nvml = async () => ({ devices: [{ index: 0, name: "NVIDIA H100 80GB HBM3", fabric }] });
    expect((await detectOn({ ...machine, nvml })).warnings.map(({ message }) => message)).toEqual(messages);
  });
});

describe("point 16: what a process can use", () => {
  const split = inventoryOf([
    gpu(0, { details: { migEnabled: true } }),
    gpu(1, { details: { migEnabled: true } }),
    { ...gpu(0), id: "gpu0.mig0", parent: "gpu0", memoryBytes: 20 * GiB },
  ]);

  it("never gives a GPU whole whose MIG mode is on", () => {
    expect(findDevices(split, { minMemory: "40G" })).toEqual([]);
    expect(findDevices(split, { includeParts: true }).map((d) => d.id)).toEqual(["gpu0.mig0"]);
    expect(bestDevice(split)?.id).toBe("gpu0.mig0");
    expect(acceleratorMemory(split)).toBe(20 * GiB);
  });

  it("rates a container's CPU by its quota, and integrated graphics not as a data-centre GPU", async () => {
    const [cpu] = (await recorded("containerd-arm-2-sockets")).devices;
    const whole = { ...(cpu as Device), details: { cores: 8 } };
    expect(ratesOf(cpu as Device, "f32").flops / ratesOf(whole, "f32").flops).toBeCloseTo(6.5 / 8, 6);
    const intel = (rest: Partial<Device>) => ratesOf(gpu(0, { family: "intel-gpu", vendor: "Intel", ...rest }), "bf16");
    expect(intel({ name: "Intel Iris Xe", unifiedMemory: true }).bandwidth).toBeLessThan(intel({}).bandwidth / 4);
  });
});

describe("point 17: rows and crowds", () => {
  const columns = "index,name,uuid,memory.total,compute_cap";
  const table = (stdout: string) => ({
    "nvidia-smi --query-gpu": { argv: ["nvidia-smi", `--query-gpu=${columns}`], stdout },
  });

  it("refuses a row with a cell too many, and keeps the others", async () => {
    const found = await detectOn(
      await withTools(table("0, NVIDIA L4, GPU-1, 23034, 8.9\n1, NVIDIA, L4, GPU-2, 23034, 8.9\n")),
    );
    expect(found.devices.map((d) => d.id)).toEqual(["cpu0", "gpu0"]);
    expect(found.warnings).toMatchObject([{ message: "a row cannot be read: 1, NVIDIA, L4, GPU-2, 23034, 8.9" }]);
  });

  it("finds a GPU behind four thousand virtual network functions", async () => {
    const root = emptyRoot();
    const put = (address: string, files: Readonly<Record<string, string>>) => {
      mkdirSync(join(root, "sys/bus/pci/devices", address), { recursive: true });
      for (const [name, text] of Object.entries(files))
        writeFileSync(join(root, "sys/bus/pci/devices", address, name), text);
    };
    // As in sysfs, where each is a link to its device; one device for all of them is made and removed much faster.
    const virtual = join(root, "sys/devices/virtual-function");
    mkdirSync(virtual, { recursive: true });
    writeFileSync(join(virtual, "class"), "0x020000\n");
    mkdirSync(join(root, "sys/bus/pci/devices"), { recursive: true });
    for (let i = 0; i < 4200; i++) {
      const hex = i.toString(16).padStart(4, "0");
      const slot = (Number.parseInt(hex.slice(2), 16) >> 3).toString(16).padStart(2, "0");
      symlinkSync(virtual, join(root, "sys/bus/pci/devices", `0000:${hex.slice(0, 2)}:${slot}.${i & 7}`));
    }
    put("0001:01:00.0", { class: "0x030200\n", vendor: "0x10de\n", device: "0x2330\n" });
    const { warnings } = await detect({ root });
    expect(warnings).toMatchObject([{ message: expect.stringMatching(/^1 NVIDIA GPU is on the PCI bus/) }]);
  });
});

describe("point 18: order, roots and tools", () => {
  it("gives the same document run to run, whichever tool answers first", async () => {
    const answers = {
      "nvidia-smi": { exitCode: 9, stdout: "", stderr: "failed" },
      "rocm-smi": { exitCode: 1, stderr: "no" },
      "amd-smi": { exitCode: 1, stderr: "no" },
      "xpu-smi": { exitCode: 1, stderr: "no" },
      "hl-smi": { exitCode: 1, stderr: "no" },
    };
    const runs = await Promise.all(
      [3, 7, 11].map(async (step) => {
        let call = 0;
        return detectOn(await withTools(answers, () => ((++call * step) % 13) * 2));
      }),
    );
    expect(runs[0]?.warnings.length).toBeGreaterThan(3);
    expect(runs[1]).toEqual(runs[0]);
    expect(runs[2]).toEqual(runs[0]);
  });

  it.runIf(process.platform === "linux")("follows no link out of the root for NUMA nodes and NICs", async () => {
    const root = emptyRoot();
    mkdirSync(join(root, "sys/devices/system/node"), { recursive: true });
    mkdirSync(join(root, "sys/class/net"), { recursive: true });
    mkdirSync(join(root, "sys/class/infiniband"), { recursive: true });
    symlinkSync("/sys/devices/system/node/node0", join(root, "sys/devices/system/node/node0"));
    symlinkSync("/sys/class/net/eth0", join(root, "sys/class/net/eth0"));
    symlinkSync("/proc", join(root, "sys/class/infiniband/mlx5_0"));
    const { devices, topology, warnings } = await detect({ root });
    expect(devices[0]?.details?.["numaNodes"]).toBeUndefined();
    expect(topology.nodes.filter((node) => node.kind === "nic")).toEqual([]);
    expect(warnings.map((warning) => warning.message)).toContain(
      "/sys/class/infiniband/mlx5_0 leads out of the root; refused",
    );
  });

  it.runIf(process.platform === "linux")("refuses tools that are links out of their folder", async () => {
    const root = emptyRoot();
    const tools = scratchFolder("tools");
    made.push(tools);
    symlinkSync("/bin/true", join(tools, "nvidia-smi"));
    const { warnings } = await detect({ root, tools });
    expect(warnings).toMatchObject([{ source: "tools", message: expect.stringMatching(/nvidia-smi leads out/) }]);
  });

  it("refuses a folder of tools that is none", async () => {
    const root = emptyRoot();
    await expect(detect({ root, tools: join(root, "proc/meminfo") })).rejects.toThrow(/--tools.*a folder that exists/);
    await expect(detect({ root, tools: join(root, "nowhere") })).rejects.toThrow(/--tools.*a folder that exists/);
  });

  it.runIf(process.platform === "linux")("takes the root of the file system for a root", async () => {
    const [here, below] = [await detect({ exec: false, families: ["cpu"] }), await detect({ root: "/", exec: false })];
    expect(below.devices[0]?.memoryBytes).toBe(here.devices[0]?.memoryBytes);
    expect(below.warnings.filter(({ source }) => source === "files")).toEqual([]);
  });

  it.runIf(process.platform === "linux")("says which files of a recording cannot be read", async () => {
    const root = emptyRoot();
    mkdirSync(join(root, "env.json"));
    writeFileSync(join(root, "nvml.json"), "{");
    const { warnings } = await detect({ root });
    expect(warnings.map(({ message }) => message)).toEqual(
      expect.arrayContaining(["env.json cannot be read as a regular file; ignored", "nvml.json is not JSON; ignored"]),
    );
  });

  it("tells a tool that printed too much from one that hangs", async () => {
    const machine = await withTools({ "xpu-smi discovery": { exitCode: null, truncated: true } });
    const [finding] = await diagnose(await detectOn(machine), machine);
    expect(finding).toMatchObject({ code: "TOOL_TROUBLE", mend: expect.not.stringMatching(/reset|reboot/) });
  });

  it("says how many GPUs are on the bus where none can be read", async () => {
    const root = emptyRoot();
    for (const i of [1, 2]) {
      mkdirSync(join(root, `sys/bus/pci/devices/0000:0${i}:00.0`), { recursive: true });
      writeFileSync(join(root, `sys/bus/pci/devices/0000:0${i}:00.0/class`), "0x030200\n");
      writeFileSync(join(root, `sys/bus/pci/devices/0000:0${i}:00.0/vendor`), "0x10de\n");
    }
    mkdirSync(join(root, "commands"));
    writeFileSync(
      join(root, "commands/a.json"),
      JSON.stringify({
        argv: ["nvidia-smi", "--query-gpu=index,name"],
        exitCode: 4,
        stderr: "Insufficient Permissions",
      }),
    );
    expect((await detect({ root })).warnings.map((warning) => warning.message)).toContainEqual(
      expect.stringMatching(/^2 NVIDIA GPUs are on the PCI bus .* none of them could be read$/),
    );
  });
});
