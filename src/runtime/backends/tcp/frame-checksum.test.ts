/** Frames with checksums, from end to end of a connection: whole ones pass at every size, and one wrong bit ends it. */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { crc32 } from "node:zlib";
import { afterEach, describe, expect, it } from "vitest";
import { FormatError } from "../../../core/index.ts";
import { socketCalls } from "../../../foreign/native/index.ts";
import { packCall } from "../../comm/index.ts";
import type { FarRun } from "../../executor/internal.ts";
import { Connection, type Writer } from "./connection.ts";
import { COPIED_BYTES, EAGER_BYTES, type Head, KIND, MAX_FRAME_BYTES, writeHead } from "./frame.ts";
import { addToSum, SUMMED_HEAD_BYTES, sealHead, verifyHead, verifyPayload } from "./frame-checksum.ts";
import type { Inbox } from "./inbox.ts";
import { GrantHolds, Link } from "./link.ts";
import { PlanFrames } from "./plan-frames.ts";
import type { PlanMemory } from "./plan-memory.ts";
import { SendThread } from "./send-thread.ts";
import { newReductions } from "./shared-reductions.ts";

const ended: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0)) await end();
});

const PRINT = { call: packCall("all_reduce", "f32", "sum", 0), count: 1000, hash: 0 };
const nameOf = (seq: number) => ({ group: { low: 1, high: 2 }, lane: 0, seq, slot: 1 });

/** A frame's head with its sums, and a head in front that is another frame's. */
function sealed(payload: Uint8Array) {
  const bytes = new Uint8Array(2 * SUMMED_HEAD_BYTES);
  const words = new Int32Array(bytes.buffer);
  const at = SUMMED_HEAD_BYTES;
  writeHead(words, at / 4, KIND.data, nameOf(7), PRINT, 0, 0, payload.length, payload.length);
  sealHead(bytes, words, at, payload);
  return bytes.slice(at);
}
const verified = (bytes: Uint8Array<ArrayBuffer>) => verifyHead(bytes, new Int32Array(bytes.buffer), "rank 1", 12);

describe("the checksum of a frame", () => {
  it("is CRC-32, of the payload and of the head", () => {
    // The check value of CRC-32 in every catalogue.
    const bytes = sealed(Buffer.from("123456789"));
    expect(verified(bytes)).toBe(0xcbf43926);
    expect(new Int32Array(bytes.buffer)[17]).toBe(crc32(bytes.subarray(0, 68)) | 0);
  });

  it("finds every single bit of a head, and says which frame it was", () => {
    const bytes = sealed(new Uint8Array(5));
    for (let bit = 0; bit < 8 * SUMMED_HEAD_BYTES; bit++) {
      const damaged = bytes.slice();
      damaged[bit >> 3]! ^= 1 << (bit & 7);
      expect(() => verified(damaged)).toThrow(FormatError);
    }
    bytes[4]! ^= 64;
    expect(() => verified(bytes)).toThrow(
      /^rank 1: sent frame 12 of this connection with a wrong checksum: its head \(72 bytes\) has the sum 0x[0-9a-f]{8} and says 0x[0-9a-f]{8}\./,
    );
  });

  it("finds every single bit of a payload, part by part, and says what it was of", () => {
    const payload = randomBytes(61);
    const said = verified(sealed(payload));
    const sumOf = (from: Uint8Array) => [from.subarray(0, 13), from.subarray(13)].reduce((s, p) => addToSum(p, s), 0);
    const head: Head = { kind: KIND.data, ...nameOf(7), bytes: 61, offset: 10, total: 400, print: PRINT, extra: 0 };
    expect(() => verifyPayload(head, sumOf(payload), said, "rank 1", 12)).not.toThrow();
    for (let bit = 0; bit < 8 * payload.length; bit++) {
      payload[bit >> 3]! ^= 1 << (bit & 7);
      expect(() => verifyPayload(head, sumOf(payload), said, "rank 1", 12)).toThrow(
        /^rank 1: sent frame 12 .*its 61 bytes, data 10 to 71 of 400 of all_reduce\(f32\[1000\], sum\) #7, have the sum 0x[0-9a-f]{8}, and its head says 0x[0-9a-f]{8}/,
      );
      payload[bit >> 3]! ^= 1 << (bit & 7);
    }
    const control = { ...head, kind: KIND.control };
    expect(() => verifyPayload(control, 1, 2, "rank 1", 3)).toThrow(
      /61 bytes, of a control frame, have the sum 0x00000001/,
    );
  });
});

