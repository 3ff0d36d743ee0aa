/**
 * The defects of ai-hwaccel 1.1 to 2.3 in detection, each as a case that it fails. Numbers are those of our list of its
 * defects (docs/parity-hardware.md has them with their sources).
 */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { type Inventory, inventorySchema, islands, presetInventory } from "../topology/index.ts";
import { acceleratorMemory, bestDevice, ingestionSeconds } from "./find-devices.ts";
import { cachedDetector, detect, detectOn, findDevices, openMachine, watch } from "./index.ts";
import type { CommandResult, Machine } from "./machine.ts";

const GiB = 1024 ** 3;
const MiB = 1024 ** 2;
const fixtures = fileURLToPath(new URL("../../../test/fixtures/machines", import.meta.url));
const recorded = (name: string) => detect({ root: join(fixtures, "roots", name) });
const accelerators = (inventory: Inventory) =>
  inventory.devices.filter((d) => d.family !== "cpu" && d.parent === undefined);

/** An empty machine whose tools answer as given. */
async function withTools(
  answers: Readonly<Record<string, string | Partial<CommandResult>>>,
  rest: Partial<Machine> = {},
) {
  const folder = scratchFolder("defect");
  mkdirSync(join(folder, "proc"));
  writeFileSync(join(folder, "proc/meminfo"), "MemTotal: 67108864 kB\n");
  const machine = await openMachine({ root: folder });
  const commands: Machine["commands"] = {
    run: async ({ tool, args }) => {
      const key = Object.keys(answers).find((start) => `${tool} ${args.join(" ")}`.startsWith(start));
      const answer = key === undefined ? undefined : answers[key];
      if (answer === undefined) return undefined;
      const base = { argv: [tool, ...args], exitCode: 0, stdout: "", stderr: "", timedOut: false };
      return typeof answer === "string" ? { ...base, stdout: answer } : { ...base, ...answer };
    },
  };
  return detectOn({ ...machine, commands, ...rest });
}

