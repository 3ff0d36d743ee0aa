/** Kernels' arguments: checked against a kernel's parameters, and laid out as their types say. */
import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import {
  CudaModule,
  CudaStream,
  devicePtr,
  deviceTensor,
  KernelArguments,
  MemoryPool,
  openDevice,
  PinnedBuffer,
  requireCudaDriver,
} from "./index.ts";

const available = useFakeGpu();
const SHAPE = { grid: [1], block: [1] } as const;

describe.skipIf(!available)("arguments of kernels (needs a C++ compiler)", () => {
  function setup() {
    const device = openDevice(requireCudaDriver(), 0);
    return { device, stream: CudaStream.create(device), close: () => device.close() };
  }

  it("checks a kernel's arguments against its parameters, and their values against their types", () => {
    const { device, stream, close } = setup();
    const pool = new MemoryPool(device);
    const x = deviceTensor(pool, stream, "u32", [1]);
    // Parameters of 8 and 4 bytes.
    const kernel = CudaModule.load(device, ".version 8.0 // fake image").kernel("store");
    const address = { type: "u64", value: devicePtr(x, device) } as const;
    const seven = { type: "u32", value: 7 } as const;
    kernel.launch(stream, SHAPE, new KernelArguments(device, [address, seven]));
    const pinned = PinnedBuffer.create(device, 4);
    device.call("cuMemcpyDtoHAsync_v2", "copy", pinned.address, address.value, 4, stream.handle);
    stream.synchronize();
    expect(new Uint32Array(pinned.buffer, 0, 1)[0]).toBe(7);
    const launch = (...args: readonly unknown[]) =>
      kernel.launch(stream, SHAPE, new KernelArguments(device, args as []));
    expect(() => launch(address)).toThrow(/1 arguments"?; expected 2, as kernel store has parameters/);
    expect(() => launch()).toThrow(/0 arguments/);
    expect(() => launch(address, seven, seven)).toThrow(/3 arguments/);
    expect(() => launch(address, { type: "f64", value: 1 })).toThrow(/args\[1\] is .*8 bytes.*4 bytes, as parameter 1/);
    expect(() => launch(seven, seven)).toThrow(/args\[0\].*4 bytes.*8 bytes/);
    for (const argument of [
      { type: "i32", value: 2 ** 31 },
      { type: "i32", value: 2 ** 40 },
      { type: "i32", value: -(2 ** 31) - 1 },
      { type: "i32", value: 0.5 },
      { type: "u32", value: -1 },
      { type: "u32", value: 2 ** 32 },
      { type: "u32", value: Number.NaN },
      { type: "u64", value: -1n },
      { type: "u64", value: 2n ** 64n },
      { type: "i64", value: 2n ** 63n },
      { type: "f16", value: 1 },
      { type: "toString", value: 1 },
    ]) {
      expect(() => launch(argument)).toThrow(InvalidArgumentError);
    }
    // The least and the largest values are taken.
    const all = [
      { type: "i32", value: 2 ** 31 - 1 },
      { type: "i32", value: -(2 ** 31) },
      { type: "u64", value: 2n ** 64n - 1n },
      { type: "i64", value: -(2n ** 63n) },
      { type: "f64", value: Number.MAX_VALUE },
      { type: "f32", value: Number.NaN },
    ] as const;
    expect([...new KernelArguments(device, all).sizes]).toEqual([4, 4, 8, 8, 8, 4]);
    close();
  });

  it("lays each argument out as its type says, and refuses what is none", () => {
    const { device, stream, close } = setup();
    const args = new KernelArguments(device, [
      { type: "f64", value: 1 },
      { type: "f32", value: 1 },
      { type: "i32", value: -2 },
      { type: "u32", value: 2 ** 32 - 1 },
      { type: "i64", value: -2n },
      { type: "u64", value: 2n ** 63n },
    ]);
    // What the driver would read: copied from where the pointers point.
    const pinned = PinnedBuffer.create(device, 48);
    const read = () => {
      for (const [i, from] of args.pointers.entries()) {
        device.call("cuMemcpyHtoDAsync_v2", "copy", pinned.address + BigInt(8 * i), from, 8, stream.handle);
      }
      stream.synchronize();
      return new DataView(pinned.buffer);
    };
    const first = read();
    // IEEE 754: 1 is 3ff0000000000000 of binary64 and 3f800000 of binary32.
    expect(first.getBigUint64(0, true)).toBe(0x3ff0_0000_0000_0000n);
    expect([8, 16, 24].map((at) => first.getUint32(at, true))).toEqual([0x3f80_0000, 0xffff_fffe, 0xffff_ffff]);
    expect([32, 40].map((at) => first.getBigUint64(at, true))).toEqual([2n ** 64n - 2n, 2n ** 63n]);
    args.set(0, { type: "f64", value: -2.5 });
    expect(read().getBigUint64(0, true)).toBe(0xc004_0000_0000_0000n);
    for (const wrong of [
      undefined,
      null,
      1,
      {},
      { type: "f64" },
      { type: "f64", value: 1n },
      { type: "f64", value: "1" },
      { type: "u64", value: 1 },
      { type: "toString", value: 1 },
    ]) {
      expect(() => new KernelArguments(device, [wrong] as never)).toThrow(InvalidArgumentError);
    }
    close();
  });
});
