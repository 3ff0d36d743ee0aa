/** The threads that write for a rank: one at a time, however slowly they start and end. */
import { Worker } from "node:worker_threads";
import { describe, expect, it, vi } from "vitest";
import { Random } from "../../../../test/oracle/random.ts";
import { socketCalls } from "../../../foreign/native/index.ts";
import { ArenaReducer, newSharedMemory, PAGE_BYTES } from "../../executor/internal.ts";
import type { PeerSockets } from "./meet.ts";
import { SendThread } from "./send-thread.ts";
import { firstSlotOf, forLarge, Sender } from "./sender.ts";
import { newReductions } from "./shared-reductions.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
console.log(`sender seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

const newSender = () => new Sender({ sendThread: "on", calls: socketCalls(), peers: [] });
const hasThread = (sender: Sender) => sender.watched.length > 0;

describe.skipIf(process.platform === "win32")("a rank's thread that writes", () => {
  it("starts none while that of the generation before is still there", async () => {
    const first = newSender();
    first.writer().thread();
    expect(hasThread(first)).toBe(true);
    const closing = first.close();

    const second = newSender();
    const writer = second.writer();
    expect(writer.thread()).toBeUndefined();
    expect(hasThread(second)).toBe(false);
    await closing;
    while (writer.thread() === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
    expect(hasThread(second)).toBe(true);
    await second.close();
  });

  it("is not terminated while it starts, when Node would leave its file open", async () => {
    const terminate = vi.spyOn(Worker.prototype, "terminate");
    const thread = new SendThread(1, socketCalls(), newReductions());
    await thread.close();
    await thread.gone;
    expect(terminate).not.toHaveBeenCalled();
    terminate.mockRestore();
  });
});

describe.skipIf(process.platform === "win32")("reductions beside a rank's own thread", () => {
  const peer = { sockets: Array(3).fill({ socket: {} }) } as unknown as PeerSockets;
  const sumsOf = (sender: Sender) => {
    const memory = newSharedMemory(64, 64);
    let free = 64;
    const reducer = new ArenaReducer(memory, 2, (bytes) => {
      const at = free;
      free += Math.ceil(bytes / 64) * 64;
      return at;
    });
    const made: boolean[] = [];
    /** Has `count` elements made anew by two sums, of 1 and `value`. @returns checks them */
    const sum = (nth: number, count: number, value: number) => {
      const at = [0, 1, 2, 3].map((one) => (4 + 16 * nth + 4 * one) * PAGE_BYTES);
      const views = at.map((from) => new Float32Array(memory.buffer, from, count));
      for (const [i, view] of views.entries()) view.fill([1, value, 0, 0][i] as number);
      const job = (place: number) => reducer.prepareBeside(place, "f32", "sum", at.slice(0, 2), at.slice(2), 2);
      const isTaken = sender.reduce(memory, job, 4 * count, (isMade) => void made.push(isMade));
      return { isTaken, isRight: () => views.slice(2).every((view) => view.every((one) => one === 1 + value)) };
    };
    return { memory, made, sum };
  };
  /** Until both threads are there: they start one after the other, each when it is first asked for. */
  const started = async (sender: Sender) => {
    const { memory, sum } = sumsOf(sender);
    while (!sum(0, 50_000, 1).isTaken || sender.watched.length < 2) {
      sender.finish();
      sender.settle();
      await new Promise((resolve) => setImmediate(resolve));
    }
    sender.finish();
    sender.settle();
    sender.forget(memory);
  };

  it("are made by all threads together, whatever their size and memory", async () => {
    const random = new Random(seed);
    const sender = new Sender({ sendThread: "on", calls: socketCalls(), peers: [undefined, peer] });
    await started(sender);
    const [first, second] = [sumsOf(sender), sumsOf(sender)] as const;
    expect(first.sum(0, 100, 1).isTaken).toBe(false);
    for (let round = 0; round < 12; round++) {
      const { made, sum } = random.chance(0.5) ? first : second;
      made.length = 0;
      const sums = [0, 1, 2].map((nth) => sum(nth, 50_000 + random.below(14_000), round));
      expect(sums.map(({ isTaken }) => isTaken)).toEqual([true, true, true]);
      if (random.chance(0.2)) sender.finish();
      const helps = random.chance(0.7);
      while (made.length < 3) {
        if (!(helps && sender.help())) sender.settle();
        if (sender.hasNews) sender.settle();
      }
      expect(made).toEqual([true, true, true]);
      expect(sums.map(({ isRight }) => isRight())).toEqual([true, true, true]);
    }
    await sender.close();
  });

  it("are heard of in the next turn where this thread makes them all at once, for another group", async () => {
    const sender = new Sender({ sendThread: "on", calls: socketCalls(), peers: [undefined, peer] });
    await started(sender);
    const { made, sum } = sumsOf(sender);
    for (let round = 1; round <= 20; round++) {
      while (sender.hasNews);
      expect(sum(0, 60_000, round).isTaken).toBe(true);
      sender.finish();
      expect([made.length, sender.hasNews]).toEqual([round - 1, true]);
      sender.settle();
      expect(made.length).toBe(round);
    }
    await sender.close();
  });
});

it("sends large payloads over connections over which the other end sends none, where a pair has enough", () => {
  const of = (count: number) => Array.from({ length: count }, (_, index) => index);
  for (const count of [1, 2])
    for (const isLower of [true, false]) expect(forLarge(of(count), isLower)).toEqual(of(count));
  expect([true, false].map((isLower) => forLarge(of(3), isLower))).toEqual([[1], [2]]);
  expect([true, false].map((isLower) => forLarge(of(16), isLower).length)).toEqual([8, 7]);
  expect(forLarge(of(16), true).filter((index) => forLarge(of(16), false).includes(index))).toEqual([]);
});

it("has its thread begin with the connections of the next rank", () => {
  const peer = { sockets: Array(3) } as unknown as PeerSockets;
  const places = [0, 1, 2].map((rank) => Array.from({ length: 3 }, (_, one) => (one === rank ? undefined : peer)));
  expect(places.map(firstSlotOf)).toEqual([0, 3, 6]);
});
