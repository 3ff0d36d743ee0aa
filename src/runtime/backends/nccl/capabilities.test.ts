/** Capabilities by version, symbols and architecture: of libraries as releases had them, and of the stand-in's variants. */

import { describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { NCCL_OPTIONAL, type NcclOptionalSymbol } from "../../../foreign/nccl/index.ts";
import type { CudaDeviceInfo } from "../../device/device.ts";
import { type NcclFacts, ncclCapabilities } from "./capabilities.ts";

const available = useFakeGpu();

const device = (major: number): CudaDeviceInfo => ({
  ordinal: 0,
  name: "GPU",
  uuid: "GPU-0",
  pciAddress: "0000:00:00.0",
  memoryBytes: 1,
  computeCapability: [major, 0],
  numMultiprocessors: 1,
});

/** The optional functions of each release, as its nccl.h has them. */
const RELEASES: readonly (readonly [code: number, version: string, adds: readonly NcclOptionalSymbol[]])[] = [
  [21403, "2.14.3", []],
  [21805, "2.18.5", ["ncclCommSplit"]],
  [21903, "2.19.3", ["ncclMemAlloc", "ncclMemFree", "ncclCommRegister", "ncclCommDeregister"]],
  [22200, "2.22.0", []],
  [22403, "2.24.3", []],
  [22707, "2.27.7", ["ncclCommShrink", "ncclCommWindowRegister", "ncclCommWindowDeregister"]],
  [22803, "2.28.3", ["ncclAlltoAll", "ncclGather", "ncclScatter"]],
  [22807, "2.28.7", ["ncclCommRevoke"]],
  [22902, "2.29.2", ["ncclCommGrow"]],
];

function release(code: number): NcclFacts {
  const known = RELEASES.filter(([other]) => other <= code);
  const symbols = known.flatMap(([, , adds]) => adds);
  return {
    path: "libnccl.so.2",
    version: known.at(-1)?.[1] ?? "",
    versionCode: code,
    optional: Object.fromEntries(symbols.map((symbol) => [symbol, () => 0])),
  };
}

describe("NCCL's capabilities", () => {
  it("come with the release that brought each", () => {
    const features = (code: number, major = 9) =>
      Object.entries(ncclCapabilities(release(code), device(major)).features)
        .filter(([name, value]) => value === true && !name.startsWith("nccl") && name !== "nvlsPossible")
        .map(([name]) => name)
        .sort();
    const always = ["graphs", "mixedInPlace", "nonBlocking", "preMulSum"];
    const since: readonly (readonly [number, readonly string[]])[] = [
      [21403, []],
      [21805, ["nativeSplit"]],
      [21903, ["memAlloc", "registration"]],
      [22200, ["groupedAbort"]],
      [22403, ["fp8"]],
      [22707, ["nativeShrink", "symmetricWindows"]],
      [22803, ["nativeAllToAll", "nativeGatherScatter"]],
      [22807, ["revoke"]],
      [22902, ["grow"]],
    ];
    const expected = [...always];
    for (const [code, adds] of since) {
      expected.push(...adds);
      expect(features(code), String(code)).toEqual([...expected].sort());
    }
    // What was compiled without a function has not got it, whatever its version says.
    const { ncclCommSplit: _, ...optional } = release(22902).optional;
    expect(ncclCapabilities({ ...release(22902), optional }, device(9)).features).toMatchObject({ nativeSplit: false });
    expect(Object.keys(release(22902).optional).sort()).toEqual(Object.keys(NCCL_OPTIONAL).sort());
  });

  it("have fp8 from 2.24 on Hopper and newer only", () => {
    const dtypes = (code: number, major: number) => ncclCapabilities(release(code), device(major)).dtypes.length;
    expect([dtypes(22403, 9), dtypes(22403, 8), dtypes(22304, 9), dtypes(22403, 10)]).toEqual([12, 10, 10, 12]);
  });

  it.skipIf(!available).each([
    ["old", "21905", { fp8: false, nativeAllToAll: false, revoke: false, registration: true }],
    ["usual", "22803", { fp8: true, nativeAllToAll: true, revoke: false, grow: false }],
    ["new", "22902", { fp8: true, nativeAllToAll: true, revoke: true, grow: false }],
  ] as const)("of a world on the %s library, version %s (needs a C++ compiler)", async (nccl, version, features) => {
    const devices = fakeGpuFolder();
    const [found] = await launch({
      ranks: 1,
      backend: "nccl",
      isolation: "process",
      env: {
        CHORALE_NCCL_LIBRARY: buildFakeGpu({ nccl }) ?? "",
        CHORALE_CUDA_LIBRARY: buildFakeGpu({ nccl }) ?? "",
        FAKE_NCCL_VERSION: version,
        FAKE_GPU_FOLDER: devices.path,
      },
      run: async (world) => {
        // Composed or native: it works.
        const x = Float32Array.of(3);
        const y = await world.comm.allToAll(x);
        return { capabilities: world.comm.capabilities(), y: [...(y.data as Float32Array)] };
      },
    });
    devices.remove();
    expect(found?.capabilities.features).toMatchObject(features);
    expect(found?.capabilities.engineVersion?.replaceAll(".", "")).toBe(
      String(Number(version.slice(0, 1)) * 1) + String(Number(version.slice(1, 3))) + String(Number(version.slice(3))),
    );
    expect(found?.capabilities.dtypes.includes("f8e4m3")).toBe(features.fp8);
    expect(found?.y).toEqual([3]);
  });
});
