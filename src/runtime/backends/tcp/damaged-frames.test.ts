/** A world with checksums whose way between two ranks damages data: the call fails on every rank, and nothing wrong is returned. */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { World } from "chorale";
import { launch } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import { Authority, writeTls } from "../../../../test/support/certificates.ts";
import { socketPair } from "../../../../test/support/socket-pair.ts";
import { socketCalls } from "../../../foreign/native/index.ts";
import { closeRankPool, runRanks } from "../../world/index.ts";
import { TCP_CAPABILITIES } from "./capabilities.ts";
import { FLIGHT_BYTES, FlightLog } from "./flight-log.ts";
import type { PeerSockets } from "./meet.ts";
import type { ChecksumMode } from "./tcp-handle.ts";
import { TcpRank } from "./tcp-rank.ts";

afterAll(closeRankPool);

const SIZE = 3;

/** Two connected sockets. */
async function pair(): Promise<readonly [Socket, Socket]> {
  const [near, far] = await socketPair();
  for (const socket of [near, far]) socket.on("error", () => {});
  return [near, far];
}

/** Three ranks in this thread; what rank 1 sends rank 0 goes through a forwarder, which `damage` may change. */
async function worldOf(checksum: ChecksumMode, damage: (bytes: Buffer, at: number) => void) {
  const peers: (PeerSockets | undefined)[][] = Array.from({ length: SIZE }, () => Array(SIZE).fill(undefined));
  const join = (a: number, b: number, ofA: Socket, ofB: Socket) => {
    const [toA, toB] = [randomBytes(32), randomBytes(32)];
    const put = (rank: number, other: number, socket: Socket, keys: { send: Buffer; receive: Buffer }) => {
      const list = peers[rank] as (PeerSockets | undefined)[];
      list[other] = { sockets: [{ socket, rest: new Uint8Array(0), keys }], address: `host of ${other}`, keys };
    };
    put(a, b, ofA, { send: toB, receive: toA });
    put(b, a, ofB, { send: toA, receive: toB });
  };
  for (const other of [0, 1]) join(other, 2, ...(await pair()));
  const [zero, nearZero] = await pair();
  const [one, nearOne] = await pair();
  join(0, 1, zero, one);
  let at = 0;
  nearOne.on("data", (chunk: Buffer) => {
    damage(chunk, at);
    at += chunk.length;
    nearZero.write(chunk);
  });
  nearZero.on("data", (chunk: Buffer) => nearOne.write(chunk));
  // An end of either is the end of both.
  nearOne.on("close", () => nearZero.destroy());
  nearZero.on("close", () => nearOne.destroy());
  nearOne.resume();
  nearZero.resume();
  const ranks = peers.map(
    (list, rank) =>
      new TcpRank({
        ...{ rank, worldSize: SIZE, generation: 0, timeoutMs: 30_000, strictWork: false },
        ...{ hierarchy: "off", sendThread: "off", checksum, hostMark: undefined, folder: undefined },
        ...{ capabilities: TCP_CAPABILITIES, tensors: undefined },
        flight: new FlightLog(new ArrayBuffer(FLIGHT_BYTES)),
        calls: socketCalls(),
        peers: list,
      }),
  );
  return {
    ranks,
    end: () => {
      for (const rank of ranks) rank.abandon(new Error("over"), "over");
      for (const socket of [nearZero, nearOne]) socket.destroy();
    },
  };
}

/** All-reduces until one fails. @returns by rank: what it failed of, and how many results were wrong */
async function reduceUntilItFails(ranks: readonly TcpRank[], count: number, calls: number) {
  return Promise.all(
    ranks.map(async ({ world }, rank) => {
      let wrong = 0;
      for (let call = 0; call < calls; call++) {
        const x = Float32Array.from({ length: count }, (_, i) => rank + (i % 100) + call);
        try {
          await world.allReduce(x);
        } catch (error) {
          return { wrong, call, why: `${(error as { code?: string }).code}: ${(error as Error).message}` };
        }
        wrong += x.filter((value, i) => value !== 3 + 3 * ((i % 100) + call)).length;
      }
      return { wrong, call: calls, why: "" };
    }),
  );
}

