/**
 * The libraries that show one GPU as several, as far as they can be checked without one: the driver over the stand-in library,
 * the kernels of the NCCL on the host, and that both have all that chorale calls.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { requireCudaDriver } from "chorale/device";
import { launch } from "chorale/world";
import { describe, expect, it } from "vitest";
import { CUDA_MAPPING_PROTOTYPES, CUDA_PROTOTYPES } from "../../../src/foreign/cuda/symbols.ts";
import { NCCL_OPTIONAL, NCCL_PROTOTYPES, NCCL_TEXT_PROTOTYPES } from "../../../src/foreign/nccl/symbols.ts";
import { deviceInfo } from "../../../src/runtime/device/internal.ts";
import { buildFakeGpu } from "../../helpers/fake-gpu.ts";
import { scratchFolder } from "../../helpers/scratch.ts";
import { spread } from "../spread.ts";

const here = fileURLToPath(new URL(".", import.meta.url));
const folder = scratchFolder("one-gpu");
const fake = buildFakeGpu();
const CUDA_HEADERS = "/usr/local/cuda/include";

function run(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: "utf8",
    env: { ...process.env, ...env },
  });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${error ?? stderr}${stdout}`);
  return stdout;
}
const has = (command: string) => spawnSync(command, ["--version"]).status === 0;
const definedIn = (file: string, pattern: RegExp) =>
  [...readFileSync(join(here, file), "utf8").matchAll(pattern)].map(([, name]) => name ?? "").sort();

describe("the driver for one GPU", () => {
  const defined = definedIn("driver.c", /^int (cu\w+)\(/gm);

  it("has each function of the driver that takes or gives a device, and no other", () => {
    const prototypes: Readonly<Record<string, string>> = { ...CUDA_PROTOTYPES, ...CUDA_MAPPING_PROTOTYPES };
    const OF_DEVICES = /^cuDevice|^cuCtxEnablePeerAccess$|^cuMemSetAccess$|\bint (?:device|peer|ordinal)\b/;
    const taking = Object.entries(prototypes).flatMap(([name, prototype]) =>
      OF_DEVICES.test(name) || OF_DEVICES.test(prototype) ? [name] : [],
    );
    expect(defined).toEqual(taking.sort());
    expect(defined.length).toBeGreaterThan(10);
  });

  it.skipIf(fake === undefined)("shows one device as several that reach each other (needs g++)", async () => {
    run("bash", [join(here, "build.sh"), folder], { DRIVER: fake ?? "" });
    Object.assign(process.env, {
      CHORALE_CUDA_LIBRARY: join(folder, "libcuda-one-gpu.so"),
      CHORALE_NCCL_LIBRARY: fake,
      FAKE_CUDA_DEVICES: "1",
      ONE_GPU_DEVICES: "3",
    });
    const driver = requireCudaDriver();
    const devices = Array.from({ length: driver.numDevices }, (_, ordinal) => deviceInfo(driver, ordinal));
    expect(devices.map(({ name }) => name)).toEqual(Array(3).fill("Fake GPU 0"));
    expect(new Set(devices.map(({ uuid }) => uuid)).size).toBe(3);
    expect(devices.map(({ pciAddress }) => pciAddress)).toEqual(["0000:10:00.0", "0000:10:00.1", "0000:10:00.2"]);
    // A third of the stand-in's 132.
    expect(devices.map(({ numMultiprocessors }) => numMultiprocessors)).toEqual([44, 44, 44]);
    expect(driver.api.cuDeviceGet(new Int32Array(1), 3)).not.toBe(0);
    const sums = await launch({
      ranks: 3,
      backend: "nccl",
      run: async (world) => {
        const x = world.tensor("i32", [2]);
        world.upload(x, Int32Array.of(world.rank, 10));
        await world.comm.allReduce(x);
        return [...(world.download(x) as Int32Array)];
      },
    });
    expect(sums).toEqual(Array(3).fill([3, 30]));
  });
});

describe("the NCCL for one GPU", () => {
  const defined = definedIn("nccl.cu", /^API [\w ]+?\*? ?(nccl\w+)\(/gm);

  it("has every function that chorale needs, and the newer ones that it says it has", () => {
    const needed = [...Object.keys(NCCL_PROTOTYPES), ...Object.keys(NCCL_TEXT_PROTOTYPES)];
    expect(needed.filter((name) => !defined.includes(name))).toEqual([]);
    expect(Object.keys(NCCL_OPTIONAL).filter((name) => defined.includes(name))).toEqual([
      "ncclCommSplit",
      "ncclAlltoAll",
      "ncclGather",
      "ncclScatter",
    ]);
  });

  // Each takes some seconds of a compiler.
  const chosen = spread(["nvcc", "host"], 2);

  it.skipIf(!has("nvcc") || !chosen.includes("nvcc"))(
    "compiles and exports them (needs nvcc)",
    { timeout: 120_000 },
    () => {
      run("bash", [join(here, "build.sh"), join(folder, "real"), "sm_90"]);
      const exported = run("nm", ["-D", "--defined-only", join(folder, "real/libnccl-one-gpu.so")]);
      expect(definedIn("nccl.cu", /^API [\w ]+?\*? ?(nccl\w+)\(/gm)).toEqual(
        [...exported.matchAll(/ T (nccl\w+)$/gm)].map(([, name]) => name).sort(),
      );
      expect(run("readelf", ["-d", join(folder, "real/libcuda-one-gpu.so")])).toContain("[libcuda.so.1]");
    },
  );

  const cannot = spawnSync("test", ["-e", join(CUDA_HEADERS, "cuda_fp8.h")]).status !== 0 || !has("g++");
  it.skipIf(cannot || !chosen.includes("host"))(
    "computes every operation, moves messages and ends when it is aborted, its blocks as threads (needs g++ and CUDA's headers)",
    { timeout: 120_000 },
    () => {
      const program = join(folder, "check-kernels");
      const flags = ["-std=c++17", "-O1", "-w", `-I${CUDA_HEADERS}`, "-o", program];
      run("g++", [...flags, join(here, "check-kernels.cpp"), "-lpthread"]);
      expect(run(program, [])).toMatch(/^\d{7,} compared, 0 wrong\n$/);
    },
  );
});
