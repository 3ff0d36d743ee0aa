/** Stale, foreign and forged handles of chorale/device are refused in words, before the driver sees them. Over the stand-in. */
import { describe, expect, it, vi } from "vitest";
import { useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { InvalidArgumentError, NativeError, OutOfMemoryError, Tensor } from "../../core/index.ts";
import { emptyViews } from "../../foreign/native/index.ts";
import {
  CudaDevice,
  type CudaDriver,
  CudaEvent,
  CudaGraph,
  CudaKernel,
  CudaModule,
  CudaStream,
  DeviceStorage,
  devicePtr,
  deviceStorageOf,
  deviceTensor,
  download,
  KernelArguments,
  MemoryPool,
  openDevice,
  PinnedBuffer,
  PinnedPool,
  RankDevice,
  requireCudaDriver,
  upload,
} from "./index.ts";

const available = useFakeGpu();
const SHAPE = { grid: [1], block: [1] } as const;

describe.skipIf(!available)("handles of chorale/device (needs a C++ compiler)", () => {
  function setup() {
    const driver = requireCudaDriver();
    const [device, other] = [openDevice(driver, 0), openDevice(driver, 1)];
    const [stream, foreign] = [CudaStream.create(device), CudaStream.create(other)];
    const close = () => {
      device.close();
      other.close();
    };
    return { device, other, stream, foreign, close };
  }

  it("empties the views of a pinned buffer that is closed, and leaves memory that was moved away", () => {
    const { device, close } = setup();
    const pinned = PinnedBuffer.create(device, 16);
    const kept = new Uint8Array(pinned.buffer);
    pinned.close();
    expect(kept.length).toBe(0);

    const moved = PinnedBuffer.create(device, 16);
    emptyViews(moved.buffer);
    const frees = vi.spyOn(device, "call");
    moved.close();
    expect(frees).not.toHaveBeenCalled();
    close();
  });

  it("refuses what was closed", () => {
    const { device, stream, close } = setup();
    const closed = CudaStream.create(device);
    const module = CudaModule.load(device, ".version 8.0 // fake image");
    const kernel = module.kernel("illegal_address");
    const args = new KernelArguments(device, [{ type: "u32", value: 0 }]);
    const pinned = PinnedBuffer.create(device, 16);
    const graph = stream.capture(() => {});
    const event = CudaEvent.create(device);
    const pool = new MemoryPool(device);
    const tensor = deviceTensor(pool, stream, "f32", [4]);
    const gone = deviceTensor(pool, stream, "f32", [4]);
    const slice = gone.slice(1, 2);
    if ("free" in gone.storage && typeof gone.storage.free === "function") gone.storage.free();
    for (const one of [closed, module, pinned, graph, event]) one.close();
    const refusals: readonly (readonly [() => unknown, RegExp])[] = [
      [() => closed.isDone(), /stream was closed/],
      [() => closed.synchronize(), /stream was closed/],
      [() => closed.capture(() => {}), /stream was closed/],
      [() => pool.allocate(4, closed), /stream was closed/],
      [() => pool.recordUse({ ...pool.allocate(4, stream) }, closed), /stream was closed/],
      [() => deviceTensor(pool, closed, "f32", [1]), /stream was closed/],
      [() => module.kernel("illegal_address"), /module was closed/],
      [() => kernel.launch(stream, SHAPE, args), /kernel illegal_address belongs to a module that was closed/],
      [() => kernel.allowSharedBytes(1), /belongs to a module that was closed/],
      [() => pinned.buffer, /pinned buffer was closed/],
      [() => pinned.address, /pinned buffer was closed/],
      [() => pinned.deviceAddress, /pinned buffer was closed/],
      [() => graph.launch(stream), /graph was closed/],
      [() => event.record(stream), /event was closed/],
      [() => stream.waitFor(event), /event was closed/],
      [() => event.isDone(), /event was closed/],
      [() => devicePtr(gone, device), /device tensor was freed/],
      [() => devicePtr(slice, device), /device tensor was freed/],
    ];
    for (const [fn, words] of refusals) expect(fn).toThrow(words);
    pool.close();
    expect(() => devicePtr(tensor, device)).toThrow(/device or a world that was closed/);
    expect(() => pool.allocate(4, stream)).toThrow(/memory pool was closed/);
    const buffers = new PinnedPool(device);
    close();
    expect(() => buffers.take(4)).toThrow(/CUDA device 0 was closed/);
    expect(() => device.memoryInfo()).toThrow(/CUDA device 0 was closed/);
    expect(() => stream.isDone()).toThrow(/stream was closed/);
    expect(() => kernel.launch(stream, SHAPE, args)).toThrow(/was closed/);
  });

  it("refuses what is of another device, or of another rank on the same device", () => {
    const { device, stream, foreign, close } = setup();
    const twin = openDevice(device.driver, 0);
    const twins = CudaStream.create(twin);
    const module = CudaModule.load(device, ".version 8.0 // fake image");
    const kernel = module.kernel("illegal_address");
    const args = new KernelArguments(device, [{ type: "u32", value: 0 }]);
    const graph = stream.capture(() => {});
    const event = CudaEvent.create(device);
    const pool = new MemoryPool(device);
    for (const [of, words] of [
      [foreign, /a stream of CUDA device 1"?; expected one of CUDA device 0/],
      [twins, /expected one of this rank/],
    ] as const) {
      expect(() => kernel.launch(of, SHAPE, args)).toThrow(words);
      expect(() => graph.launch(of)).toThrow(words);
      expect(() => event.record(of)).toThrow(words);
      expect(() => pool.allocate(4, of)).toThrow(words);
      expect(of.touched).toBe(false);
    }
    expect(() => devicePtr(deviceTensor(pool, stream, "f32", [1]), twin)).toThrow(/on CUDA device 0/);
    // Waiting for another device's event is what events are for.
    event.record(stream);
    foreign.waitFor(event);
    twin.close();
    close();
  });

  it("refuses what chorale did not make, and arguments that do not fit", () => {
    const { device, stream, close } = setup();
    const module = CudaModule.load(device, ".version 8.0 // fake image");
    const kernel = module.kernel("illegal_address");
    const args = new KernelArguments(device, [
      { type: "u64", value: 1n },
      { type: "f32", value: 1 },
    ]);
    for (const one of [{ handle: 4096n, device }, Object.create(CudaEvent.prototype), 4096n, stream, undefined]) {
      expect(() => stream.waitFor(one as CudaEvent)).toThrow(/a CUDA event that chorale made/);
    }
    const forged = [{ handle: 4096n, device, touched: false }, Object.create(CudaStream.prototype), 4096n, undefined];
    for (const one of forged) {
      expect(() => kernel.launch(one as CudaStream, SHAPE, args)).toThrow(/a CUDA stream that chorale made/);
    }
    expect(() => CudaEvent.create(device).record(CudaEvent.create(device) as unknown as CudaStream)).toThrow(
      /a CUDA stream that chorale made/,
    );
    expect(() =>
      kernel.launch(stream, SHAPE, { pointers: new BigUint64Array(1) } as unknown as KernelArguments),
    ).toThrow(/KernelArguments/);
    expect(() => args.set(2, { type: "u32", value: 1 })).toThrow(/0 to 1/);
    expect(() => args.set(-1, { type: "u32", value: 1 })).toThrow(/0 to 1/);
    expect(() => args.set(0, { type: "u64", value: 1 } as unknown as { type: "u32"; value: number })).toThrow(
      /a bigint/,
    );
    expect(() => new KernelArguments(device, [{ type: "f32", value: 1n } as never])).toThrow(/a number/);
    // A struct takes as many bytes as it has words, and keeps them.
    const struct = new KernelArguments(device, [
      { type: "words", value: BigUint64Array.of(1n, 2n, 3n) },
      { type: "u32", value: 7 },
    ]);
    expect([...struct.sizes]).toEqual([24, 4]);
    expect(struct.pointers[1]! - struct.pointers[0]!).toBe(24n);
    struct.set(0, { type: "words", value: BigUint64Array.of(4n, 5n, 6n) });
    expect(() => struct.set(0, { type: "words", value: BigUint64Array.of(4n) })).toThrow(/3, as before/);
    args.set(1, { type: "f32", value: 2 });
    close();
  });

  it("follows no raw handle: constructors are for the factories alone", () => {
    const { device, stream, close } = setup();
    const module = CudaModule.load(device, ".version 8.0 // fake image");
    const pool = new MemoryPool(device);
    // As a program in JavaScript can call them, with and without a guess at a key.
    const make = (what: unknown, ...args: readonly unknown[]) =>
      new (what as new (...args: readonly unknown[]) => unknown)(...args);
    for (const key of [[], [Symbol("made by chorale")], [undefined], [device]]) {
      for (const [fn, factory] of [
        [() => make(CudaStream, ...key, device, 0xdeadn, "stream"), /CudaStream\(\).*CudaStream\.create\(device\)/],
        [() => make(CudaEvent, ...key, device, 0xdeadn, "event"), /CudaEvent\(\).*CudaEvent\.create\(device\)/],
        [() => make(CudaGraph, ...key, device, 0xdeadn, "graph"), /CudaGraph\(\).*stream\.capture\(fn\)/],
        [() => make(CudaKernel, ...key, module, "store", 0xdeadn), /CudaKernel\(\).*module\.kernel\(name\)/],
        [() => make(CudaModule, ...key, device, 0xdeadn), /CudaModule\(\).*CudaModule\.load/],
        [() => make(PinnedBuffer, ...key, device, 8, 0xdeadn, 0xdeadn), /PinnedBuffer\(\).*PinnedBuffer\.create/],
        [() => make(CudaDevice, ...key, device.driver, 0, device.info, 0xdeadn), /CudaDevice\(\).*openDevice/],
        [() => make(DeviceStorage, ...key, pool, { address: 0x1234n }, 8, 0), /DeviceStorage\(\).*deviceTensor/],
      ] as const) {
        expect(fn).toThrow(InvalidArgumentError);
        expect(fn).toThrow(factory);
      }
    }
    // Nor do the factories take a device that would answer with one.
    const forged = { ...device, make: () => 0xdeadn, call() {}, activate() {}, track() {}, streams: new Set() };
    for (const one of [forged, {}, undefined, Object.create(CudaDevice.prototype)] as unknown as CudaDevice[]) {
      for (const fn of [
        () => CudaStream.create(one),
        () => CudaEvent.create(one),
        () => PinnedBuffer.create(one, 8),
        () => CudaModule.load(one, ".version 8.0 // fake image"),
        () => new MemoryPool(one),
        () => new PinnedPool(one),
        () => new KernelArguments(one, []),
      ]) {
        expect(fn).toThrow(/a CUDA device that openDevice\(driver, ordinal\) made/);
      }
    }
    expect(() => openDevice({ numDevices: 1 } as unknown as CudaDriver, 0)).toThrow(InvalidArgumentError);
    for (const name of [undefined, null, 5]) {
      expect(() => module.kernel(name as unknown as string)).toThrow(InvalidArgumentError);
    }
    expect(stream.isDone()).toBe(true);
    close();
  });

  it("gives the driver no module image that it would read beyond its end", () => {
    const { device, close } = setup();
    const bytes = (text: string) => Uint8Array.from(Buffer.from(text, "latin1"));
    const ptx = "// Generated by a compiler: for tests\n/* of a stand-in */\n\t.version 8.0\n// fake image";
    // Views of a text that goes on: what is beyond them is an error to the driver.
    const cut = bytes(`${ptx}!`).subarray(0, ptx.length);
    for (const image of [ptx, `${ptx}\0`, bytes(ptx), cut, bytes(`${ptx}\0`), Buffer.from(ptx)]) {
      using module = CudaModule.load(device, image);
      expect(module.closed).toBe(false);
    }
    expect(() => CudaModule.load(device, `${ptx}!`)).toThrow(NativeError);

    // elf(5): 64-bit, little-endian, machine 190; a program header of 56 bytes at 64 and two sections of 64 at 120.
    const elf = new Uint8Array(248);
    elf.set(bytes("\x7fELF\x02\x01\x01"));
    const view = new DataView(elf.buffer);
    const set16 = (at: number, value: number) => view.setUint16(at, value, true);
    set16(18, 190);
    view.setBigUint64(32, 64n, true);
    view.setBigUint64(40, 120n, true);
    for (const [at, value] of [
      [54, 56],
      [56, 1],
      [58, 64],
      [60, 2],
    ] as const)
      set16(at, value);
    CudaModule.load(device, elf).close();
    const another = elf.slice();
    another[18] = 62;
    const narrow = elf.slice();
    narrow[4] = 1;
    const fatbin = new Uint8Array(32);
    fatbin.set([0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 17]);
    for (const [image, words] of [
      [5, /image is 5; expected a cubin, a fatbin, or PTX text/],
      [undefined, /expected a cubin/],
      [null, /expected a cubin/],
      [{}, /expected a cubin/],
      [new Float32Array(64), /expected a cubin/],
      [elf.buffer, /expected a cubin/],
      ["", /empty/],
      [new Uint8Array(0), /empty/],
      [new Uint8Array([1, 2, 3, 4]), /4 bytes that begin with/],
      ["not ptx", /7 bytes that begin with not ptx/],
      ["// .version 8.0", /expected a cubin/],
      ["/* never closed .version 8.0", /expected a cubin/],
      [elf.subarray(0, 247), /a cubin of 247 bytes.*248/],
      [elf.subarray(0, 63), /a cubin of 63 bytes/],
      [elf.subarray(0, 4), /a cubin of 4 bytes/],
      [another, /an ELF file of machine 62/],
      [narrow, /an ELF file/],
      [fatbin, /a fatbin of 32 bytes.*33/],
      [fatbin.subarray(0, 15), /a fatbin of 15 bytes/],
    ] as const) {
      expect(() => CudaModule.load(device, image as Uint8Array)).toThrow(InvalidArgumentError);
      expect(() => CudaModule.load(device, image as Uint8Array)).toThrow(words);
    }
    close();
  });

  it("takes no size, limit or dtype that is none, and nothing after the end of a pinned pool", () => {
    const { device, stream, close } = setup();
    const wrong = [Number.NaN, -1, -5, 1.5, Number.POSITIVE_INFINITY, "10", "x", null, 10n, {}] as unknown as number[];
    const pool = new MemoryPool(device);
    const buffers = new PinnedPool(device);
    for (const value of wrong) {
      expect(() => new MemoryPool(device, { limitBytes: value })).toThrow(/limitBytes.*whole number of bytes above 0/);
      expect(() => pool.allocate(value, stream)).toThrow(/sizeBytes.*an integer of 0 or more/);
      expect(() => buffers.take(value)).toThrow(/sizeBytes.*an integer of 0 or more/);
    }
    expect(() => new MemoryPool(device, { limitBytes: 0 })).toThrow(InvalidArgumentError);
    expect(pool.stats()).toMatchObject({ usedBytes: 0, reservedBytes: 0, numDriverCalls: 0 });
    expect(pool.limitBytes).toBe(device.info.memoryBytes);
    for (const dtype of ["nope", undefined, "toString", 5] as unknown as "f32"[]) {
      expect(() => deviceTensor(pool, stream, dtype, [1])).toThrow(InvalidArgumentError);
      expect(() => deviceTensor(pool, stream, dtype, [1])).toThrow(/dtype is .*expected one of .*bf16/);
    }
    const hostile = Object.create(pool, { allocate: { value: () => ({ address: 0x1234n }) } });
    for (const one of [hostile, {}, undefined]) {
      expect(() => deviceTensor(one, stream, "f32", [1])).toThrow(/a MemoryPool/);
    }
    const lent = buffers.take(100);
    buffers.close();
    buffers.close();
    expect(() => buffers.take(100)).toThrow(/pinned pool was closed/);
    buffers.giveBack(lent);
    expect(lent.closed).toBe(true);
    close();
  });

  it("captures no asynchronous function, and goes on", async () => {
    const { device, stream, close } = setup();
    const event = CudaEvent.create(device);
    let late = () => {};
    const gate = new Promise<void>((resolve) => {
      late = resolve;
    });
    const asynchronous = async () => {
      event.record(stream);
      await gate;
      throw new Error("later, and of no concern to anybody");
    };
    expect(() => stream.capture(asynchronous as () => void)).toThrow(
      /fn is .*returns a promise.*a synchronous function/,
    );
    late();
    for (const fn of [5, undefined, null]) {
      expect(() => stream.capture(fn as unknown as () => void)).toThrow(InvalidArgumentError);
    }
    await new Promise((resolve) => setImmediate(resolve));
    expect(device.numCaptures).toBe(0);
    event.record(stream);
    stream.synchronize();
    expect(event.isDone()).toBe(true);
    using graph = stream.capture(() => event.record(stream));
    graph.launch(stream);
    close();
  });

  it("copies tensors alone, to and from what a rank has", async () => {
    const { device, other, stream, foreign, close } = setup();
    const parts = { device, pool: new MemoryPool(device), pinned: new PinnedPool(device), main: stream, generation: 1 };
    const at = new RankDevice(parts);
    const x = deviceTensor(at.pool, stream, "f32", [2]);
    upload(x, Float32Array.of(1, 2), at);
    for (const one of [undefined, null, 5, {}, { ...x }] as unknown as Tensor<"f32">[]) {
      expect(() => download(one, at)).toThrow(InvalidArgumentError);
      expect(() => upload(one, Float32Array.of(1, 2), at)).toThrow(InvalidArgumentError);
      await expect(at.downloadAsync(one)).rejects.toThrow(InvalidArgumentError);
      await expect(at.uploadAsync(one, Float32Array.of(1, 2))).rejects.toThrow(InvalidArgumentError);
    }
    for (const one of [undefined, {}, { ...at }] as RankDevice[]) {
      expect(() => download(x, one)).toThrow(/at is .*deviceOf\(world\)/);
      expect(() => upload(x, Float32Array.of(1, 2), one)).toThrow(/at is .*deviceOf\(world\)/);
    }
    for (const wrong of [
      { device: { ...device } },
      { pool: {} },
      { pinned: { take: () => ({ address: 0xdeadn }) } },
      { main: { handle: 0xdeadn } },
      { main: foreign },
      { device: other },
    ]) {
      expect(() => new RankDevice({ ...parts, ...wrong } as unknown as RankDevice)).toThrow(InvalidArgumentError);
    }
    expect(() => new RankDevice(undefined as unknown as RankDevice)).toThrow(InvalidArgumentError);
    expect([...(await at.downloadAsync(x))]).toEqual([1, 2]);
    close();
  });

  it("keeps what was freed freed, and a storage's address and size as they are", () => {
    const { device, stream, close } = setup();
    const pool = new MemoryPool(device);
    const x = deviceTensor(pool, stream, "f32", [4]);
    const storage = deviceStorageOf(x) as DeviceStorage & Record<string, unknown>;
    const address = devicePtr(x, device);
    const change = (name: string, value: unknown) => Reflect.set(storage, name, value);
    for (const name of ["baseAddress", "sizeBytes", "generation", "pool", "allocation", "closed", "kind"]) {
      expect(change(name, 5)).toBe(false);
    }
    expect(devicePtr(x, device)).toBe(address);
    storage.free();
    expect(change("closed", undefined)).toBe(false);
    expect(Reflect.defineProperty(storage, "closed", { value: undefined })).toBe(false);
    expect(() => devicePtr(x, device)).toThrow(/device tensor was freed/);
    const revived = Object.create(storage, { closed: { value: undefined } });
    expect(() => devicePtr(new Tensor("f32", [4], revived), device)).toThrow(/did not make/);
    close();
  });

  it("hands a pinned buffer to one taker at a time, whatever is given back", () => {
    const { device, close } = setup();
    const pool = new PinnedPool(device);
    const first = pool.take(100);
    pool.giveBack(first);
    pool.giveBack(first);
    const [a, b] = [pool.take(100), pool.take(100)];
    expect(a).toBe(first);
    expect(b).not.toBe(a);
    b.close();
    pool.giveBack(b);
    expect(pool.take(100).closed).toBe(false);
    // One that was closed after it was given back, and one that is another pool's.
    pool.giveBack(a);
    a.close();
    expect(pool.take(100).closed).toBe(false);
    const foreign = PinnedBuffer.create(device, 4096);
    pool.giveBack(foreign);
    expect(pool.take(100)).not.toBe(foreign);
    close();
  });

  it("says in a typed error that host memory cannot be locked, and holds nothing then", () => {
    const { device, close } = setup();
    expect(() => PinnedBuffer.create(device, 2 ** 52)).toThrow(OutOfMemoryError);
    expect(() => PinnedBuffer.create(device, 2 ** 52)).toThrow(/page-locked host memory/);
    expect(() => PinnedBuffer.create(device, -1)).toThrow(InvalidArgumentError);
    expect(new PinnedPool(device).take(16).sizeBytes).toBe(4096);
    close();
  });
});