describe.skipIf(process.platform === "win32")("a way that damages data between two ranks", () => {
  for (const count of [3, 5_001, 300_001])
    it(`fails an all-reduce of ${count} elements on every rank, and names who sent it`, {
      timeout: 60_000,
    }, async () => {
      // Some way into the third call or so.
      const where = 72 * 10 + 8 * count;
      const { ranks, end } = await worldOf("on", (bytes, at) => {
        if (where >= at && where < at + bytes.length) bytes[where - at]! ^= 1;
      });
      try {
        const found = await reduceUntilItFails(ranks, count, 40);
        const calls = new Set(found.map(({ call }) => call));
        expect(found.map(({ wrong }) => wrong)).toEqual([0, 0, 0]);
        // A rank may have its result of a call which fails on others that wait for what is damaged.
        expect(Math.max(...calls) - Math.min(...calls)).toBeLessThanOrEqual(1);
        expect(Math.max(...calls)).toBeLessThan(40);
        for (const { why } of found) expect(why).toMatch(/^RANK_FAILED: /);
        expect(found[0]?.why).toMatch(/rank 1 \(host of 1\): sent frame \d+ of this connection with a wrong checksum/);
        expect(found[2]?.why).toMatch(/wrong checksum/);
        // Who sent it is told why, and not only that its peer is gone, unless more is on its way to the one that ends the connection: then
        // the system may drop what that one said last.
        const told =
          /rank 1 failed .*: rank 0 \(host of 0\) refused what it received of this one: rank 1 \(host of 1\): sent frame \d+ .* wrong checksum/s;
        const dropped = /rank 0 failed .*: its connection ended without a farewell/;
        expect(found[1]?.why).toMatch(count === 3 ? told : new RegExp(`${told.source}|${dropped.source}`, "s"));
      } finally {
        end();
      }
    });

  it("is not noticed without checksums, which is why there are some", { timeout: 60_000 }, async () => {
    const { ranks, end } = await worldOf("off", (bytes, at) => {
      const where = 64 * 10 + 600_000;
      if (where >= at && where < at + bytes.length) bytes[where - at]! ^= 1;
    });
    try {
      const found = await reduceUntilItFails(ranks, 300_001, 3);
      expect(found.map(({ why }) => why)).toEqual(["", "", ""]);
      expect(found.reduce((sum, { wrong }) => sum + wrong, 0)).toBeGreaterThan(0);
    } finally {
      end();
    }
  });

  it("leaves what is whole alone, also over TLS and several connections that another thread writes", {
    timeout: 60_000,
  }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "chorale-checksum-"));
    try {
      const found = await launch({
        ranks: 2,
        backend: "tcp",
        tls: writeTls(folder, new Authority()),
        backendOptions: { checksum: "on", hierarchy: "off", sendThread: "on", connections: 3 },
        timeoutMs: 60_000,
        run: async ({ comm, rank }: World) => {
          const wrong: number[] = [];
          for (const count of [1, 1_001, 300_001, 1_000_001]) {
            const x = new Float32Array(count).fill(rank + 1);
            await comm.allReduce(x);
            if (!x.every((value) => value === 3)) wrong.push(count);
          }
          return wrong;
        },
      });
      expect(found).toEqual([[], []]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("leaves plans right, whose packets are verified before a strand takes them", { timeout: 60_000 }, async () => {
    const wrongs = await runRanks(
      2,
      async ({ comm, rank, size: n }) => {
        const { ALGORITHMS } = await import("chorale/algorithms");
        const { compile } = await import("chorale/language");
        const wrong: string[] = [];
        let numRun = 0;
        for (const { name, collective, legal, make } of ALGORITHMS) {
          if (!legal(n) || collective !== "all_reduce" || !/packet|ring-all|one-shot-read/.test(name)) continue;
          const plan = compile(make({ numRanks: n }), { verify: false });
          numRun++;
          for (const count of [5, 40_001]) {
            const input = Int32Array.from({ length: count }, (_, i) => rank + i);
            const output = new Int32Array(count);
            await comm.run(plan, { force: true, input, output });
            if (!output.every((value, i) => value === 2 * i + 1)) wrong.push(`${name}, ${count} elements`);
          }
        }
        return [numRun > 2, wrong];
      },
      { backend: "tcp", isolation: "thread", backendOptions: { checksum: "on" } },
    );
    expect(wrongs).toEqual([
      [true, []],
      [true, []],
    ]);
  });
});
