/**
 * A rank of the world that exceeds the protocol's limits: what is kept for it is bounded, it is named, and only its world ends.
 * And one that keeps to the window at its edge, which nobody refuses.
 */
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { World } from "chorale";
import { launch } from "chorale/world";
import { describe, expect, it } from "vitest";
import { type SocketCalls, socketCalls, WOULD_BLOCK } from "../../../foreign/native/index.ts";
import { TCP_CAPABILITIES } from "./capabilities.ts";
import type { Connection } from "./connection.ts";
import { FLIGHT_BYTES, FlightLog } from "./flight-log.ts";
import { EAGER_BYTES, type FrameKind, HEAD_BYTES, KIND, MAX_FRAME_BYTES, writeHead } from "./frame.ts";
import { Link } from "./link.ts";
import { TcpRank } from "./tcp-rank.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
console.log(`hostile tcp rank seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

/** Of the world of two ranks, generation 0: see `TcpRank`. */
const worldHash = createHash("sha256").update("0 world [0,1]").digest();
const WORLD = { low: worldHash.readInt32LE(0), high: worldHash.readInt32LE(4) };
/** More than any limit. */
const MOST_SENT_BYTES = 24 * 1024 * 1024;

interface Frame {
  readonly kind: FrameKind;
  readonly bytes: number;
  readonly total?: number;
  /** Of a group that this rank has opened. */
  readonly isKnown: boolean;
  readonly lane: number;
  readonly seq: number;
  readonly slot: number;
}

function bytesOf({ kind, bytes, total = bytes, isKnown, lane, seq, slot }: Frame): Uint8Array {
  const frame = new Uint8Array(HEAD_BYTES + bytes);
  const group = isKnown ? WORLD : { low: seq % 7, high: 5 };
  const name = { group, lane, seq, slot };
  const words = new Int32Array(frame.buffer, 0, HEAD_BYTES / 4);
  writeHead(words, 0, kind, name, { call: 0, count: 0, hash: 0 }, 0, 0, bytes, total);
  return frame;
}

/** Rank 0 of a world whose rank 1 is the test. */
async function makeVictim(calls: SocketCalls) {
  const server = createServer({ pauseOnConnect: true }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const far = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [near] = (await once(server, "connection")) as [Socket];
  server.close();
  far.on("error", () => {});
  const [a, b] = [randomBytes(32), randomBytes(32)];
  const socket = { socket: near, rest: new Uint8Array(0), keys: { send: a, receive: b } };
  const victim = new TcpRank({
    ...{ rank: 0, worldSize: 2, generation: 0, timeoutMs: 60_000, strictWork: false, capabilities: TCP_CAPABILITIES },
    ...{
      hierarchy: "off",
      sendThread: "off",
      checksum: "off",
      hostMark: undefined,
      folder: undefined,
      tensors: undefined,
    },
    flight: new FlightLog(new ArrayBuffer(FLIGHT_BYTES)),
    calls,
    peers: [undefined, { sockets: [socket], address: "127.0.0.1:9", keys: { send: a, receive: b } }],
  });
  const controls: Uint8Array[] = [];
  const write = (head: Uint8Array, payload: Uint8Array) => void controls.push(Buffer.concat([head, payload]));
  const signer = new Link(0, "", [{ isOver: false, write } as unknown as Connection], { send: b, receive: a });
  const sign = (value: object) => {
    signer.control(value);
    return controls.pop() as Uint8Array;
  };
  return { victim, far, sign };
}

/** Sends until the world has failed, or all limits should have been met. @returns what the world failed of */
async function attack(
  next: (sign: (value: object) => Uint8Array) => Uint8Array,
  calls: SocketCalls = socketCalls(),
): Promise<string> {
  const { victim, far, sign } = await makeVictim(calls);
  try {
    for (let sent = 0; sent < MOST_SENT_BYTES && victim.failure === undefined; ) {
      const frames: Uint8Array[] = [];
      for (let bytes = 0; bytes < 64 * 1024; bytes += frames.at(-1)?.length ?? 0) frames.push(next(sign));
      sent += frames.reduce((sum, { length }) => sum + length, 0);
      if (far.write(Buffer.concat(frames)) || far.destroyed) continue;
      await new Promise<void>((resolve) => {
        for (const event of ["drain", "close"]) far.once(event, () => resolve());
      });
    }
    far.end();
    if (!far.destroyed) await new Promise((resolve) => far.once("close", resolve));
    return JSON.stringify(victim.failure) ?? "nothing";
  } finally {
    far.destroy();
    victim.abandon(new Error("over"), "over");
  }
}

/** A generator of whole numbers below `limit`, the same for a seed (Numerical Recipes' generator). */
function numbersOf(seed: number): (limit: number) => number {
  let state = seed >>> 0;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

describe.skipIf(process.platform === "win32")("a rank that sends more than this one has room for", () => {
  /** Frames of some kinds, of any message. */
  const flood = async (kinds: readonly FrameKind[], most: { readonly bytes: number; readonly isKnown: boolean }) => {
    const below = numbersOf(seed);
    const found = await attack(() =>
      bytesOf({
        kind: kinds[below(kinds.length)] as FrameKind,
        bytes: below(2) === 0 ? most.bytes : below(most.bytes + 1),
        isKnown: most.isKnown && below(2) === 0,
        lane: below(2),
        seq: below(2 ** 31),
        slot: below(2 ** 20),
      }),
    );
    expect(found).toMatch(/"RANK_FAILED".*rank 1.*expected at most \d+/);
  };

  it("is refused small messages beyond the window", () => flood([KIND.data], { bytes: EAGER_BYTES, isKnown: true }));
  it("is refused many small messages without data", () => flood([KIND.data], { bytes: 0, isKnown: true }));
  it("is refused many grants and offers of messages that there are not", () =>
    flood([KIND.grant, KIND.offer], { bytes: 0, isKnown: true }));
  it("is refused many frames for groups that this rank has not opened", () =>
    flood([KIND.grant, KIND.offer, KIND.close, KIND.ask, KIND.raise], { bytes: 0, isKnown: false }));

  it("is refused many failures of groups that this rank has not opened", async () => {
    let nth = 0;
    const failure = JSON.stringify({ code: "ABORTED", message: "x".repeat(50_000), reason: "x" });
    const found = await attack((sign) => sign({ kind: "failed", group: [nth++, 1], seq: 1, failure }));
    expect(found).toMatch(/"RANK_FAILED".*rank 1.*has not opened; expected at most/);
  });

  it.each([
    [
      "large data for a group that this rank has not opened",
      { isKnown: false, bytes: MAX_FRAME_BYTES },
      /has not opened/,
    ],
    ["large data that it was not asked for", { isKnown: true, bytes: MAX_FRAME_BYTES }, /has not asked for/],
    ["a small message in pieces", { isKnown: true, bytes: 8, total: 16 }, /sent 8 of 16 bytes/],
  ])("is refused %s", async (_, frame, message) => {
    const found = await attack(() => bytesOf({ kind: KIND.data, lane: 1, seq: 1, slot: 0, ...frame }));
    expect(found).toMatch(message);
  });

  it.each([
    ["questions for its last call", KIND.ask],
    ["questions whether its data is there", KIND.fence],
  ])("is refused many %s of which it reads no answer", async (_, kind) => {
    let seq = 0;
    const unread: SocketCalls = { ...socketCalls(), send: () => WOULD_BLOCK };
    const found = await attack(() => bytesOf({ kind, bytes: 0, isKnown: true, lane: 0, seq: seq++, slot: 0 }), unread);
    expect(found).toMatch(/"RANK_FAILED".*rank 1.*does not read.*expected at most \d+ answers/);
  });

  it("cannot say that ranks have failed which the world does not have", async () => {
    const found = await attack((sign) => sign({ kind: "rank-failed", rank: 2, cause: "" }));
    expect(found).toMatch(/"RANK_FAILED".*said that rank 2 failed/);
  });
});

/** Rank 1 sends as much as rank 0 has room for, and more, before that receives anything; over two groups, one of them not open yet. */
async function fillWindow(world: World): Promise<boolean> {
  const { comm, rank } = world;
  const sizes = Array.from({ length: 1500 }, (_, i) => [8192, 1, 0, 2048][i % 4] as number);
  const early = rank === 1 ? await comm.split(0) : undefined;
  if (rank === 1) {
    const sends = sizes.flatMap((size, i) => [comm.send(new Float32Array(size).fill(i), 0)]);
    for (const sent of sends) await sent;
    for (const [i, size] of sizes.entries()) await early?.send(new Float32Array(size).fill(i), 0);
    return true;
  }
  await new Promise((resolve) => setTimeout(resolve, 50));
  const group = await comm.split(0);
  let isRight = true;
  for (const from of [comm, group]) {
    for (const [i, size] of sizes.entries()) {
      const got = new Float32Array(size);
      await from?.recv(got, 1);
      isRight &&= got.every((one) => one === i);
    }
  }
  return isRight;
}

it("does not refuse a rank that fills the window again and again (tcp)", async () => {
  const options = { ranks: 2, backend: "tcp", isolation: "thread", timeoutMs: 60_000 } as const;
  expect(await launch({ ...options, run: fillWindow })).toEqual([true, true]);
});
