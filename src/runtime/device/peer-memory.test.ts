/** Device memory between processes, over a stand-in for the driver: this process and one that it starts. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder, heldByFakeGpu, useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { ClosedError, InvalidArgumentError, NativeError } from "../../core/index.ts";
import { requireCudaDriver } from "../../foreign/cuda/driver.ts";
import { type CudaDevice, openDevice } from "./device.ts";
import { devicePtr, deviceTensor } from "./device-tensor.ts";
import { MemoryPool } from "./memory-pool.ts";
import { CudaModule, KernelArguments } from "./module.ts";
import { enablePeerAccess, PeerMemory } from "./peer-memory.ts";
import { PinnedBuffer } from "./pinned.ts";
import { CudaStream } from "./stream.ts";

const folder = fakeGpuFolder();
process.env["FAKE_GPU_FOLDER"] = folder.path;
const present = useFakeGpu();
const library = buildFakeGpu() ?? "";
afterAll(() => {
  delete process.env["FAKE_GPU_FOLDER"];
  folder.remove();
});

/** A process that reads notes and answers with the bytes that they name. */
function startReader() {
  const from = (path: string) => JSON.stringify(fileURLToPath(new URL(`../../../.cache/dev/${path}`, import.meta.url)));
  const code = `
    import { createInterface } from "node:readline";
    import { requireCudaDriver } from ${from("foreign/cuda/index.js")};
    import { CudaStream, MemoryPool, openDevice, PeerMemory } from ${from("runtime/device/index.js")};
    const device = openDevice(requireCudaDriver(), 1);
    const peers = new PeerMemory(device, new MemoryPool(device), { interprocess: true });
    const stream = CudaStream.create(device);
    createInterface({ input: process.stdin }).on("line", (line) => {
      const answer = {};
      try {
        const { address, sizeBytes } = peers.locate(Int32Array.from(JSON.parse(line)));
        const bytes = new Uint8Array(sizeBytes);
        device.call("cuMemcpyDtoHAsync_v2", "test", bytes, address, sizeBytes, stream.handle);
        stream.synchronize("test");
        Object.assign(answer, { address: String(address), bytes: [...bytes] });
      } catch (error) {
        Object.assign(answer, { error: error.message });
      }
      console.log(JSON.stringify(answer));
    }).on("close", () => peers.close());`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout });
  return {
    async read(note: Int32Array): Promise<{ address?: string; bytes?: number[]; error?: string }> {
      const answer = once(lines, "line") as Promise<[string]>;
      child.stdin.write(`${JSON.stringify([...note])}\n`);
      return JSON.parse((await answer)[0]) as { address?: string };
    },
    async end(): Promise<number> {
      child.stdin.end();
      return ((await once(child, "exit")) as [number])[0];
    },
  };
}

describe.skipIf(!present || buildFakeGpu() === undefined)("peer memory between processes (needs g++)", () => {
  it("is read where the note says, also in the middle of an allocation", async () => {
    const device = openDevice(requireCudaDriver(), 0);
    const stream = CudaStream.create(device);
    const pool = new MemoryPool(device);
    const peers = new PeerMemory(device, pool, { interprocess: true });
    const reader = startReader();
    const write = (address: bigint, bytes: Uint8Array) => {
      device.call("cuMemcpyHtoDAsync_v2", "test", address, bytes, bytes.length, stream.handle);
      stream.synchronize("test");
    };
    try {
      const first = pool.allocate(1000, stream);
      const second = pool.allocate(3, stream);
      write(first.address, Uint8Array.of(1, 2, 3, 4));
      write(second.address, Uint8Array.of(7, 8, 9));
      const a = await reader.read(peers.describe(first.address, 4));
      const b = await reader.read(peers.describe(second.address, 3));
      expect([a.bytes, b.bytes]).toEqual([
        [1, 2, 3, 4],
        [7, 8, 9],
      ]);
      // Both lie in one allocation, which is mapped once, elsewhere than here.
      expect(BigInt(b.address ?? 0) - BigInt(a.address ?? 0)).toBe(second.address - first.address);
      expect(a.address).not.toBe(String(first.address));

      // What peers have mapped stays: a new allocation at its address would be read as the old one.
      pool.free(first);
      pool.free(second);
      expect(pool.trim()).toBe(0);
      const again = pool.allocate(1000, stream);
      write(again.address, Uint8Array.of(5));
      expect((await reader.read(peers.describe(again.address, 1))).bytes).toEqual([5]);

      // A forged handle is an error of the driver.
      const forged = peers.describe(again.address, 1);
      forged.fill(-1, 5);
      expect((await reader.read(forged)).error).toContain("cuIpcOpenMemHandle_v2 returned");
      // A process cannot open its own handle: that would be a bug here.
      expect(() => peers.locate(peers.describe(again.address, 1))).toThrow(NativeError);
      expect(await reader.end()).toBe(0);
      pool.free(again);
    } finally {
      peers.close();
      pool.close();
      stream.close();
      device.close();
    }
  });

  it("among threads is an address", () => {
    const device = openDevice(requireCudaDriver(), 0);
    const stream = CudaStream.create(device);
    const pool = new MemoryPool(device);
    const peers = new PeerMemory(device, pool, { interprocess: false });
    const piece = pool.allocate(100, stream);
    expect(peers.locate(peers.describe(piece.address, 100))).toEqual({ address: piece.address, sizeBytes: 100 });
    pool.free(piece);
    expect(pool.trim()).toBeGreaterThan(0);
    pool.close();
    stream.close();
    device.close();
  });

  it("refuses notes, pools and addresses that are none, and everything after its end", () => {
    const device = openDevice(requireCudaDriver(), 0);
    const other = openDevice(device.driver, 1);
    const stream = CudaStream.create(device);
    const pool = new MemoryPool(device);
    const threads = new PeerMemory(device, pool, { interprocess: false });
    const processes = new PeerMemory(device, pool, { interprocess: true });
    const piece = pool.allocate(100, stream);
    const note = threads.describe(piece.address, 100);
    const ofAnother = note.slice();
    ofAnother[4] = process.pid + 1;
    for (const fn of [
      () => new PeerMemory({ ...device } as unknown as CudaDevice, pool, { interprocess: false }),
      () => new PeerMemory(device, {} as MemoryPool, { interprocess: false }),
      () => new PeerMemory(other, pool, { interprocess: false }),
      () => new PeerMemory(device, pool, undefined as unknown as { interprocess: boolean }),
      () => threads.locate(undefined as unknown as Int32Array),
      () => threads.locate(note.subarray(1)),
      () => threads.locate([...note] as unknown as Int32Array),
      () => threads.locate(ofAnother),
      () => threads.describe(5 as unknown as bigint, 1),
      () => threads.describe(-1n, 1),
      () => threads.describe(piece.address, 1.5),
      () => threads.describe(piece.address, -1),
      () => processes.describe(0x1234n, 1),
    ]) {
      expect(fn).toThrow(InvalidArgumentError);
    }
    for (const peers of [threads, processes]) {
      peers.close();
      peers.close();
      expect(() => peers.describe(piece.address, 100)).toThrow(/peer memory was closed/);
      expect(() => peers.locate(note)).toThrow(/peer memory was closed/);
    }
    using late = new PeerMemory(device, pool, { interprocess: false });
    device.close();
    expect(() => late.locate(note)).toThrow(/peer memory was closed/);
    other.close();
  });
});

