/** The threads that write for a rank: one at a time, however slowly they start and end. */
import { Worker } from "node:worker_threads";
import { describe, expect, it, vi } from "vitest";
import { socketCalls } from "../../../foreign/native/index.ts";
import { ArenaReducer, newSharedMemory, PAGE_BYTES } from "../../executor/internal.ts";
import type { PeerSockets } from "./meet.ts";
import { SendThread } from "./send-thread.ts";
import { forLarge, Sender } from "./sender.ts";

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
    const thread = new SendThread(1, socketCalls());
    await thread.close();
    await thread.gone;
    expect(terminate).not.toHaveBeenCalled();
    terminate.mockRestore();
  });
});

it.skipIf(process.platform === "win32")(
  "makes sums by the thread that does nothing else, then by the one that writes, one at a time each",
  async () => {
    const peer = { sockets: Array(3).fill({ socket: {} }) } as unknown as PeerSockets;
    const sender = new Sender({ sendThread: "on", calls: socketCalls(), peers: [undefined, peer] });
    const memory = newSharedMemory(32, 32);
    let free = 64;
    const reducer = new ArenaReducer(memory, 2, (bytes) => {
      const at = free;
      free += bytes;
      return at;
    });
    const count = 2 ** 16;
    const at = [0, 1, 2, 3].map((nth) => (4 + 4 * nth) * PAGE_BYTES) as [number, number, number, number];
    const views = at.map((from) => new Float32Array(memory.buffer, from, count));
    const by: number[] = [];
    const made: boolean[] = [];
    const reduce = (inputs: readonly number[], outputs: readonly number[]) => {
      const job = (thread: number) => {
        by.push(thread);
        return reducer.prepareBeside(thread, "f32", "sum", inputs, outputs, 2);
      };
      return sender.reduce(memory, job, 4 * count, (isMade) => void made.push(isMade));
    };
    const [first, second, third, fourth] = at;
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    // They start one after the other, each when it is first asked for.
    for (const view of views) view.fill(1);
    while (!by.includes(0) || !by.includes(1)) {
      reduce([first, second], [third]);
      reduce([first, second], [fourth]);
      sender.finish();
      sender.settle();
      await turn();
    }
    views[0]?.fill(1);
    by.length = 0;
    expect([reduce([first, second], [third, fourth]), reduce([first, first], [first])]).toEqual([true, true]);
    expect(reduce([first, second], [third])).toBe(false);
    expect(by).toEqual([1, 0]);
    made.length = 0;
    sender.finish();
    sender.settle();
    expect(made).toEqual([true, true]);
    expect(views[0]?.every((value) => value === 2)).toBe(true);
    expect(views[3]?.every((value, i) => value === views[2]?.[i] && value >= 2)).toBe(true);
    expect(reduce([first, second], [third])).toBe(true);
    await sender.close();
  },
);

it("sends large payloads over connections over which the other end sends none, where a pair has enough", () => {
  const of = (count: number) => Array.from({ length: count }, (_, index) => index);
  for (const count of [1, 2])
    for (const isLower of [true, false]) expect(forLarge(of(count), isLower)).toEqual(of(count));
  expect([true, false].map((isLower) => forLarge(of(3), isLower))).toEqual([[1], [2]]);
  expect([true, false].map((isLower) => forLarge(of(16), isLower).length)).toEqual([8, 7]);
  expect(forLarge(of(16), true).filter((index) => forLarge(of(16), false).includes(index))).toEqual([]);
});
