/** The threads that write for a rank: one at a time, however slowly they start and end. */
import { Worker } from "node:worker_threads";
import { describe, expect, it, vi } from "vitest";
import { socketCalls } from "../../../foreign/native/index.ts";
import { SendThread } from "./send-thread.ts";
import { forLarge, Sender } from "./sender.ts";

const newSender = () => new Sender({ sendThread: "on", calls: socketCalls(), peers: [] });
const hasThread = (sender: Sender) => sender.watched[0] >= 0;

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

it("sends large payloads over connections over which the other end sends none, where a pair has enough", () => {
  const of = (count: number) => Array.from({ length: count }, (_, index) => index);
  for (const count of [1, 2])
    for (const isLower of [true, false]) expect(forLarge(of(count), isLower)).toEqual(of(count));
  expect([true, false].map((isLower) => forLarge(of(3), isLower))).toEqual([[1], [2]]);
  expect([true, false].map((isLower) => forLarge(of(16), isLower).length)).toEqual([8, 7]);
  expect(forLarge(of(16), true).filter((index) => forLarge(of(16), false).includes(index))).toEqual([]);
});
