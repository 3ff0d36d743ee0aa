import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { OutOfMemoryError, RankFailedError } from "../../../core/index.ts";
import { attachThreads } from "./backend.ts";
import { dumpFlight } from "./flight-ring.ts";
import { Heap } from "./heap.ts";
import { buryRank, createThreadsHost, failWorld } from "./host.ts";
import { WORLD } from "./layout.ts";

const MIB = 1024 * 1024;

function newHeap(memoryLimitBytes: number): Heap {
  return new Heap(createThreadsHost({ ranks: 2, memoryLimitBytes }), 0);
}

describe("the heap of a threads world", () => {
  it("gives aligned zeros, and takes them back", () => {
    const heap = newHeap(4 * MIB);
    const a = heap.allocate(1000);
    expect(a % 128).toBe(0);
    new Uint8Array(heap.memory.buffer, a, 1000).fill(255);
    heap.free(a);
    expect(heap.usedBytes).toBe(0);
    const b = heap.allocate(1000);
    expect(b).toBe(a);
    expect(new Uint8Array(heap.memory.buffer, b, 1000).every((byte) => byte === 0)).toBe(true);
  });

  it("never hands out memory twice, merges what is freed, and loses none (random orders)", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.boolean(), fc.integer({ min: 0, max: 60_000 }), fc.nat()), {
          minLength: 1,
          maxLength: 120,
        }),
        (steps) => {
          const heap = newHeap(64 * MIB);
          const blocks: { address: number; bytes: number; mark: number }[] = [];
          const whole = (b: (typeof blocks)[number]) =>
            new Uint8Array(heap.memory.buffer, b.address, b.bytes).every((byte) => byte === b.mark);
          let mark = 0;
          for (const [free, bytes, pick] of steps) {
            if (free && blocks.length > 0) {
              const [block] = blocks.splice(pick % blocks.length, 1);
              if (block === undefined) continue;
              expect(whole(block)).toBe(true);
              heap.free(block.address);
            } else {
              const address = heap.allocate(bytes);
              const view = new Uint8Array(heap.memory.buffer, address, bytes);
              expect(view.every((byte) => byte === 0)).toBe(true);
              mark = (mark % 255) + 1;
              view.fill(mark);
              blocks.push({ address, bytes, mark });
            }
          }
          for (const block of blocks) {
            expect(whole(block)).toBe(true);
            heap.free(block.address);
          }
          expect(heap.usedBytes).toBe(0);
          // All is one block again: nearly everything fits at once.
          heap.free(heap.allocate(63 * MIB, false));
        },
      ),
      { numRuns: 40 },
    );
  });

  it("says what is free and how to get more when it is full", () => {
    const heap = newHeap(4 * MIB);
    heap.allocate(3 * MIB);
    const refused = (() => {
      try {
        heap.allocate(2 * MIB);
      } catch (error) {
        return error;
      }
      return undefined;
    })();
    expect(refused).toBeInstanceOf(OutOfMemoryError);
    expect((refused as OutOfMemoryError).requestedBytes).toBe(2 * MIB);
    expect((refused as OutOfMemoryError).availableBytes).toBeLessThan(MIB);
    expect((refused as OutOfMemoryError).availableBytes).toBeGreaterThan(MIB - 4096);
    expect((refused as OutOfMemoryError).message).toContain("memoryLimitBytes");
    heap.free(heap.allocate(MIB / 2));
  });

  it("says what there is, not what the limit is, where the system gives no more", () => {
    const host = createThreadsHost({ ranks: 2, memoryLimitBytes: 64 * MIB });
    const sizeBytes = host.memory.buffer.byteLength;
    const grow = () => {
      throw new Error("ENOSPC: no space left on device. Give the container more shared memory");
    };
    const heap = new Heap({ ...host, growth: { sizeBytes, grow } }, 0);
    const refused = (() => {
      try {
        return heap.allocate(32 * MIB);
      } catch (error) {
        return error;
      }
    })() as OutOfMemoryError;
    expect(refused).toBeInstanceOf(OutOfMemoryError);
    expect(refused.availableBytes).toBeLessThanOrEqual(sizeBytes);
    expect(refused.message).toContain(`of ${sizeBytes} bytes are in use`);
    expect(refused.message).toContain("Give the container more shared memory");
    expect(refused.message).not.toContain("memoryLimitBytes");
  });

  it("frees and finds a block in a few steps, however many there are: collected tensors come by the ten thousand", () => {
    const heap = newHeap(256 * MIB);
    const draw = fc.sample(fc.integer({ min: 1, max: 2_000 }), { numRuns: 40_000, seed: 7 });
    const blocks = draw.map((bytes) => heap.allocate(bytes, false));
    const before = process.cpuUsage();
    // Every other one: none of them can be merged with another.
    for (let i = 0; i < blocks.length; i += 2) heap.free(blocks[i] as number);
    for (const bytes of draw.slice(0, 10_000)) heap.allocate(bytes, false);
    // 0.1 s; a list that is walked takes 26 s.
    expect(process.cpuUsage(before).user).toBeLessThan(5e6);
  });

  it("notices a double free", () => {
    const heap = newHeap(4 * MIB);
    const a = heap.allocate(10);
    heap.free(a);
    expect(() => heap.free(a)).toThrow("freed twice");
  });

  it("commits memory only as it is used, up to 4 GiB of addresses", () => {
    const heap = newHeap(4096 * MIB - 1024 * 1024);
    expect(heap.memory.buffer.byteLength).toBeLessThan(4 * MIB);
    const before = process.memoryUsage.rss();
    const blocks = Array.from({ length: 60 }, () => heap.allocate(64 * MIB));
    expect(blocks.at(-1)).toBeGreaterThan(2 ** 31);
    expect(process.memoryUsage.rss() - before).toBeLessThan(256 * MIB);
    for (const block of blocks) heap.free(block);
    expect(heap.usedBytes).toBe(0);
  });

  it("takes the lock from a dead holder", () => {
    const world = createThreadsHost({ ranks: 2 });
    const [dying, other] = [new Heap(world, 1), new Heap(world, 0)];
    expect(() =>
      dying.locked(() => {
        other.breakLockOf(1);
        other.free(other.allocate(10));
        throw new Error("died");
      }),
    ).toThrow("died");
    other.free(other.allocate(10));
  });

  it("does not stop the launching thread when a dead rank holds its lock: that comes back when the rank is buried", async () => {
    const handle = createThreadsHost({ ranks: 3 });
    const backend = attachThreads(handle, 0);
    const words = new Int32Array(handle.memory.buffer);
    // Rank 1 was killed within the heap; then rank 2 fails.
    words[WORLD.lock] = 2;
    const start = performance.now();
    failWorld(handle, 2, "the cause");
    expect(dumpFlight(handle).ranks[2]).toMatchObject({ rank: 2, failed: "the cause" });
    // It would wait for ten seconds.
    expect(performance.now() - start).toBeLessThan(8_000);
    buryRank(handle, 1);
    await vi.waitFor(() => expect(() => backend.world.barrier()).toThrow(RankFailedError), 30_000);
    // Groups that are opened afterwards have failed from the start.
    const late = await backend.group("late", [0, 1]);
    expect(() => late.barrier()).toThrow("rank 2 failed (generation 1): the cause");
    backend.abandon(new Error("enough"));
    expect(() => backend.world.barrier()).toThrow("group world belongs to generation 1, which ended: enough");
    expect(() => backend.tensor("f32", [1])).toThrow("world belongs to generation 1, which ended: enough");
  });
});