describe("defects of the ancestor's detection", () => {
  it("9: an NVLink bridge joins two GPUs, not all; a port that is down is no way out", async () => {
    const bridges = await recorded("nvidia-nvml-a40-bridges");
    expect(islands(bridges).map((island) => island.devices)).toEqual([
      ["gpu0", "gpu1"],
      ["gpu2", "gpu3"],
    ]);
    const network = await recorded("network-ib-down-roce");
    const down = network.topology.nodes.find((node) => node.name === "mlx5_1");
    expect(down?.details?.["state"]).toBe("DOWN");
    expect(down?.details?.["rateGbps"]).toBeUndefined();
  });

  it("10: links of two vendors are two fabrics, never one sum", async () => {
    const nvidia = presetInventory("hgx-h100-2");
    const inventory = {
      ...nvidia,
      topology: { ...nvidia.topology, links: [...nvidia.topology.links] },
    };
    expect(new Set(islands(inventory).map((island) => island.kind))).toEqual(new Set(["nvlink"]));
    const mi300 = await recorded("amd-mi300x-8");
    expect(islands(mi300)).toMatchObject([{ kind: "xgmi", bandwidthGBps: 64, devices: { length: 8 } }]);
  });

  it("12: the best device is one with memory and speed, not the highest rank", () => {
    const groq = {
      id: "acc0",
      family: "groq",
      vendor: "Groq",
      name: "GroqChip",
      index: 0,
      visible: true,
      memoryBytes: 230 * MiB,
    } as const;
    const hgx = presetInventory("hgx-h100-8");
    expect(bestDevice({ ...hgx, devices: [groq, ...hgx.devices] })?.id).toBe("gpu0");
  });

  it("13: memory that CPU, GPU and NPU share is counted once", async () => {
    const mac = await recorded("apple-m4-max");
    expect(mac.devices.map((d) => d.memoryBytes)).toEqual([48 * GiB, 48 * GiB, 48 * GiB]);
    expect(acceleratorMemory(mac)).toBe(48 * GiB);
    expect(acceleratorMemory(mac, { includeUnified: false })).toBe(0);
  });

  it("17: neuron-ls is read as it really prints", async () => {
    const trn1 = await recorded("neuron-trn1.32xlarge");
    expect(accelerators(trn1)).toHaveLength(16);
    expect(accelerators(trn1)[0]).toMatchObject({
      name: "AWS Trainium",
      memoryBytes: 32 * GiB,
      details: { numCores: 2 },
    });
  });

  it("17: and where the tool's answer is of no use, the driver's files are read", async () => {
    const folder = scratchFolder("neuron");
    const device = join(folder, "sys/class/neuron_device/neuron0");
    mkdirSync(join(device, "info/architecture"), { recursive: true });
    writeFileSync(join(device, "core_count"), "2\n");
    writeFileSync(join(device, "info/architecture/instance_type"), "Trn1\n");
    mkdirSync(join(folder, "commands"));
    writeFileSync(join(folder, "commands/a.json"), JSON.stringify({ argv: ["neuron-ls", "-j"], stdout: "[]" }));
    expect(accelerators(await detect({ root: folder }))).toMatchObject([{ name: "AWS Trainium", arch: "trn1" }]);
  });

  it("18: xpu-smi's memory is property 16, not the bus width 18, whatever the order of columns", async () => {
    const max = await recorded("intel-max1550-2");
    expect(accelerators(max).map((d) => d.memoryBytes)).toEqual([65536 * MiB, 65537 * MiB]);
  });

  it("19: Vulkan's memory is the device-local heaps of the full output; without it there is none, and no 4 GiB", async () => {
    expect(accelerators(await recorded("vulkan-adreno"))[0]?.memoryBytes).toBe(6 * GiB);
    const summary =
      "GPU0:\n\tvendorID = 0x13b5\n\tdeviceType = PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU\n\tdeviceName = Mali-G715\n";
    const [mali] = accelerators(await withTools({ "vulkaninfo --summary": summary }));
    expect(mali).toMatchObject({ family: "vulkan", name: "Mali-G715", vendor: "Arm" });
    expect(mali?.memoryBytes).toBeUndefined();
  });

  it("20: [N/A] memory keeps the GPU, with the system's memory where it is shared and none where it is not", async () => {
    expect(accelerators(await recorded("nvidia-gb10-na-memory"))[0]).toMatchObject({
      name: "NVIDIA GB10",
      unifiedMemory: true,
      memoryBytes: 125489508 * 1024,
    });
    const row = (name: string) =>
      `0, ${name}, GPU-1, 00000000:01:00.0, [N/A], [N/A], [N/A], 550.54, 30, [N/A], [N/A], 9.0`;
    const discrete = await withTools({
      "nvidia-smi --query-gpu": {
        argv: [
          "nvidia-smi",
          "--query-gpu=index,name,uuid,pci.bus_id,memory.total,memory.used,memory.free,driver_version,temperature.gpu,power.draw,utilization.gpu,compute_cap",
        ],
        stdout: row("NVIDIA H100 80GB HBM3"),
      },
    });
    expect(accelerators(discrete)).toHaveLength(1);
    expect(accelerators(discrete)[0]).not.toHaveProperty("memoryBytes");
    expect(accelerators(discrete)[0]).not.toHaveProperty("unifiedMemory");
  });

  it("21: inactive NVLinks are not counted; NVSwitch, XGMI and ICI are found, at their real rates", async () => {
    const inactive = await recorded("nvidia-a100-pcie-inactive-links");
    expect(inactive.topology.links.find((l) => l.kind === "nvlink")).toMatchObject({ count: 8, bandwidthGBps: 200 });
    expect((await recorded("nvidia-a100-8-nvswitch")).topology.nodes.some((n) => n.kind === "nvswitch")).toBe(true);
    expect(islands(await recorded("amd-two-xgmi-islands")).map((i) => i.devices.length)).toEqual([4, 4]);
    expect(islands(await recorded("tpu-v5p-host"))).toMatchObject([{ kind: "ici", devices: { length: 4 } }]);
  });

  it("22: masks, MIG, UUIDs and ECC are there, and PCIe and NUMA are matched by address, not by position", async () => {
    expect((await recorded("nvidia-l4-4-masked")).devices.filter((d) => !d.visible).map((d) => d.id)).toEqual([
      "gpu1",
      "gpu3",
    ]);
    const mig = (await recorded("nvidia-a100-mig")).devices.filter((d) => d.parent === "gpu0");
    expect(mig.map((d) => [d.memoryBytes, d.uuid?.startsWith("MIG-")])).toEqual([
      [19968 * MiB, true],
      [4864 * MiB, true],
    ]);
    // NUMA nodes stand in the order 3, 3, 1, 1, 7, 7, 5, 5: sorted addresses of the driver's folder would not give that.
    const dgx = await recorded("nvidia-a100-8-nvswitch");
    expect(accelerators(dgx).map((d) => d.numaNode)).toEqual([3, 3, 1, 1, 7, 7, 5, 5]);
  });

  it("23: bandwidth is the part's, not one of its compute capability", async () => {
    const rows = (name: string, capability: string) => ({
      "nvidia-smi --query-gpu": {
        argv: ["nvidia-smi", "--query-gpu=index,name,memory.total,compute_cap"],
        stdout: `0, ${name}, 46068, ${capability}`,
      },
    });
    const bandwidth = async (name: string, capability: string) =>
      accelerators(await withTools(rows(name, capability)))[0]?.memoryBandwidthGBps;
    expect(await bandwidth("NVIDIA H200", "9.0")).toBe(4800);
    expect(await bandwidth("NVIDIA H100 PCIe", "9.0")).toBe(2039);
    expect(await bandwidth("NVIDIA L4", "8.9")).toBe(300);
    expect(await bandwidth("NVIDIA L40S", "8.9")).toBe(864);
    expect(await bandwidth("NVIDIA A10", "8.6")).toBe(600);
    expect(await bandwidth("Tesla T4", "7.5")).toBe(320);
    expect(await bandwidth("NVIDIA GeForce RTX 5090", "12.0")).toBe(1792);
    expect(await bandwidth("NVIDIA B300 SXM6 AC", "10.3")).toBe(8000);
    expect(await bandwidth("NVIDIA GPU of tomorrow", "13.0")).toBeUndefined();
    const mi300 = await recorded("amd-mi300x-8");
    expect(accelerators(mi300)[0]).toMatchObject({
      name: "AMD Instinct MI300X OAM",
      memoryBandwidthGBps: 5300,
      arch: "gfx942",
    });
  });

  it("24: Grace Hopper gets no 480 GiB added", async () => {
    expect(accelerators(await recorded("nvidia-gh200"))[0]?.memoryBytes).toBe(97871 * MiB);
    expect(accelerators(await recorded("nvidia-gh200-na-memory"))[0]?.memoryBytes).toBe(95 * GiB);
  });

  it("25: asking for one family probes all sources of it, and keeps warnings and surroundings", async () => {
    const root = join(fixtures, "roots/intel-lunar-lake-npu");
    const npu = await detect({ root, families: ["intel-npu"] });
    expect(npu.devices.map((d) => d.family)).toEqual(["cpu", "intel-npu"]);
    const mac = await detect({ root: join(fixtures, "roots/apple-m4-max"), families: ["apple-gpu"] });
    expect(mac.devices.some((d) => d.family === "apple-gpu")).toBe(true);
    const nothing = await detect({ root: join(fixtures, "roots/nvidia-no-devices"), families: ["nvidia-gpu"] });
    expect(nothing.warnings).toHaveLength(1);
    expect(nothing.environment).toMatchObject({ platform: "linux" });
  });

  it("26: every card is a device, and /dev/accel* belongs to its driver", async () => {
    expect(accelerators(await recorded("qualcomm-ai100-2"))).toHaveLength(2);
    expect(accelerators(await recorded("graphcore-2"))).toHaveLength(2);
    expect(accelerators(await recorded("accel-of-unknown-driver"))).toEqual([]);
    expect(accelerators(await recorded("intel-lunar-lake-npu")).map((d) => d.family)).toEqual([
      "intel-gpu",
      "intel-npu",
    ]);
    expect(accelerators(await recorded("gaudi1-sysfs")).map((d) => [d.family, d.arch])).toEqual([
      ["gaudi", "gaudi"],
      ["gaudi", "gaudi"],
    ]);
  });

  it("27: a NIC's affinity to each GPU and the width of its slot are known", async () => {
    const dgx = await recorded("nvidia-a100-8-nvswitch");
    const near = dgx.topology.pairs?.filter((p) => p.b === "nic1" && p.relation === "PXB").map((p) => p.a);
    expect(near).toEqual(["gpu2", "gpu3"]);
    expect(dgx.topology.links.find((l) => l.a === "nic1")).toMatchObject({ kind: "pcie", bandwidthGBps: 31.508 });
  });

  it("28: Xen is no AWS, Hyper-V no Azure; podman, cgroups of both versions and their limits are seen", async () => {
    expect((await recorded("xen-is-not-aws")).environment).not.toHaveProperty("cloud");
    expect((await recorded("hyper-v-is-not-azure")).environment).not.toHaveProperty("cloud");
    expect((await recorded("azure")).environment).toMatchObject({ cloud: { provider: "azure" } });
    expect((await recorded("gcp-podman")).environment).toMatchObject({
      container: { runtime: "podman" },
      cloud: { provider: "gcp" },
    });
    expect((await recorded("nvidia-container-limits")).devices[0]?.memoryBytes).toBe(16 * GiB);
    expect((await recorded("slurm-storage-cgroup-v1")).devices[0]?.memoryBytes).toBe(8 * GiB);
  });

  it("29: the published schema fits our own output", async () => {
    const { default: published } = (await import("../../../schemas/inventory.schema.json", {
      with: { type: "json" },
    })) as { default: unknown };
    const { z } = await import("zod");
    expect(published).toMatchObject(JSON.parse(JSON.stringify(z.toJSONSchema(inventorySchema))) as object);
    // Read back from the file, so that it is the published schema that judges.
    const reader = z.fromJSONSchema(published as Parameters<typeof z.fromJSONSchema>[0]);
    for (const name of readdirSync(join(fixtures, "roots"))) {
      const result = reader.safeParse(JSON.parse(JSON.stringify(await recorded(name))));
      expect(result.error?.issues ?? [], name).toEqual([]);
    }
    expect(reader.safeParse({ schemaVersion: 1, devices: [{ id: 7 }] }).success).toBe(false);
  });

  it("30: watching gives deltas, and probes again only what was found", async () => {
    const inventories: Inventory[] = [];
    const asked = new Set<string>();
    let temperature = 40;
    const machine = await openMachine({ root: join(fixtures, "roots/nvidia-l4-4-masked") });
    const argv = ["nvidia-smi", "--query-gpu=index,name,uuid,memory.total,temperature.gpu"];
    const commands: Machine["commands"] = {
      run: async ({ tool, args }) => {
        asked.add(tool);
        if (tool !== "nvidia-smi" || args[0]?.startsWith("--query-gpu") !== true) return undefined;
        return {
          argv,
          exitCode: 0,
          stdout: `0, NVIDIA L4, GPU-1, 23034, ${temperature++}\n`,
          stderr: "",
          timedOut: false,
        };
      },
    };
    const changes: unknown[] = [];
    let after: Set<string> | undefined;
    for await (const { inventory, deltas, sequence } of watch({
      root: join(fixtures, "roots/groq-card"),
      machine: { ...machine, commands, env: {} },
      intervalMs: 50,
    })) {
      inventories.push(inventory);
      changes.push(...deltas);
      if (sequence === 0) {
        expect(asked.has("rocm-smi")).toBe(true);
        asked.clear();
      } else after = new Set(asked);
      if (sequence === 2) break;
    }
    expect(changes).toEqual([
      { id: "gpu0", kind: "changed", temperatureC: 1 },
      { id: "gpu0", kind: "changed", temperatureC: 1 },
    ]);
    expect([...(after ?? [])]).toEqual(["nvidia-smi"]);
  });

  it("a cache answers callers at once with one detection, and forgets when told", async () => {
    const cache = cachedDetector(60_000, { root: join(fixtures, "roots/groq-card") });
    const [a, b] = await Promise.all([cache.get(), cache.get()]);
    expect(a).toBe(b);
    expect(cache.age()).toBeGreaterThanOrEqual(0);
    cache.invalidate();
    expect(await cache.get()).not.toBe(a);
    const failing = cachedDetector(60_000, { root: "/no/such/root" });
    await expect(failing.get()).rejects.toThrow();
    expect(failing.age()).toBeUndefined();
  });

  it("what the ancestor's requirements lacked can be asked: memory, arch, dtype, count, island", async () => {
    const h100 = presetInventory("hgx-h100-8");
    expect(
      findDevices(h100, { count: 4, minMemory: "70G", dtype: "f8e4m3", arch: "8.9", sameIsland: true }),
    ).toHaveLength(4);
    expect(findDevices(h100, { minMemory: "90G" })).toEqual([]);
    expect(findDevices(h100, { count: 9 })).toEqual([]);
    expect(findDevices(h100, { arch: "10.0" })).toEqual([]);
    const islandsOfTwo = await recorded("nvidia-nvml-a40-bridges");
    expect(findDevices(islandsOfTwo, { count: 3, sameIsland: true })).toEqual([]);
    expect(findDevices(islandsOfTwo, { count: 2, sameIsland: true })).toHaveLength(2);
    const mig = await recorded("nvidia-a100-mig");
    expect(findDevices(mig, { includeParts: true }).map((d) => d.id)).toEqual(["gpu0.mig0", "gpu0.mig1"]);
    const masked = await recorded("nvidia-l4-4-masked");
    expect(findDevices(masked).map((d) => d.id)).toEqual(["gpu0", "gpu2"]);
    expect(findDevices(masked, { includeMasked: true })).toHaveLength(4);
    expect(() => findDevices(h100, { count: 0 })).toThrow(/1 or more/);
  });

  it("storage's time to read is that of the fastest link, and unknown where no class is known", async () => {
    const slurm = await recorded("slurm-storage-cgroup-v1");
    // 7.877 GB/s: four lanes of 16 GT/s with 128/130 coding.
    expect(ingestionSeconds(slurm, 140e9)).toBeCloseTo(140 / 7.877, 3);
    expect(ingestionSeconds(await recorded("groq-card"), 1e9)).toBeUndefined();
    expect(() => ingestionSeconds(slurm, -1)).toThrow(/0 or more/);
  });

  it("a partition of an MI300X has its share of the memory, not all of it", async () => {
    const cpx = await recorded("amd-mi300x-cpx");
    expect(accelerators(cpx).map((d) => d.memoryBytes)).toEqual(Array(8).fill(24 * GiB));
  });
});
