/** A channel whose other end has left: what it said last is heard before a failed write is given as the cause. */
import { once } from "node:events";
import { connect } from "node:net";
import { Worker } from "node:worker_threads";
import { expect, it } from "vitest";
import { Channel } from "./channel.ts";

/**
 * A peer on a thread: it takes a connection, waits for a byte of it that it leaves unread, says `words`, and closes, which resets
 * the connection. `left[0]` becomes 1 then.
 */
const PEER = `
  const { createServer } = require("node:net");
  const { parentPort, workerData } = require("node:worker_threads");
  const server = createServer({ pauseOnConnect: true }, async (socket) => {
    await new Promise((resolve) => parentPort.once("message", resolve));
    const frames = workerData.words.map((word) => {
      const text = Buffer.from(JSON.stringify({ word }));
      const length = Buffer.alloc(4);
      length.writeUInt32BE(text.length);
      return Buffer.concat([length, text]);
    });
    socket.write(Buffer.concat(frames), () => {
      socket.once("close", () => {
        Atomics.store(workerData.left, 0, 1);
        Atomics.notify(workerData.left, 0);
      });
      socket.destroy();
      server.close();
    });
  }).listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
`;

it.skipIf(process.platform === "win32")("hears what the peer said last, though a write to it fails first", async () => {
  const words = Array.from({ length: 10 }, (_, i) => `${i} ${"x".repeat(1000)}`);
  const left = new Int32Array(new SharedArrayBuffer(4));
  const peer = new Worker(PEER, { eval: true, workerData: { words, left } });
  const ended = once(peer, "exit");
  const [port] = (await once(peer, "message")) as [number];
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  const heard: unknown[] = [];
  const end = new Promise<Error | undefined>((resolve) => {
    const channel = new Channel(socket, "peer", { message: ({ word }) => void heard.push(word), end: resolve });
    channel.send({ unread: true });
    peer.postMessage("leave");
    // This thread reads nothing until the peer has left.
    expect(Atomics.wait(left, 0, 0, 20_000)).not.toBe("timed-out");
    for (let i = 0; i < 3; i++) channel.send({ beat: i });
  });
  const error = (await end) as NodeJS.ErrnoException | undefined;
  expect(heard).toEqual(words);
  expect(["EPIPE", "ECONNRESET", undefined]).toContain(error?.code);
  await ended;
});
