/** What every Bootstrap must do, run over the launcher's message port and over the rendezvous' TCP store. */
import { randomBytes } from "node:crypto";
import { afterEach, describe, expect, it } from "vitest";
import { ClosedError, InvalidArgumentError, TimeoutError } from "../../core/index.ts";
import type { Bootstrap } from "../comm/index.ts";
import { BootstrapStore, PortBootstrap } from "../world/bootstrap.ts";
import type { Claims } from "./handshake.ts";
import { RendezvousStore } from "./rendezvous-store.ts";
import { TcpBootstrap } from "./tcp-bootstrap.ts";

type Ending = Bootstrap & { close(cause?: Error): void };
const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

/** Over channels that serialise, as ports of threads and sockets of processes do, and deliver later. */
async function overPorts(numRanks: number): Promise<Ending[]> {
  const store = new BootstrapStore(1);
  return Array.from({ length: numRanks }, (_, rank) => {
    const door: PortBootstrap = new PortBootstrap(rank, numRanks, 1, (message) => {
      const copy = structuredClone(message);
      queueMicrotask(() => {
        if (copy.kind.startsWith("bootstrap"))
          store.handle(copy as never, (reply) => door.receive(structuredClone(reply)));
      });
    });
    store.addRank((reply) => door.receive(structuredClone(reply)));
    return Object.assign(door, {
      close: (cause?: Error) => PortBootstrap.prototype.close.call(door, cause ?? new ClosedError("x", "y")),
    });
  });
}

async function overTcp(numRanks: number): Promise<Ending[]> {
  const secret = randomBytes(32).toString("hex");
  const claims = (rank: number): Claims => ({
    rank,
    worldSize: numRanks,
    generation: 1,
    version: "1.2.3",
    engine: "NCCL 2.28.3",
    host: "here",
    pid: 100 + rank,
  });
  const store = await RendezvousStore.open({ secret, claims: claims(0) });
  cleanups.push(() => store.close());
  const doors = await Promise.all(
    Array.from({ length: numRanks }, (_, rank) =>
      TcpBootstrap.join({ secret, claims: claims(rank), host: "127.0.0.1", port: store.port }),
    ),
  );
  cleanups.push(() => {
    for (const door of doors) door.close();
  });
  return doors;
}

describe.each([
  ["the launcher's port", overPorts],
  ["TCP", overTcp],
] as const)("Bootstrap over %s", (_, open) => {
  it("knows its place", async () => {
    const doors = await open(3);
    expect(doors.map(({ rank, worldSize, generation }) => [rank, worldSize, generation])).toEqual([
      [0, 3, 1],
      [1, 3, 1],
      [2, 3, 1],
    ]);
  });

  it("gives every rank what one has set, whether it is asked for before or after", async () => {
    const [a, b, c] = (await open(3)) as [Ending, Ending, Ending];
    const early = [b.get("id"), c.get("id")];
    const value = Uint8Array.from({ length: 65_536 }, (_, i) => i * 7);
    await a.set("id", value);
    expect(await Promise.all(early)).toEqual([value, value]);
    expect(await b.get("id")).toEqual(value);
    await c.set("id", Uint8Array.of());
    expect(await a.get("id")).toEqual(Uint8Array.of());
  });

  it("keeps the value that was set, whatever becomes of the caller's array", async () => {
    const [a, b] = (await open(2)) as [Ending, Ending];
    const value = Uint8Array.of(1, 2, 3);
    const done = a.set("k", value);
    value.fill(9);
    await done;
    expect(await b.get("k")).toEqual(Uint8Array.of(1, 2, 3));
  });

  it("names the key at a deadline, can be aborted, and bounds values", async () => {
    const [a] = (await open(2)) as [Ending];
    await expect(a.get("never", { timeoutMs: 5 })).rejects.toThrow(TimeoutError);
    await expect(a.get("never", { timeoutMs: 5 })).rejects.toThrow('"never", which no rank has set');
    const controller = new AbortController();
    const waiting = a.get("never", { signal: controller.signal });
    controller.abort(new Error("stop"));
    await expect(waiting).rejects.toThrow("stop");
    await expect(a.get("never", { signal: AbortSignal.abort(new Error("early")) })).rejects.toThrow("early");
    await expect(a.set("big", new Uint8Array(65_537))).rejects.toThrow(InvalidArgumentError);
    await expect(a.set("big", new Uint8Array(65_537))).rejects.toThrow("at most 65536 bytes");
  });

  it("tells every rank once that the world is over, and late listeners too", async () => {
    const [a, b, c] = (await open(3)) as [Ending, Ending, Ending];
    const heard: string[] = [];
    const all = Promise.all(
      [a, b, c].map(
        (door, i) =>
          new Promise<void>((resolve) =>
            door.onFailure(({ rank, message }) => {
              heard.push(`${i}: ${rank} ${message}`);
              resolve();
            }),
          ),
      ),
    );
    b.fail({ rank: 1, message: "x" });
    await all;
    a.fail({ rank: 0, message: "later" });
    await a.set("order", Uint8Array.of());
    expect(heard.toSorted()).toEqual(["0: 1 x", "1: 1 x", "2: 1 x"]);
    a.onFailure(({ message }) => heard.push(`late ${message}`));
    expect(heard.at(-1)).toBe("late x");
  });

  it("gives up on what is asked when it is closed", async () => {
    const [a] = (await open(2)) as [Ending];
    const waiting = a.get("never");
    a.close();
    await expect(waiting).rejects.toThrow(ClosedError);
    await expect(a.get("never")).rejects.toThrow(ClosedError);
    await expect(a.set("k", Uint8Array.of())).rejects.toThrow(ClosedError);
  });
});
