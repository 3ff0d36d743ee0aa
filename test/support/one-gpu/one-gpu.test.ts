/**
 * The libraries that show one GPU as several, as far as they can be checked without one: that both have all that chorale calls,
 * and what ranks make of them over the stand-in library's one device, the kernels of the NCCL as threads of the host.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runConformance } from "chorale/conformance";
import { type CudaDevice, CudaModule, openDevice, requireCudaDriver } from "chorale/device";
import { describe, expect, it } from "vitest";
import { CUDA_MAPPING_PROTOTYPES, CUDA_PROTOTYPES } from "../../../src/foreign/cuda/symbols.ts";
import { NCCL_OPTIONAL, NCCL_PROTOTYPES, NCCL_TEXT_PROTOTYPES } from "../../../src/foreign/nccl/symbols.ts";
import { deviceInfo } from "../../../src/runtime/device/internal.ts";
import { failuresOf } from "../../conformance/failures.ts";
import { buildFakeGpu, heldByFakeGpu } from "../../helpers/fake-gpu.ts";
import { scratchFolder } from "../../helpers/scratch.ts";
import { spread } from "../spread.ts";

const here = fileURLToPath(new URL(".", import.meta.url));
const folder = scratchFolder("one-gpu");
const standIn = buildFakeGpu() ?? "";
const hasNvcc = spawnSync("nvcc", ["--version"]).status === 0;
const hasHeaders = existsSync(`${process.env["CUDA_HOME"] ?? "/usr/local/cuda"}/include/cuda_fp8.h`);

function run(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): string {
  const all = { ...process.env, ...env };
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: "utf8", env: all });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${error ?? stderr}${stdout}`);
  return stdout;
}
const namesIn = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, name]) => name ?? "").sort();
const driverNames = namesIn(readFileSync(join(here, "driver.c"), "utf8"), /^int (cu\w+)\(/gm);
const ncclNames = namesIn(readFileSync(join(here, "nccl.cu"), "utf8"), /^API [\w ]+?\*? ?(nccl\w+)\(/gm);

describe("the libraries for one GPU", () => {
  it("have each function of the driver that takes or gives a device, or loads code, and no other", () => {
    const prototypes: Readonly<Record<string, string>> = { ...CUDA_PROTOTYPES, ...CUDA_MAPPING_PROTOTYPES };
    const OF_DEVICES =
      /^cuDevice|^cuCtxEnablePeerAccess$|^cuMemSetAccess$|^cuModule(?:LoadData|Unload)$|\bint (?:device|peer|ordinal)\b/;
    const taking = Object.entries(prototypes).flatMap(([name, prototype]) =>
      OF_DEVICES.test(name) || OF_DEVICES.test(prototype) ? [name] : [],
    );
    expect(driverNames).toEqual(taking.sort());
    expect(driverNames.length).toBeGreaterThan(10);
  });

  it("have every function of NCCL that chorale needs, and a few newer ones", () => {
    const needed = [...Object.keys(NCCL_PROTOTYPES), ...Object.keys(NCCL_TEXT_PROTOTYPES)];
    expect(needed.filter((name) => !ncclNames.includes(name))).toEqual([]);
    const newer = Object.keys(NCCL_OPTIONAL).filter((name) => ncclNames.includes(name));
    expect(newer).toEqual(["ncclCommSplit", "ncclAlltoAll", "ncclGather", "ncclScatter"]);
  });

  // Some seconds of a compiler each: with every fourth seed.
  const chosen = spread(["device", "neither", "host", "neither"], 4);

  it.skipIf(!hasNvcc || !chosen.includes("device"))(
    "compile for a GPU and export that (needs nvcc)",
    { timeout: 120_000 },
    () => {
      run("bash", [join(here, "build.sh"), folder, "sm_90"]);
      const exported = run("nm", ["-D", "--defined-only", join(folder, "libnccl-one-gpu.so")]);
      expect(namesIn(exported, / T (nccl\w+)$/gm)).toEqual(ncclNames);
      expect(run("readelf", ["-d", join(folder, "libcuda-one-gpu.so")])).toContain("[libcuda.so.1]");
    },
  );

  it.skipIf(standIn === "" || !hasHeaders || !chosen.includes("host"))(
    "let ranks share one device, and move and reduce as the reference says (needs g++ and CUDA's headers)",
    { timeout: 300_000 },
    async () => {
      run("bash", [join(here, "build.sh"), folder], { DRIVER: standIn });
      const env = {
        CHORALE_CUDA_LIBRARY: join(folder, "libcuda-one-gpu.so"),
        CHORALE_NCCL_LIBRARY: join(folder, "libnccl-one-gpu.so"),
        FAKE_CUDA_DEVICES: "1",
        ONE_GPU_DEVICES: "3",
      };
      Object.assign(process.env, env);
      const driver = requireCudaDriver();
      const devices = Array.from({ length: driver.numDevices }, (_, ordinal) => deviceInfo(driver, ordinal));
      expect(devices.map(({ name }) => name)).toEqual(Array(3).fill("Fake GPU 0"));
      expect(new Set(devices.map(({ uuid }) => uuid)).size).toBe(3);
      expect(devices.map(({ pciAddress }) => pciAddress)).toEqual(["0000:10:00.0", "0000:10:00.1", "0000:10:00.2"]);
      // A third of the stand-in's 132.
      expect(devices.map(({ numMultiprocessors }) => numMultiprocessors)).toEqual([44, 44, 44]);
      expect(driver.api.cuDeviceGet(new Int32Array(1), 3)).not.toBe(0);

      const data = await runConformance({ backend: "nccl", only: "data", ranks: [2], env, filter: "count=uneven" });
      expect(failuresOf(data)).toEqual([]);
      expect(data.numPassed).toBeGreaterThan(20);
      const behaviour = { only: "behaviour", interleavings: 2, filter: "random", maxRanks: 3 } as const;
      const groups = await runConformance({ backend: "nccl", env, ...behaviour });
      expect(failuresOf(groups)).toEqual([]);
      expect(groups.numPassed).toBeGreaterThan(0);

      // What two ranks load is loaded once: the second would wait for what the first has launched, and that for the second.
      const cubin = Buffer.alloc(96);
      cubin.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
      cubin.writeUInt16LE(190, 18);
      cubin.writeBigUInt64LE(64n, 32);
      cubin.writeUInt16LE(32, 54);
      cubin.writeUInt16LE(1, 56);
      const open = [openDevice(driver, 0), openDevice(driver, 1)];
      for (const device of open) CudaModule.load(device, cubin);
      expect(heldByFakeGpu(standIn).modules).toBe(1);
      const other = CudaModule.load(open[0] as CudaDevice, Buffer.from(cubin).fill(1, 95));
      expect(heldByFakeGpu(standIn).modules).toBe(2);
      other.close();
      for (const device of open) device.close();
      expect(heldByFakeGpu(standIn)).toMatchObject({ modules: 2, violations: 0 });
    },
  );
});
