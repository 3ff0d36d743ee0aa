/** A connection whose large payloads another thread writes: frames keep their order and bytes, and memory comes back when it is asked for. */
import { once } from "node:events";
import type { Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { socketPair } from "../../../../test/support/socket-pair.ts";
import { descriptorOf, socketCalls, WOULD_BLOCK } from "../../../foreign/native/index.ts";
import { Connection, type ConnectionListener, type Writer } from "./connection.ts";
import { HEAD_BYTES, type Head, KIND, writeHead } from "./frame.ts";
import { SendThread } from "./send-thread.ts";
import { newReductions } from "./shared-reductions.ts";

const LARGE = 1024 * 1024;
const SMALL = 1000;
const ended: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0)) await end();
});

/** Lets both ends go on until something holds; the test's own limit ends it otherwise. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}

const isAll = (payload: Uint8Array, value: number) => Buffer.alloc(payload.length, value).equals(payload);

async function startThread(): Promise<SendThread> {
  const thread = new SendThread(2, socketCalls(), newReductions());
  ended.push(() => thread.close());
  await until(() => thread.isReady);
  return thread;
}

async function pair(): Promise<readonly [Socket, Socket]> {
  const [near, far] = await socketPair();
  ended.push(() => {
    near.destroy();
    far.destroy();
  });
  return [near, far];
}

function writing(socket: Socket, writer: Writer) {
  const over: (string | undefined)[] = [];
  const listener: ConnectionListener = {
    begin: ({ bytes }) => new Uint8Array(bytes),
    end: () => {},
    over: (error) => void over.push(error?.message),
  };
  const connection = new Connection(socket, { peer: "rank 1", calls: socketCalls(), listener, writer, hasSums: false });
  return { connection, over };
}

/** The other end, which keeps what it reads. */
function reading(socket: Socket) {
  const frames: { readonly head: Head; readonly payload: Uint8Array }[] = [];
  const listener: ConnectionListener = {
    begin: ({ bytes }) => new Uint8Array(bytes),
    end: (head, payload) => void frames.push({ head, payload: payload.slice() }),
    over: () => {},
  };
  const connection = new Connection(socket, { peer: "rank 0", calls: socketCalls(), listener, hasSums: false });
  return { connection, frames };
}

function headOf(seq: number, bytes: number): Uint8Array {
  const words = new Int32Array(HEAD_BYTES / 4);
  const name = { group: { low: 1, high: 2 }, lane: 0, seq, slot: 0 };
  const print = { call: 0, count: 0, hash: 0 };
  writeHead(words, 0, bytes > 0 ? KIND.data : KIND.grant, name, print, 0, 0, bytes, bytes);
  return new Uint8Array(words.buffer);
}