describe.skipIf(!present)("peer access (needs g++)", () => {
  /** Writes 7 into memory of `owner` by a kernel of `device`, and reads it back. */
  function writeAcross(device: CudaDevice, owner: CudaDevice): number | undefined {
    const [here, there] = [CudaStream.create(device), CudaStream.create(owner)];
    const pinned = PinnedBuffer.create(owner, 4);
    const x = deviceTensor(new MemoryPool(owner), there, "u32", [1]);
    const kernel = CudaModule.load(device, ".version 8.0 // fake image").kernel("store");
    const address = { type: "u64", value: devicePtr(x, owner) } as const;
    const args = new KernelArguments(device, [address, { type: "u32", value: 7 }]);
    kernel.launch(here, { grid: [1], block: [1] }, args);
    here.synchronize("the kernel");
    owner.call("cuMemcpyDtoHAsync_v2", "copy", pinned.address, address.value, 4, there.handle);
    there.synchronize();
    return new Uint32Array(pinned.buffer, 0, 1)[0];
  }

  it("lets kernels use the memory of those devices alone that it was asked for", () => {
    const driver = requireCudaDriver();
    const [device, peer, stranger] = [openDevice(driver, 4), openDevice(driver, 5), openDevice(driver, 6)];
    expect(enablePeerAccess(device, [4, 5])).toEqual([5]);
    expect(enablePeerAccess(device, [5])).toEqual([5]);
    expect(writeAcross(device, peer)).toBe(7);
    expect(writeAcross(peer, peer)).toBe(7);
    // One way only, and not for ever.
    expect(() => writeAcross(device, stranger)).toThrow(/the kernel found .*ILLEGAL_ADDRESS/);
    expect(() => writeAcross(peer, device)).toThrow(ClosedError);
    for (const one of [device, peer, stranger]) one.close();
  });

  it("says which devices cannot be reached, and holds no context of theirs afterwards", () => {
    const device = openDevice(requireCudaDriver(), 2);
    const before = heldByFakeGpu(library).contexts;
    process.env["FAKE_CUDA_NO_PEER_ACCESS"] = "1";
    try {
      expect(enablePeerAccess(device, [0, 1, 3])).toEqual([]);
    } finally {
      delete process.env["FAKE_CUDA_NO_PEER_ACCESS"];
    }
    expect(heldByFakeGpu(library).contexts).toBe(before);
    expect(enablePeerAccess(device, [0, 1])).toEqual([0, 1]);
    expect(heldByFakeGpu(library).contexts).toBe(before + 2);
    for (const peers of [[8], [-1], [0.5], ["1"], undefined, 1]) {
      expect(() => enablePeerAccess(device, peers as number[])).toThrow(InvalidArgumentError);
    }
    expect(() => enablePeerAccess({ ...device } as unknown as CudaDevice, [1])).toThrow(InvalidArgumentError);
    device.close();
    expect(heldByFakeGpu(library).contexts).toBe(before - 1);
    expect(() => enablePeerAccess(device, [1])).toThrow(ClosedError);
  });
});