describe("packets of a plan", () => {
  /** A place for packets, as a strand of this rank sees it, and what writes there. */
  const placeOf = (hasSums: boolean) => {
    const memory = new Uint8Array(64);
    const bytes = (at: number, length: number) => memory.subarray(at, at + length);
    const inbox = { link: { rank: 1, hasSums } } as unknown as Inbox;
    const frames = new PlanFrames(nameOf(7).group, [undefined, inbox], { bytes } as unknown as PlanMemory);
    let numChanged = 0;
    const run = { place: () => 8, changed: () => void numChanged++ } as unknown as FarRun;
    frames.begin({ seq: 7, print: PRINT, run });
    // Form 2 of the first buffer: packets as they are, of 4 bytes of data each.
    const head: Head = {
      kind: KIND.put,
      ...nameOf(7),
      slot: 2,
      bytes: 16,
      offset: 0,
      total: 8,
      print: PRINT,
      extra: 0,
    };
    return { memory, frames, head, changes: () => numChanged };
  };

  it("come to their place when they are verified, for their flags are taken at once", () => {
    const { memory, frames, head, changes } = placeOf(true);
    const payload = frames.place(1, head);
    payload?.fill(7);
    expect(memory.every((byte) => byte === 0)).toBe(true);
    frames.arrived(1, head, payload as Uint8Array);
    expect([...memory.subarray(0, 32)]).toEqual([...Array(8).fill(0), ...Array(16).fill(7), ...Array(8).fill(0)]);
    expect(changes()).toBe(1);
  });

  it("are read straight to their place without checksums", () => {
    const { memory, frames, head } = placeOf(false);
    frames.place(1, head)?.fill(7);
    expect(memory[8]).toBe(7);
  });
});

/** Two ends of a way on which `damage` may change what passes. */
async function way(damage: (bytes: Buffer, at: number) => void): Promise<readonly [Socket, Socket]> {
  const server = createServer({ pauseOnConnect: true }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const sockets: Socket[] = [];
  for (let i = 0; i < 2; i++) {
    const accepted = once(server, "connection") as Promise<[Socket]>;
    const near = connect(port, "127.0.0.1");
    const [[far]] = await Promise.all([accepted, once(near, "connect")]);
    sockets.push(near, far);
  }
  server.close();
  ended.push(() => {
    for (const socket of sockets) socket.destroy();
  });
  const [near, in1, out1, far] = sockets as [Socket, Socket, Socket, Socket];
  let at = 0;
  in1.on("data", (chunk: Buffer) => {
    damage(chunk, at);
    at += chunk.length;
    if (!out1.write(chunk)) {
      in1.pause();
      out1.once("drain", () => in1.resume());
    }
  });
  in1.on("error", () => {});
  out1.on("error", () => {});
  in1.resume();
  return [near.pause(), far];
}

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}

/** A link that sends, and what the other end hears of it. */
async function ends(damage: (bytes: Buffer, at: number) => void = () => {}, writer?: Writer) {
  const [near, far] = await way(damage);
  const heard: { head: Head; payload: Uint8Array }[] = [];
  const over: string[] = [];
  const begin = ({ bytes }: Head) => new Uint8Array(bytes);
  const own = { calls: socketCalls(), hasSums: true };
  const sender = new Connection(near, {
    ...own,
    peer: "rank 1",
    listener: { begin, end: () => {}, over: () => {} },
    ...(writer && { writer }),
  });
  const receiver = new Connection(far, {
    ...own,
    peer: "rank 0 (here)",
    listener: {
      begin,
      end: (head, payload) => void heard.push({ head, payload }),
      over: (error) => void over.push(error?.message ?? ""),
    },
  });
  const keys = { send: randomBytes(32), receive: randomBytes(32) };
  const holds = new GrantHolds();
  const link = new Link(1, "there", [sender], keys, holds);
  const go = (isDone: () => boolean) =>
    until(() => {
      sender.flush();
      receiver.receive();
      return isDone();
    });
  return { link, heard, over, holds, go };
}

