/** What a peer that misbehaves can send: frames that are none, sizes that lie, control frames that were forged or repeated. */
import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FormatError } from "../../../core/index.ts";
import type { Connection } from "./connection.ts";
import { FLIGHT_BYTES, FlightLog, readFlightLog } from "./flight-log.ts";
import { HEAD_BYTES, type Head, KIND, MAX_CONTROL_BYTES, MAX_FRAME_BYTES, readHead, writeHead } from "./frame.ts";
import { GrantHolds, Link } from "./link.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
console.log(`tcp frames seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const uint32 = fc.integer({ min: 0, max: 2 ** 32 - 1 });
const wide = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });

describe("the head of a frame", () => {
  it("is read as it was written", () => {
    const heads = fc.record({
      kind: fc.constantFrom(KIND.grant, KIND.offer, KIND.credit, KIND.status, KIND.ask, KIND.close),
      bytes: fc.constant(0),
      group: fc.record({ low: int32, high: int32 }),
      lane: fc.constantFrom(0, 1),
      seq: uint32,
      slot: uint32,
      offset: wide,
      total: wide,
      print: fc.record({ call: int32, count: int32, hash: int32 }),
      extra: wide,
    });
    fc.assert(
      fc.property(heads, (head: Head) => {
        const words = new Int32Array(HEAD_BYTES / 4);
        writeHead(words, 0, head.kind, head, head.print, head.extra, head.offset, head.bytes, head.total);
        expect(readHead(words, "rank 1")).toEqual(head);
      }),
      { seed },
    );
  });

  it("is refused, or names no more bytes than a frame may have, whatever 64 bytes it is", () => {
    const mark = fc.constantFrom(...Object.values(KIND)).map((kind) => 0x43480000 | kind);
    const words = fc.tuple(fc.oneof(int32, mark), fc.array(int32, { minLength: 15, maxLength: 15 }));
    let numRead = 0;
    fc.assert(
      fc.property(words, ([first, rest]) => {
        try {
          const head = readHead(Int32Array.of(first, ...rest), "rank 1");
          numRead++;
          expect(head.bytes).toBeLessThanOrEqual(head.kind === KIND.control ? MAX_CONTROL_BYTES : MAX_FRAME_BYTES);
          if (head.kind === KIND.data) expect(head.offset + head.bytes).toBeLessThanOrEqual(head.total);
        } catch (error) {
          expect(error).toBeInstanceOf(FormatError);
        }
      }),
      { seed, numRuns: 20_000 },
    );
    expect(numRead).toBeLessThan(20_000);
  });

  it("says which rank sent what is none", () => {
    const words = new Int32Array(HEAD_BYTES / 4);
    expect(() => readHead(words, "rank 3 (127.0.0.1:9)")).toThrow(/rank 3 \(127.0.0.1:9\).*does not begin as one/);
  });
});

describe("grants", () => {
  /** A link, and what it writes: the numbers of messages that each write grants or carries. */
  const linkOf = () => {
    const writes: string[][] = [];
    const write = (bytes: Uint8Array, payload: Uint8Array | undefined) => {
      const words = new Int32Array(bytes.slice().buffer);
      const heads = Array.from({ length: bytes.length / HEAD_BYTES }, (_, i) =>
        readHead(words.subarray((i * HEAD_BYTES) / 4), "rank 1"),
      );
      writes.push(heads.map(({ kind, slot }) => `${kind === KIND.grant ? "grant" : "data"} ${slot}`));
      expect(heads.at(-1)?.bytes).toBe(payload?.length ?? 0);
    };
    const holds = new GrantHolds();
    const keys = { send: randomBytes(32), receive: randomBytes(32) };
    const link = new Link(1, "127.0.0.1:9", [{ isOver: false, write } as unknown as Connection], keys, holds);
    const name = (slot: number) => ({ group: { low: 1, high: 2 }, lane: 0, seq: 1, slot });
    const print = { call: 1, count: 2, hash: 3 };
    return { writes, holds, link, name, print, grant: (slot: number) => link.grant(name(slot), print, 1e6, 0) };
  };

  it("leave at once, or together while they are held, in their order", () => {
    const { writes, holds, grant } = linkOf();
    grant(1);
    holds.hold();
    holds.hold();
    grant(2);
    holds.release();
    for (let slot = 3; slot < 20; slot++) grant(slot);
    holds.release();
    grant(20);
    const slots = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => `grant ${from + i}`);
    expect(writes).toEqual([["grant 1"], slots(2, 17), slots(18, 19), ["grant 20"]]);
  });

  it("leave before what is written while they are held, with its head", () => {
    const { writes, holds, link, name, print, grant } = linkOf();
    holds.hold();
    grant(1);
    grant(2);
    link.sendLarge({ ...name(3), print, extra: 0, payload: new Uint8Array(100_000), done: () => {} });
    holds.release();
    expect(writes).toEqual([["grant 1", "grant 2", "data 3"]]);
  });
});

describe("control frames", () => {
  const [a, b] = [randomBytes(32), randomBytes(32)];
  /** A link whose frames are kept. */
  const linkOf = (keys: { send: Buffer; receive: Buffer }) => {
    const payloads: Uint8Array[] = [];
    const write = (_head: Uint8Array, payload: Uint8Array | undefined) => {
      if (payload !== undefined) payloads.push(payload.slice());
    };
    return { link: new Link(1, "127.0.0.1:9", [{ isOver: false, write } as unknown as Connection], keys), payloads };
  };

  it("are read in order, once, from the rank that signed them", () => {
    const { link: theirs, payloads } = linkOf({ send: a, receive: b });
    const { link: ours } = linkOf({ send: b, receive: a });
    theirs.control({ kind: "bye" });
    theirs.control({ kind: "rank-failed", rank: 2 });
    const [first, second] = payloads as [Uint8Array, Uint8Array];
    expect(ours.readControl(first)).toEqual({ kind: "bye" });
    expect(() => ours.readControl(first)).toThrow(/signature is wrong/);
    // The repeated one has taken a number: the connection ends there in practice.
    expect(() => ours.readControl(second)).toThrow(/rank 1 \(127.0.0.1:9\).*signature is wrong/);
  });

  it("are refused when a byte of them is another, or the key", () => {
    const { link: theirs, payloads } = linkOf({ send: a, receive: b });
    theirs.control({ kind: "bye" });
    const [payload] = payloads as [Uint8Array];
    for (let at = 0; at < payload.length; at += 5) {
      const forged = payload.slice();
      forged[at] = (forged[at] ?? 0) ^ 1;
      expect(() => linkOf({ send: b, receive: a }).link.readControl(forged)).toThrow(FormatError);
    }
    expect(() => linkOf({ send: b, receive: b }).link.readControl(payload)).toThrow(FormatError);
    expect(() => linkOf({ send: b, receive: a }).link.readControl(new Uint8Array(3))).toThrow(FormatError);
  });
});

describe("a rank's flight log", () => {
  it("is read from its bytes, the last 256 calls, oldest first, and nothing from bytes that are none", () => {
    const memory = new ArrayBuffer(FLIGHT_BYTES);
    const log = new FlightLog(memory);
    for (let seq = 0; seq < 300; seq++) log.reach(log.issue("world", seq, 11, 0, undefined), "done");
    const last = log.issue("a group", 7, 12, 5, 3);
    const entries = readFlightLog(new Uint8Array(memory));
    expect(entries).toHaveLength(256);
    expect(entries.map(({ seq }) => seq).slice(0, 2)).toEqual([45, 46]);
    expect(entries.at(-1)).toMatchObject({ group: "a group", seq: 7, op: "send", peer: 3, count: 5, state: "issued" });
    log.reach(last, "failed");
    expect(readFlightLog(new Uint8Array(memory)).at(-1)).toMatchObject({ state: "failed" });
    // A part of a larger buffer, as Node's own pool gives it.
    const part = Buffer.concat([Buffer.alloc(72, 1), Buffer.from(memory)]).subarray(72);
    expect(readFlightLog(part)).toEqual(readFlightLog(new Uint8Array(memory)));
    expect(readFlightLog(new Uint8Array(FLIGHT_BYTES))).toEqual([]);
    expect(readFlightLog(new Uint8Array(10))).toEqual([]);
  });
});
