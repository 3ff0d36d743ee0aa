/** The memory pool over the stand-in driver: what it hands out never overlaps, and nothing is reused while it is used. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { OutOfMemoryError, TimeoutError } from "../../core/index.ts";
import { requireCudaDriver } from "../../foreign/cuda/driver.ts";
import { type CudaDevice, openDevice } from "./device.ts";
import { DeviceStorage, devicePtr, deviceStorageOf, deviceTensor } from "./device-tensor.ts";
import { type Allocation, MemoryPool } from "./memory-pool.ts";
import { CudaEvent, CudaStream } from "./stream.ts";

const present = useFakeGpu();
const MIB = 2 ** 20;

describe.skipIf(!present)("memory pool over a stand-in driver (needs g++)", () => {
  let device: CudaDevice;
  let stream: CudaStream;
  beforeAll(() => {
    device = openDevice(requireCudaDriver(), 2);
    stream = CudaStream.create(device);
  });
  afterAll(() => device.close());

  /** Makes `on` busy until the result is called. */
  function busy(on: CudaStream): () => void {
    const gate = CudaEvent.create(device);
    // A captured event is not done before its graph runs.
    const graph = stream.capture(() => gate.record(stream));
    on.waitFor(gate);
    return () => {
      graph.launch(stream);
      graph.close();
    };
  }

  it("never hands out memory twice, keeps count, and merges all of it again", () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ bytes: fc.nat(3 * MIB), drop: fc.nat(), on: fc.nat(1) }), { maxLength: 80 }),
        (steps) => {
          using pool = new MemoryPool(device);
          using second = CudaStream.create(device);
          const streams = [stream, second];
          const live: Allocation[] = [];
          let used = 0;
          for (const { bytes, drop, on } of steps) {
            const piece = pool.allocate(bytes, streams[on] as CudaStream);
            const rounded = Math.max(512, Math.ceil(bytes / 512) * 512);
            expect(piece.sizeBytes).toBe(rounded);
            expect(Number(piece.address) % 512).toBe(0);
            for (const other of live) {
              const apart =
                piece.address + BigInt(piece.sizeBytes) <= other.address ||
                other.address + BigInt(other.sizeBytes) <= piece.address;
              expect(apart).toBe(true);
            }
            live.push(piece);
            used += rounded;
            if (drop % 3 > 0) {
              const gone = live.splice(drop % live.length, 1)[0] as Allocation;
              used -= gone.sizeBytes;
              pool.free(gone);
              pool.free(gone);
            }
            expect(pool.stats()).toMatchObject({ usedBytes: used, numAllocations: live.length });
          }
          for (const piece of live) pool.free(piece);
          const { reservedBytes } = pool.stats();
          expect(pool.trim()).toBe(reservedBytes);
          expect(pool.stats()).toMatchObject({ usedBytes: 0, reservedBytes: 0, largestFreeBytes: 0 });
        },
      ),
      { seed: 20261120, numRuns: 60, verbose: 1 },
    );
  });

  it("takes the smallest block that fits", () => {
    using pool = new MemoryPool(device);
    const pieces = [4096, 512, 2048, 512, 1024, 512].map((bytes) => pool.allocate(bytes, stream));
    for (const i of [0, 2, 4]) pool.free(pieces[i] as Allocation);
    expect(pool.allocate(1000, stream).address).toBe(pieces[4]?.address);
    expect(pool.allocate(1025, stream).address).toBe(pieces[2]?.address);
    expect(pool.allocate(1024, stream).address).toBe(pieces[0]?.address);
  });

  it("takes a block of a closed stream over, together with its neighbours", () => {
    using pool = new MemoryPool(device, { limitBytes: 2 * MIB });
    const gone = CudaStream.create(device);
    const [a, b] = [pool.allocate(MIB, gone), pool.allocate(MIB, gone)];
    pool.free(a);
    expect(() => pool.allocate(MIB, stream)).toThrow(OutOfMemoryError);
    pool.free(b);
    const c = pool.allocate(512, gone);
    gone.close();
    const d = pool.allocate(MIB, stream);
    expect([c.address, d.address]).toEqual([a.address, a.address + 512n]);
    // The last block of the closed stream comes to the others when it is freed.
    pool.free(c);
    pool.free(d);
    expect(pool.allocate(2 * MIB, stream).address).toBe(a.address);
  });

  it("shares what closed streams leave among those that come, however late they were closed", () => {
    using pool = new MemoryPool(device);
    // Streams that are closed one, two or three streams later, in turn, each of which needs a little.
    const open: CudaStream[] = [];
    for (let i = 0; i < 90; i++) {
      const one = CudaStream.create(device);
      pool.free(pool.allocate(1000, one));
      open.push(one);
      while (open.length > 1 + (i % 3)) open.shift()?.close();
    }
    for (const one of open) one.close();
    expect(pool.stats().reservedBytes).toBeLessThanOrEqual(8 * MIB);
  });

  it("does not reuse what a call that has not settled needs", () => {
    using pool = new MemoryPool(device);
    const piece = pool.allocate(MIB, stream);
    piece.pendingUses++;
    pool.free(piece);
    expect(pool.allocate(MIB, stream).address).not.toBe(piece.address);
    piece.pendingUses--;
    expect(pool.allocate(MIB, stream).address).toBe(piece.address);
  });

  it("sets aside what is freed while a stream is captured until the capture has ended", () => {
    using pool = new MemoryPool(device);
    using second = CudaStream.create(device);
    const piece = pool.allocate(MIB, stream);
    pool.recordUse(piece, second);
    const graph = second.capture(() => {
      // An event that is recorded on a captured stream never says that it is done: the driver answers 907.
      pool.free(piece);
      expect(pool.allocate(MIB, stream).address).not.toBe(piece.address);
    });
    graph.close();
    expect(pool.allocate(MIB, stream).address).toBe(piece.address);
    // A capture that fails ends too.
    const next = pool.allocate(MIB, stream);
    pool.recordUse(next, second);
    const failing = () => {
      throw new RangeError("not today");
    };
    expect(() => second.capture(failing)).toThrow(RangeError);
    pool.free(next);
    expect(pool.allocate(MIB, stream).address).toBe(next.address);
  });

  it("does not take an old piece for the block's next use", () => {
    using pool = new MemoryPool(device);
    const old = pool.allocate(MIB, stream);
    pool.free(old);
    const next = pool.allocate(MIB, stream);
    expect(next.address).toBe(old.address);
    pool.free(old);
    expect(pool.stats().numAllocations).toBe(1);
    // So a tensor that was freed, and is collected later, does not free the next one.
    const storage = deviceTensor(pool, stream, "f32", [4]).storage as DeviceStorage;
    expect(storage).toBeInstanceOf(DeviceStorage);
    storage.free();
    deviceTensor(pool, stream, "f32", [4]);
    pool.free(storage.allocation);
    expect(pool.stats().numAllocations).toBe(2);
  });

  it("waits for no stream when memory is short and nothing could be given back", () => {
    using pool = new MemoryPool(device, { limitBytes: 2 * MIB });
    using other = CudaStream.create(device);
    pool.allocate(2 * MIB, stream);
    const release = busy(other);
    // Blocks for ever where it asks the driver to wait.
    expect(() => pool.allocate(512, stream)).toThrow(OutOfMemoryError);
    release();
  });

  it("looks until the device is idle, for a while, before it gives segments back", () => {
    const waits: (number | undefined)[] = [];
    const own = openDevice(device.driver, 3);
    const [main, other] = [CudaStream.create(own), CudaStream.create(own)];
    const gate = CudaEvent.create(own);
    const graph = main.capture(() => gate.record(main));
    let open: (() => void) | undefined;
    own.waiting = {
      until: (done, what, options) => {
        waits.push(options?.timeoutMs);
        if (done()) return;
        if (open === undefined) throw new TimeoutError(what, 1);
        open();
        expect(done()).toBe(true);
      },
      settles: () => Promise.reject(new Error("not asked for")),
    };
    const pool = new MemoryPool(own, { limitBytes: 4 * MIB });
    pool.free(pool.allocate(2 * MIB, main));
    other.waitFor(gate);
    // A peer that does not come: the limit holds, and nothing is given back under what runs.
    expect(() => pool.allocate(4 * MIB, main)).toThrow(OutOfMemoryError);
    expect(pool.stats().reservedBytes).toBe(2 * MIB);
    open = () => graph.launch(main);
    expect(pool.allocate(4 * MIB, main).sizeBytes).toBe(4 * MIB);
    expect(waits).toEqual([5000, 5000]);
    own.waiting = undefined;
    own.close();
  });

  it("asks the driver for one event however often a piece that streams share is freed", () => {
    using pool = new MemoryPool(device);
    using other = CudaStream.create(device);
    CudaEvent.borrow(device).giveBack();
    const asked: string[] = [];
    const { api } = device.driver;
    const counted = { ...device.driver, api: { ...api } };
    for (const name of ["cuEventCreate", "cuMemAlloc_v2"] as const) {
      const fn = api[name];
      counted.api[name] = (...args) => {
        asked.push(name);
        return fn(...args);
      };
    }
    Object.defineProperty(device, "driver", {
      value: Object.setPrototypeOf(counted, Object.getPrototypeOf(device.driver)),
    });
    for (let i = 0; i < 100; i++) {
      const piece = pool.allocate(1000, stream);
      pool.recordUse(piece, other);
      pool.free(piece);
    }
    expect(asked).toEqual(["cuMemAlloc_v2"]);
  });

  it("costs as much with ten thousand live pieces as with a hundred, as near as can be told", () => {
    using pool = new MemoryPool(device);
    const timeOf = (live: number): number => {
      while (pool.stats().numAllocations < live) pool.allocate(64, stream);
      let best = Number.POSITIVE_INFINITY;
      for (let round = 0; round < 5; round++) {
        const start = process.cpuUsage();
        for (let i = 0; i < 2000; i++) pool.free(pool.allocate(64, stream));
        const { user, system } = process.cpuUsage(start);
        best = Math.min(best, user + system);
      }
      return best;
    };
    const few = timeOf(100);
    // A walk over all blocks, as it was, takes ten times as long at the least.
    expect(timeOf(10_000)).toBeLessThan(5 * few + 5000);
  });

  it("gets the memory of tensors back that nobody refers to any more, once, and not while a view is left", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    using pool = new MemoryPool(device);
    // In a function of its own: nothing of its frame is left on the stack.
    const make = () => {
      for (let i = 0; i < 20; i++) deviceTensor(pool, stream, "f32", [1000], { label: "dropped" });
      deviceStorageOf(deviceTensor(pool, stream, "f32", [1000], { label: "freed" }))?.free();
      return deviceTensor(pool, stream, "f32", [1000], { label: "viewed" }).slice(10, 20);
    };
    const view = make();
    expect(pool.stats().numAllocations).toBe(21);
    // What was freed is in use again when its storage is collected.
    const next = pool.allocate(4000, stream, "next");
    for (let turn = 0; turn < 100 && pool.stats().numAllocations > 2; turn++) {
      collect();
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(pool.leaks()).toEqual([
      { label: "viewed", sizeBytes: 4096 },
      { label: "next", sizeBytes: 4096 },
    ]);
    expect(pool.stats().usedBytes).toBe(8192);
    expect(devicePtr(view, device)).toBeGreaterThan(0n);
    // The memory is really there again: the pool takes no more of the device for as many.
    const { numDriverCalls } = pool.stats();
    const again = Array.from({ length: 20 }, () => pool.allocate(4000, stream));
    expect(new Set([next, ...again].map(({ address }) => address)).size).toBe(21);
    expect(pool.stats().numDriverCalls).toBe(numDriverCalls);
  });
});
