import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { ClosedError, InvalidArgumentError, NativeError, OutOfMemoryError, Tensor } from "../../core/index.ts";
import { requireCudaDriver } from "../../foreign/cuda/driver.ts";
import { type CudaDevice, openDevice } from "./device.ts";
import { devicePtr, deviceTensor } from "./device-tensor.ts";
import { MemoryPool } from "./memory-pool.ts";
import { CudaModule, KernelArguments } from "./module.ts";
import { PinnedBuffer } from "./pinned.ts";
import { CudaEvent, CudaStream } from "./stream.ts";

const present = useFakeGpu();

describe.skipIf(!present)("CUDA device runtime over a stand-in driver (needs g++)", () => {
  let device: CudaDevice;
  let stream: CudaStream;

  beforeAll(() => {
    device = openDevice(requireCudaDriver(), 1);
    stream = CudaStream.create(device);
  });
  afterAll(() => {
    stream.close();
    device.close();
  });

  it("reads what the driver knows", () => {
    expect(device.info).toEqual({
      ordinal: 1,
      name: "Fake GPU 1",
      uuid: "GPU-00000000-0000-0000-0000-000000000002",
      pciAddress: "0000:11:00.0",
      memoryBytes: 512 * 1024 * 1024,
      computeCapability: [9, 0],
      numMultiprocessors: 132,
    });
    expect(() => openDevice(device.driver, 8)).toThrow(InvalidArgumentError);
  });

  it("copies through pinned memory, in stream order", () => {
    using pool = new MemoryPool(device);
    using pinned = PinnedBuffer.create(device, 4096);
    const values = new Float32Array(pinned.buffer, 0, 8);
    values.set([1, 2, 3, 4, 5, 6, 7, 8]);
    const a = deviceTensor(pool, stream, "f32", [8]);
    device.call("cuMemcpyHtoDAsync_v2", "copy", devicePtr(a, device), pinned.address, 32, stream.handle);
    device.call("cuMemsetD8Async", "set", devicePtr(a.slice(2, 4), device), 0, 8, stream.handle);
    device.call("cuMemcpyDtoHAsync_v2", "copy", pinned.address + 64n, devicePtr(a, device), 32, stream.handle);
    stream.synchronize();
    expect([...new Float32Array(pinned.buffer, 64, 8)]).toEqual([1, 2, 0, 0, 5, 6, 7, 8]);
    expect(() => a.data).toThrow(/copy device tensors to the host/);
  });

  it("reuses freed memory, merges neighbours, and returns all of it", () => {
    const before = device.memoryInfo().freeBytes;
    const pool = new MemoryPool(device);
    const pieces = Array.from({ length: 4 }, (_, i) => pool.allocate(1000 * (i + 1), stream));
    expect(new Set(pieces.map((p) => p.address)).size).toBe(4);
    expect(pool.stats()).toMatchObject({ numAllocations: 4, reservedBytes: 2 ** 21, numDriverCalls: 1 });
    const [a, b, c] = pieces;
    if (a === undefined || b === undefined || c === undefined) throw new Error("unreachable");
    pool.free(b);
    pool.free(a);
    pool.free(c);
    pool.free(c);
    expect(pool.allocate(6000, stream).address).toBe(a.address);
    expect(pool.leaks()).toHaveLength(2);
    pool.close();
    expect(device.memoryInfo().freeBytes).toBe(before);
  });

  it("waits for other streams before it reuses a piece", () => {
    using pool = new MemoryPool(device, { limitBytes: 2 ** 21 });
    using other = CudaStream.create(device);
    using gate = CudaEvent.create(device);
    const piece = pool.allocate(2 ** 21, stream);
    pool.recordUse(piece, other);
    // A captured event is not done before its graph runs: `other` stays busy until then.
    using graph = stream.capture(() => gate.record(stream));
    other.waitFor(gate);
    pool.free(piece);
    expect(pool.stats()).toMatchObject({ usedBytes: 0, largestFreeBytes: 0 });
    graph.launch(stream);
    expect(pool.allocate(512, stream).address).toBe(piece.address);
  });

  it("says what is free when memory runs out, and goes on", () => {
    using pool = new MemoryPool(device);
    const keep = pool.allocate(400 * 2 ** 20, stream);
    expect(() => pool.allocate(200 * 2 ** 20, stream)).toThrow(OutOfMemoryError);
    expect(() => pool.allocate(200 * 2 ** 20, stream)).toThrow(/in use by 1 tensors/);
    expect(pool.stats().numOutOfMemory).toBe(2);
    pool.free(keep);
    expect(pool.allocate(500 * 2 ** 20, stream).sizeBytes).toBe(500 * 2 ** 20);
  });

  it("refuses forged, freed, foreign and stale tensors", () => {
    using pool = new MemoryPool(device);
    using other = openDevice(device.driver, 2);
    const forged = new Tensor("f32", [4], {
      kind: "device",
      sizeBytes: 16,
      buffer: undefined,
      generation: 0,
      closed: undefined,
    });
    expect(() => devicePtr(forged, device)).toThrow(/did not make/);
    const t = deviceTensor(pool, stream, "f32", [4], { generation: 3 });
    expect(devicePtr(t, device, 3)).toBe(devicePtr(t.slice(0, 1), device));
    expect(() => devicePtr(t, device, 4)).toThrow(/generation 3/);
    expect(() => devicePtr(t, other)).toThrow(/on CUDA device 1/);
    if ("free" in t.storage && typeof t.storage.free === "function") t.storage.free();
    expect(() => devicePtr(t, device, 3)).toThrow(ClosedError);
  });

  it("tells who waits for a stream of a failure that a group was not told of before, once", () => {
    // What a member does that fails may end what others wait for before they look at the group.
    let failure: Error | undefined;
    const group = {
      cause: undefined as Error | undefined,
      knownFailure: () => {
        group.cause ??= failure;
        return group.cause;
      },
      numTaken: 1,
      firstOpen: 1,
    };
    stream.follow(group);
    stream.synchronize();
    failure = new Error("a member gave up");
    expect(() => stream.synchronize()).toThrow("a member gave up");
    stream.synchronize();
  });

  it("captures and replays a graph", () => {
    using pool = new MemoryPool(device);
    using pinned = PinnedBuffer.create(device, 4096);
    const t = deviceTensor(pool, stream, "u8", [16]);
    using graph = stream.capture(() => {
      device.call("cuMemcpyHtoDAsync_v2", "copy", devicePtr(t, device), pinned.address, 16, stream.handle);
      device.call("cuMemcpyDtoHAsync_v2", "copy", pinned.address + 16n, devicePtr(t, device), 16, stream.handle);
    });
    const bytes = new Uint8Array(pinned.buffer);
    bytes.fill(7, 0, 16);
    expect(bytes[16]).toBe(0);
    graph.launch(stream);
    stream.synchronize();
    expect([...bytes.subarray(16, 32)]).toEqual(Array(16).fill(7));
  });

  it("poisons a context on a sticky error and names the operation", () => {
    const victim = openDevice(device.driver, 3);
    const queue = CudaStream.create(victim);
    expect(() => CudaModule.load(victim, ".version 8.0 // not one of ours")).toThrow(NativeError);
    const module = CudaModule.load(victim, ".version 8.0 // fake image");
    const kernel = module.kernel("illegal_address");
    kernel.launch(queue, { grid: [1], block: [32] }, new KernelArguments(victim, [{ type: "u32", value: 1 }]));
    expect(() => queue.synchronize("all_reduce #12")).toThrow(/all_reduce #12 found .*ILLEGAL_ADDRESS/);
    expect(() => victim.memoryInfo()).toThrow(/end the process/);
    queue.close();
    victim.close();
    device.synchronize();
  });
});