const SIZES = [
  0,
  1,
  3,
  63,
  4095,
  COPIED_BYTES,
  COPIED_BYTES + 1,
  EAGER_BYTES,
  40_001,
  400_003,
  2 * MAX_FRAME_BYTES + 5,
];

describe.skipIf(process.platform === "win32")("a connection with checksums", () => {
  for (const isThreaded of [false, true])
    it(`passes frames of every size, which ${isThreaded ? "another thread" : "the rank's own thread"} writes`, async () => {
      let writer: Writer | undefined;
      let numAsked = 0;
      if (isThreaded) {
        const thread = new SendThread(1, socketCalls(), newReductions());
        ended.push(() => thread.close());
        await until(() => thread.isReady);
        writer = {
          slot: 0,
          thread: () => {
            numAsked++;
            return thread;
          },
        };
      }
      const { link, heard, over, holds, go } = await ends(() => {}, writer);
      const payloads = SIZES.map((size) => randomBytes(size));
      let numDone = 0;
      for (const [seq, payload] of payloads.entries()) {
        holds.hold();
        for (let i = 0; i < 20; i++) link.grant(nameOf(seq), PRINT, 1e6, 0);
        const message = { ...nameOf(seq), print: PRINT, extra: 0, payload, done: () => void numDone++ };
        if (payload.length <= EAGER_BYTES) link.sendSmall(message);
        else link.sendLarge(message);
        holds.release();
        link.control({ kind: "anything", seq });
      }
      await go(() => over.length > 0 || heard.filter(({ head }) => head.kind === KIND.control).length === SIZES.length);
      expect(over).toEqual([]);
      expect(numDone).toBe(SIZES.length);
      if (isThreaded) expect(numAsked).toBeGreaterThan(0);
      for (const [seq, payload] of payloads.entries()) {
        const of = heard.filter(({ head }) => head.kind === KIND.data && head.seq === seq);
        expect(Buffer.concat(of.map((one) => one.payload)).equals(payload)).toBe(true);
      }
      expect(heard.filter(({ head }) => head.kind === KIND.grant)).toHaveLength(20 * SIZES.length);
    });

  /** Where a bit is flipped of three frames of 100,000 bytes each, and what is heard of them. */
  const FRAME = SUMMED_HEAD_BYTES + 100_000;
  const cases = [
    ["a payload's first byte", FRAME + SUMMED_HEAD_BYTES, /frame 2 .*its 100000 bytes, data 0 to 100000 .*all_reduce/],
    ["a payload's last byte", 2 * FRAME - 1, /frame 2 .*its 100000 bytes/],
    ["a head's length", FRAME + 6, /frame 2 .*its head \(72 bytes\)/],
    ["a head's mark", FRAME + 3, /frame 2 .*its head/],
    ["a head's sums", FRAME + 70, /frame 2 .*its head/],
  ] as const;
  for (const [what, where, message] of cases)
    it(`ends at a flipped bit in ${what}, and gives nothing of that frame`, async () => {
      const { link, heard, over, go } = await ends((bytes, at) => {
        if (where >= at && where < at + bytes.length) bytes[where - at]! ^= 16;
      });
      for (let seq = 0; seq < 3; seq++) {
        const payload = new Uint8Array(100_000).fill(seq);
        link.sendLarge({ ...nameOf(seq), print: PRINT, extra: 0, payload, done: () => {} });
      }
      await go(() => over.length > 0);
      expect(over).toEqual([expect.stringMatching(message)]);
      expect(over[0]).toMatch(/^rank 0 \(here\): sent/);
      expect(heard.map(({ head }) => head.seq)).toEqual([0]);
    });
});
