/** Options of backends: refused by name where wrong, and those of NCCL at work over the stand-in. */
import { describe, expect, expectTypeOf, it } from "vitest";
import { useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { type NcclOptions, ncclAttachOptions } from "../backends/nccl/nccl-kind.ts";
import { checkBackendOptions } from "../comm/index.ts";
import { type BackendOptionsOf, backendKind, LAUNCH_BACKENDS, parseBackendOptions } from "./backend-table.ts";
import { launch } from "./launch.ts";

const available = useFakeGpu();
const id = new Uint8Array(128).fill(1);

describe("the table of backends", () => {
  it("gives the kind of each name", async () => {
    expect(LAUNCH_BACKENDS).toContain("threads");
    for (const name of LAUNCH_BACKENDS) expect((await backendKind(name)).name).toBe(name);
  });

  it("refuses a name that it does not have", async () => {
    for (const name of ["quantum", "toString"]) {
      await expect(backendKind(name as never)).rejects.toThrow(
        `backend is "${name}"; expected one of threads, shm, tcp`,
      );
    }
  });
});

describe("options of a backend", () => {
  it("are sizes where they count bytes, and the world says what it has", async () => {
    const backendOptions = parseBackendOptions(["memoryLimitBytes=1.5M", "timeoutMs=1000"]);
    expect(backendOptions).toEqual({ memoryLimitBytes: 1_572_864, timeoutMs: 1000 });
    expect(() => parseBackendOptions(["memoryLimitBytes=much"])).toThrow(/memoryLimitBytes.*much.*4K, 1.5M or 2G/);
    const limits = await launch({
      ranks: 1,
      backendOptions,
      run: (world) => world.capabilities().features["memoryLimitBytes"],
    });
    expect(limits).toEqual([1_572_864]);
  });

  it("are refused by name, with what the backend knows", async () => {
    const wrong: readonly (readonly ["threads" | "nccl", object, RegExp])[] = [
      ["threads", { devices: [0] }, /"devices"; expected one of memoryLimitBytes, timeoutMs, strictWork, cores/],
      ["threads", { toString: 1 }, /expected one of memoryLimitBytes/],
      ["nccl", { cores: 2 }, /"cores"; expected one of devices, timeoutMs, .*, which the nccl backend knows/],
      ["nccl", { devices: [0, 0] }, /devices.*distinct CUDA ordinals/],
      ["nccl", { devices: [0] }, /at least 2 devices, one for each rank/],
      ["nccl", { devices: [0, -1] }, /distinct CUDA ordinals/],
      ["nccl", { blocking: "no" }, /blocking.*true or false/],
      ["nccl", { uniqueId: new Uint8Array(127) }, /128 bytes/],
      ["nccl", { timeoutMs: 0 }, /timeoutMs.*above 0/],
      ["nccl", { memoryLimitBytes: 1.5 }, /memoryLimitBytes.*integer/],
    ];
    for (const [backend, options, words] of wrong) {
      const kind = await backendKind(backend);
      expect(() => checkBackendOptions(kind, options, 2), JSON.stringify(options)).toThrow(words);
    }
    checkBackendOptions(
      await backendKind("nccl"),
      { devices: [3, 1], uniqueId: id, config: { maxCtas: 4 }, blocking: false },
      2,
    );
    const misled = launch({ ranks: 2, backendOptions: { devices: [0, 1] }, run: () => 0 });
    await expect(misled).rejects.toThrow(/which the threads backend knows/);
    // @ts-expect-error: the threads backend has no devices.
    launch({ ranks: 2, backend: "threads", backendOptions: { devices: [0] }, run: () => 0 }).catch(() => {});
    expectTypeOf<BackendOptionsOf["threads"]>().not.toHaveProperty("devices");
  });

  it("reach a rank: its own device, and a unique id only in the first generation", () => {
    const options: NcclOptions = { devices: [3, 1], uniqueId: id, registerBuffers: true };
    expect(ncclAttachOptions(options, 1, 1)).toEqual({ device: 1, peers: [3, 1], uniqueId: id, registerBuffers: true });
    expect(ncclAttachOptions(options, 0, 2)).toEqual({ device: 3, peers: [3, 1], registerBuffers: true });
    expect(ncclAttachOptions({}, 0, 1)).toEqual({});
  });

  it("are read from words", () => {
    expect(parseBackendOptions(["devices=[0,2]", "blocking=false", "x=a=b"])).toEqual({
      devices: [0, 2],
      blocking: false,
      x: "a=b",
    });
    expect(() => parseBackendOptions(["devices"])).toThrow(/KEY=VALUE/);
    expect(() => parseBackendOptions(["=1"])).toThrow(/KEY=VALUE/);
  });
});

describe.skipIf(!available)("options of the nccl backend (needs a C++ compiler)", () => {
  it("choose devices, limit memory, register buffers", async () => {
    const results = await launch({
      ranks: 2,
      backend: "nccl",
      backendOptions: { devices: [5, 2], memoryLimitBytes: 8 * 2 ** 20, registerBuffers: true, config: { maxCtas: 8 } },
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const x = world.tensor("f32", [4]);
        world.upload(x, new Float32Array(4).fill(world.rank + 1));
        await world.comm.allReduce(x);
        // Between two devices that are not the ranks' numbers.
        if (world.rank === 0) await world.comm.send(x, 1);
        else await world.comm.recv(x, 0);
        const beyond = (() => {
          try {
            world.tensor("u8", [64 * 2 ** 20]);
            return "given";
          } catch (error) {
            return String(error);
          }
        })();
        return { ordinal: deviceOf(world)?.device.ordinal, x: [...world.download(x)], beyond };
      },
    });
    expect(results.map(({ ordinal }) => ordinal)).toEqual([5, 2]);
    for (const { x, beyond } of results) {
      expect(x).toEqual([3, 3, 3, 3]);
      expect(beyond).toMatch(/limit 8388608/);
    }
  });

  it("refuse what this NCCL cannot do together", async () => {
    const world = launch({
      ranks: 1,
      backend: "nccl",
      backendOptions: { registerBuffers: true, blocking: false },
      run: () => 0,
      onOutput: () => {},
    });
    await expect(world).rejects.toThrow(/registerBuffers.*non-blocking/);
  });
});