describe.skipIf(process.platform === "win32")("a connection with a thread that writes", () => {
  it("keeps the order of small and large frames, and every byte", async () => {
    const thread = await startThread();
    const [near, far] = await pair();
    const { connection } = writing(near, { slot: 0, thread: () => thread });
    const other = reading(far);
    let numDone = 0;
    // More pieces than the thread takes at a time, and more bytes than the kernel does.
    const sizes = Array.from({ length: 60 }, (_, i) => (i % 3 === 0 ? LARGE : i % 3 === 1 ? 0 : SMALL));
    for (const [seq, size] of sizes.entries()) {
      const done = () => numDone++;
      connection.write(headOf(seq, size), new Uint8Array(size).fill(seq + 1), done);
      if (seq === 0) expect(connection.isLent).toBe(true);
    }
    await until(() => {
      other.connection.receive();
      if (thread.hasNews) connection.flush();
      return other.frames.length === sizes.length && !connection.isBlocked;
    });
    expect(numDone).toBe(sizes.length);
    expect(connection.isLent).toBe(false);
    expect(other.frames.map(({ head }) => head.seq)).toEqual([...sizes.keys()]);
    for (const { head, payload } of other.frames) {
      expect(payload.length).toBe(sizes[head.seq]);
      expect(isAll(payload, head.seq + 1)).toBe(true);
    }
  });

  it("writes to each connection in turn, that of the next rank first", async () => {
    const calls = socketCalls();
    const [near, far] = (await pair()).map((socket) => descriptorOf(socket) as number) as [number, number];
    const [whole, cut] = [LARGE / 2, LARGE / 2 + SMALL];
    const bytes = new Uint8Array(2 * (whole + cut));
    let [numSent, numReceived] = [0, 0];
    // Until the kernel takes as much at once as the thread is to write.
    for (let most = 0; most < bytes.length / 2; ) {
      const sent = calls.send(near, bytes, false);
      most = sent;
      if (sent !== WOULD_BLOCK) numSent += sent;
      while (numReceived < numSent) numReceived += Math.max(0, calls.receive(far, bytes));
    }
    // The same connection for two, so that their bytes are seen in the order in which they were written.
    const thread = new SendThread(2, calls, newReductions(), 1);
    ended.push(() => thread.close());
    const pieces = [whole, cut].map((size, slot) => new Uint8Array(size).fill(slot));
    for (const [slot, piece] of pieces.entries()) thread.give(slot, near, piece, false);
    const runs: number[] = [];
    let last: number | undefined;
    for (let left = whole + cut; left > 0; ) {
      const count = calls.receive(far, bytes);
      if (count === WOULD_BLOCK) await new Promise((resolve) => setImmediate(resolve));
      for (const value of bytes.subarray(0, Math.max(0, count))) {
        if (value !== last) runs.push(value);
        last = value;
      }
      left -= Math.max(0, count);
    }
    expect(runs).toEqual([1, 0, 1]);
    expect(pieces.map(([first]) => first)).toEqual([0, 1]);
  });

  it("gives a program's memory back in the midst of a frame, whose other bytes are those of then", async () => {
    const thread = await startThread();
    const [near, far] = await pair();
    const { connection } = writing(near, { slot: 0, thread: () => thread });
    const other = reading(far);
    const payloads = Array.from({ length: 12 }, (_, i) => new Uint8Array(LARGE).fill(i + 1));
    let numDone = 0;
    for (const [seq, payload] of payloads.entries()) connection.write(headOf(seq, LARGE), payload, () => numDone++);
    // The other end reads nothing: the kernel's buffers are full by the time that some of them were written.
    await until(() => {
      if (thread.hasNews) connection.flush();
      return numDone > 0;
    });
    expect(connection.isBlocked).toBe(true);
    connection.letGo(() => false);
    expect(connection.isLent).toBe(false);
    for (const payload of payloads) payload.fill(255);
    await until(() => {
      other.connection.receive();
      connection.flush();
      return other.frames.length === payloads.length;
    });
    expect(numDone).toBe(payloads.length);
    for (const { head, payload } of other.frames) expect(isAll(payload, head.seq + 1)).toBe(true);
  });

  it("ends with memory that nobody reads any more, and hears of a peer that is gone", async () => {
    const thread = await startThread();
    const [near, far] = await pair();
    const { connection, over } = writing(near, { slot: 0, thread: () => thread });
    far.resetAndDestroy();
    await once(far, "close");
    // The first bytes meet the reset.
    for (let seq = 0; seq < 3; seq++) connection.write(headOf(seq, LARGE), new Uint8Array(LARGE), () => {});
    await until(() => {
      if (thread.hasNews) connection.flush();
      connection.receive();
      return over.length > 0;
    });
    expect(over).toEqual([expect.stringMatching(/^the connection broke: E(PIPE|CONNRESET)$/)]);
    expect(connection.isLent).toBe(false);

    // One that never reads, and one that ends in the midst of it.
    const [second] = await pair();
    const blocked = writing(second, { slot: 1, thread: () => thread });
    for (let seq = 0; seq < 12; seq++) blocked.connection.write(headOf(seq, LARGE), new Uint8Array(LARGE), () => {});
    expect(blocked.connection.isLent).toBe(true);
    blocked.connection.finish(undefined);
    expect(blocked.connection.isLent).toBe(false);
    expect(blocked.over).toEqual([undefined]);
    expect(thread.take(1).sent).toBe(0);
  });

  it("writes by itself before the thread is there, and after it has ended", async () => {
    const [near, far] = await pair();
    const thread = new SendThread(1, socketCalls(), newReductions());
    await thread.close();
    const { connection } = writing(near, { slot: 0, thread: () => (thread.isReady ? thread : undefined) });
    const other = reading(far);
    connection.write(headOf(0, LARGE), new Uint8Array(LARGE).fill(7), () => {});
    expect(connection.isLent).toBe(false);
    await until(() => {
      other.connection.receive();
      connection.flush();
      return other.frames.length === 1;
    });
    expect(other.frames.map(({ payload }) => isAll(payload, 7))).toEqual([true]);
  });
});
