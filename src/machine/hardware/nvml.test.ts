import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { CLI_PROCESS } from "../../../test/helpers/cli.ts";
import { compileLibrary, hasCompiler } from "../../../test/support/compile-library.ts";
import { CudaDriver } from "../../foreign/cuda/index.ts";
import { openLibrary } from "../../foreign/native/index.ts";
import { islands } from "../topology/index.ts";
import { detectOn } from "./detect.ts";
import { measureLinks } from "./index.ts";
import { openLive } from "./live-machine.ts";
import { collectNvml, NVML_LIBRARY } from "./nvml.ts";

const MIB = 1024 ** 2;

describe.skipIf(!hasCompiler)("NVML through FFI (needs cc)", () => {
  const path = hasCompiler ? compileLibrary("nvml") : "";
  const spec = { ...NVML_LIBRARY, files: [path], folders: [] };

  it("reads every field, with nvidia-smi's meaning of used memory", async () => {
    const snapshot = await collectNvml(spec);
    if ("available" in snapshot) throw new Error(snapshot.why);
    expect(snapshot).toMatchObject({ driverVersion: "580.159.04", nvmlVersion: "13.580.159.04", cudaVersion: "13.0" });
    expect(snapshot.devices).toHaveLength(4);
    expect(snapshot.problems).toBeUndefined();
    expect(snapshot.devices[1]).toMatchObject({
      index: 1,
      name: "NVIDIA H200",
      uuid: "GPU-00000001-1111-2222-3333-444444444444",
      pciAddress: "0000:02:00.0",
      memoryTotalBytes: 143771 * MIB,
      memoryUsedBytes: 5 * MIB,
      memoryFreeBytes: (143771 - 5 - 612) * MIB,
      computeCapability: "9.0",
      memoryBusWidthBits: 6016,
      temperatureC: 31,
      powerMilliwatts: 75501,
      powerLimitMilliwatts: 700_000,
      utilizationPercent: 10,
      pcieGeneration: 5,
      pcieMaxWidth: 16,
      eccEnabled: true,
      eccCorrected: 0,
      maxMemoryClockMHz: 3201,
      throttleReasons: "0x0000000000000001",
      migEnabled: false,
      processes: [{ pid: 4242, usedBytes: 1024 * MIB }, { pid: 4243 }],
      levels: { 0: 30, 2: 40, 3: 40 },
      peerRead: { 0: 0, 2: 0, 3: 0 },
    });
    expect(snapshot.devices[0]?.links).toHaveLength(18);
    expect(snapshot.devices[0]?.links?.[17]).toEqual({
      link: 17,
      active: true,
      version: 7,
      speedMBps: 26562,
      remote: "switch",
      remotePci: "0000:c1:00.0",
    });
    expect(snapshot.devices[2]?.links?.filter((l) => l.active)).toHaveLength(16);
  });

  it("gives an inventory of four devices on one island, inactive links not counted", async () => {
    const inventory = await detectOn(
      { ...openLive({ exec: false }), nvml: () => collectNvml(spec), env: {} },
      { exec: false },
    );
    const gpus = inventory.devices.filter((d) => d.family === "nvidia-gpu");
    expect(gpus.map((d) => [d.id, d.memoryBytes, d.memoryBandwidthGBps, d.runtimeVersion])).toEqual(
      [0, 1, 2, 3].map((i) => [`gpu${i}`, 143771 * MIB, 4800, "CUDA 13.0"]),
    );
    expect(islands(inventory)).toMatchObject([{ devices: ["gpu0", "gpu1", "gpu2", "gpu3"], kind: "nvlink" }]);
    const pairs = inventory.topology.pairs?.filter((p) => p.b.startsWith("gpu")) ?? [];
    expect(pairs.map((p) => p.relation)).toEqual(["NV18", "NV16", "NV18", "NV16", "NV18", "NV16"]);
    expect(pairs[0]?.bandwidthGBps).toBeCloseTo(18 * 26.562, 6);
    expect(inventory.warnings.map((w) => w.message)).toContain("GPU 2: 2 of 18 NVLinks are inactive");
  });

  it("says what NVML's initialisation failed of", async () => {
    // In a process of its own: the environment of a loaded library is that of its process.
    const script = `import { collectNvml, NVML_LIBRARY } from ${JSON.stringify(new URL("../../../.cache/dev/machine/hardware/nvml.js", import.meta.url).href)};
      console.log(JSON.stringify(await collectNvml({ ...NVML_LIBRARY, files: [${JSON.stringify(path)}], folders: [] })));`;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script], {
      env: { ...process.env, FAKE_NVML_INIT: "18" },
    });
    expect(JSON.parse(stdout)).toMatchObject({
      available: false,
      why: "nvmlInit_v2 returned 18 (driver and library are of different versions)",
    });
  });

  it("gives up on a driver that hangs, and the command ends with its inventory all the same", async () => {
    const begin = performance.now();
    const { stdout } = await promisify(execFile)(process.execPath, [...CLI_PROCESS, "detect", "--json", "--no-exec"], {
      env: { ...process.env, FAKE_NVML_HANG: "1", CHORALE_NVML: path, CHORALE_NVML_TIMEOUT_MS: "300" },
    });
    expect(performance.now() - begin).toBeLessThan(20_000);
    const inventory = JSON.parse(stdout) as { warnings: { source: string; message: string }[] };
    expect(inventory.warnings).toContainEqual(
      expect.objectContaining({ source: "nvml", message: "nvmlInit_v2 did not return within 0.3 s" }),
    );
  });

  it("measures every ordered pair over the driver's copies, and gives everything back", async () => {
    const library = { name: "fake CUDA", files: [compileLibrary("cuda-driver")], requires: ["cuInit"], howToGetIt: "" };
    const inventory = await detectOn(
      { ...openLive({ exec: false }), nvml: () => collectNvml(spec), env: {} },
      { exec: false },
    );
    const progress: number[] = [];
    const opened = openLibrary(library);
    if (!opened.available) throw new Error(opened.why);
    const measured = measureLinks(inventory, {
      driver: new CudaDriver(opened),
      sizeBytes: 400_000_000,
      onProgress: (done) => progress.push(done),
    });
    expect(measured).toHaveLength(12);
    expect(progress).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    expect(opened.bind("fakeLive", "int", [])()).toBe(0);
    // 400 MB at 400 GB/s take 1 ms and 2 us of start: 399.2 GB/s, of links of 478.116 and 424.992.
    expect(measured[0]).toMatchObject({ from: "gpu0", to: "gpu1", peerAccess: true, engine: "write" });
    expect(measured[0]?.bandwidthGBps).toBeCloseTo(399.2, 1);
    expect(measured[0]?.latencyUs).toBeCloseTo(2, 2);
    expect(measured[0]?.fractionOfLink).toBeCloseTo(399.2 / 478.116, 3);
    expect(measured.find((m) => m.to === "gpu2")?.fractionOfLink).toBeCloseTo(399.2 / 424.992, 3);
  });

  it("opens the driver that programs open, and says where it looked when there is none", async () => {
    const dev = (path: string) => JSON.stringify(new URL(`../../../.cache/dev/${path}`, import.meta.url).href);
    const script = `
      import { measureLinks } from ${dev("machine/hardware/index.js")};
      import { loadCudaDriver } from ${dev("runtime/device/index.js")};
      const empty = { schemaVersion: 1, devices: [], topology: { nodes: [], links: [] }, warnings: [] };
      const told = (run) => { try { run(); return "nothing"; } catch (error) { return error.message; } };
      console.log(JSON.stringify([told(() => measureLinks(empty)), loadCudaDriver().why]));`;
    const tell = async (library: string) => {
      const env = { ...process.env, CHORALE_CUDA_LIBRARY: library };
      const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script], { env });
      return JSON.parse(stdout) as [string, string];
    };
    const [measuring, loading] = await tell("/nowhere/libcuda.so.1");
    expect(measuring).toContain(loading);
    expect(loading).toContain("/nowhere/libcuda.so.1: no such file");
  });
});
