/** What the thread with the encrypted connections tells a program that does not listen: the test takes the program's place. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { Worker } from "node:worker_threads";
import { afterEach, expect, it } from "vitest";
import { Authority } from "../../../test/support/certificates.ts";
import { loadableUrl } from "../world/package-location.ts";
import type { FromTunnel, ToTunnel, TunnelData } from "./tls-worker.ts";

const host = "127.0.0.1";
const authority = new Authority();
const identity = { ca: authority.cert, ...authority.issue() };
const PATIENCE = { timeout: 60_000 };
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

type Told<K extends FromTunnel["kind"]> = Extract<FromTunnel, { kind: K }>;

async function listen() {
  const words = () => new Int32Array(new SharedArrayBuffer(4));
  const data: TunnelData = { identity, open: words(), unheard: words() };
  const worker = new Worker(loadableUrl("runtime/rendezvous/tls-worker"), { workerData: data, execArgv: [] });
  cleanups.push(() => worker.terminate());
  const told: FromTunnel[] = [];
  worker.on("message", (message: FromTunnel) => void told.push(message));
  const of = <K extends FromTunnel["kind"]>(kind: K) => told.filter((one): one is Told<K> => one.kind === kind);
  const tell = (message: ToTunnel) => worker.postMessage(message);
  tell({ kind: "listen", id: 1, host, port: 0 });
  await expect.poll(() => of("listening").length, PATIENCE).toBe(1);
  return { port: of("listening")[0]?.port ?? 0, unheard: data.unheard, of, tell };
}

async function raw(port: number, bytes?: string): Promise<Socket> {
  const socket = connect({ host, port });
  socket.on("error", () => {});
  cleanups.push(() => socket.destroy());
  await once(socket, "connect");
  if (bytes !== undefined) socket.resume().write(bytes);
  return socket;
}

async function secured(port: number) {
  const under = await raw(port);
  const socket = connectTls({ socket: under, ...identity, checkServerIdentity: () => undefined });
  socket.on("error", () => {});
  cleanups.push(() => socket.destroy());
  await once(socket, "secureConnect");
  socket.resume();
  return { under, hasEnded: () => socket.destroyed };
}

it("offers a program 64 connections at a time, holds 256 more, and forgets those that leave", PATIENCE, async () => {
  const { port, of, tell } = await listen();
  // One after the other: each handshake has a deadline.
  const openAll = async (count: number) => {
    const all: Awaited<ReturnType<typeof secured>>[] = [];
    while (all.length < count) all.push(await secured(port));
    return all;
  };
  const first = await openAll(64);
  await expect.poll(() => of("ready").length, PATIENCE).toBe(64);
  const held = await openAll(8);
  for (const { under } of held.slice(0, 4)) under.resetAndDestroy();
  // More than can be held: the oldest go, which are the other four and those of the last ones that came first.
  const last = await openAll(260);
  await expect.poll(() => of("refused").length, PATIENCE).toBe(8);
  await expect.poll(() => last.filter((one) => one.hasEnded()).length, PATIENCE).toBe(4);
  expect(of("refused").every(({ reason }) => /not taken in time, and made room/.test(reason))).toBe(true);
  expect(of("ready").length).toBe(64);
  expect(first.some((one) => one.hasEnded())).toBe(false);
  // Each that the program has done with makes room for one of those that are left.
  for (const { stream } of of("ready").slice(0, 10)) tell({ kind: "drop", id: stream });
  await expect.poll(() => of("ready").length, PATIENCE).toBe(74);
  for (let done = 10; of("ready").length < 64 + 256; ) {
    const ready = of("ready").slice(done);
    done += ready.length;
    for (const { stream } of ready) tell({ kind: "drop", id: stream });
    await expect.poll(() => of("ready").length, PATIENCE).toBeGreaterThanOrEqual(Math.min(320, done + 64));
  }
  expect(of("ready").length).toBe(320);
});

it("tells a program 64 refusals at most that it has not heard of", PATIENCE, async () => {
  const { port, of, unheard } = await listen();
  const noise = async (count: number) => {
    const sockets = await Promise.all(Array.from({ length: count }, () => raw(port, "no TLS at all")));
    await expect.poll(() => sockets.every(({ destroyed }) => destroyed), PATIENCE).toBe(true);
  };
  await noise(100);
  // Each is told, if it is, before its connection ends.
  await expect.poll(() => of("refused").length, PATIENCE).toBe(64);
  Atomics.sub(unheard, 0, 64);
  await noise(10);
  await expect.poll(() => of("refused").length, PATIENCE).toBe(74);
});
