/** What the thread with the encrypted connections tells a program, which may not listen: the test takes the program's place. */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { Worker } from "node:worker_threads";
import { afterEach, expect, it } from "vitest";
import { Authority } from "../../../test/support/certificates.ts";
import { freePort } from "../../../test/support/free-port.mjs";
import { loadableUrl } from "../world/package-location.ts";
import { newNonce, prove as proofOf } from "./handshake.ts";
import type { GateRules } from "./stranger-gate.ts";
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

const secret = "a secret of the world's";
const MAX_STRANGERS = 12;
const rules: GateRules = { secret, word: { kind: "knock", field: "introduction" }, maxStrangers: MAX_STRANGERS };

const framed = (text: string, length = text.length) => {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(length);
  return Buffer.concat([head, Buffer.from(text)]);
};
const knock = (nonce: string, introduction: string, proof: string) =>
  framed(JSON.stringify({ kind: "knock", nonce, introduction, proof }));

/** What is sent in place of a handshake. */
const STRANGE = [
  framed("", 0),
  framed("x".repeat(100), 4097),
  framed("x", 0xffffffff),
  framed("null"),
  framed("[1,2,3]"),
  framed("{}"),
  framed("[".repeat(2000)),
  framed(JSON.stringify({ kind: "join", nonce: newNonce(), claims: "{}", proof: newNonce() })),
  knock(newNonce(), "{}", newNonce()),
  knock("z", "{}", newNonce()),
  Buffer.from("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
];

async function listen(at = host) {
  const words = () => new Int32Array(new SharedArrayBuffer(4));
  const data: TunnelData = { identity, open: words(), unheard: words() };
  const worker = new Worker(loadableUrl("runtime/rendezvous/tls-worker"), { workerData: data, execArgv: [] });
  cleanups.push(() => worker.terminate());
  const told: FromTunnel[] = [];
  worker.on("message", (message: FromTunnel) => void told.push(message));
  const of = <K extends FromTunnel["kind"]>(kind: K) => told.filter((one): one is Told<K> => one.kind === kind);
  const tell = (message: ToTunnel) => worker.postMessage(message);
  tell({ kind: "listen", id: 1, host: at, port: 0, rules });
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
  let heard = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    heard = Buffer.concat([heard, chunk]);
  });
  // The first frame is the listener's.
  const hello = async () => {
    await expect.poll(() => heard.length > 4 && heard.length >= 4 + heard.readUInt32BE(0), PATIENCE).toBe(true);
    return JSON.parse(heard.toString("utf8", 4)) as { nonce: string };
  };
  return { under, hello, write: (bytes: Uint8Array) => void socket.write(bytes), hasEnded: () => socket.destroyed };
}

/** Proves, as somebody that knows the secret. */
async function prove({ hello, write, hasEnded }: Awaited<ReturnType<typeof secured>>, claims: string) {
  const nonces = { store: (await hello()).nonce, rank: newNonce() };
  write(knock(nonces.rank, claims, proofOf(Buffer.from(secret), "rank", nonces, claims)));
  return { nonce: nonces.rank, hasEnded };
}

/** The first bytes of a client that speaks TLS. */
async function clientHello(): Promise<Buffer> {
  const trap = createServer().listen(0, host);
  await once(trap, "listening");
  connectTls({ port: (trap.address() as AddressInfo).port, host }).on("error", () => {});
  const [trapped] = (await once(trap, "connection")) as [Socket];
  const [hello] = (await once(trapped, "data")) as [Buffer];
  trapped.destroy();
  trap.close();
  return hello;
}

it("tells a program of nobody that has a certificate and lacks the secret, whatever it sends", PATIENCE, async () => {
  const { port, unheard, of } = await listen();
  const ended: (() => boolean)[] = [];
  for (const bytes of STRANGE) {
    const peer = await secured(port);
    peer.write(bytes);
    ended.push(peer.hasEnded);
  }
  await expect.poll(() => ended.filter((has) => has()).length, PATIENCE).toBe(STRANGE.length);
  const reasons = of("refused").map(({ reason }) => reason.replace(/:\d+/, ""));
  expect(reasons).toEqual(expect.arrayContaining([expect.stringMatching(/does not know the secret/)]));
  expect(reasons).toEqual(expect.arrayContaining([expect.stringMatching(/expected 1 to 4096/)]));
  expect(reasons.length).toBe(STRANGE.length);
  expect(Atomics.load(unheard, 0)).toBe(STRANGE.length);
  expect(of("ready")).toEqual([]);
});

it("holds as many strangers as it may, and forgets those that leave", PATIENCE, async () => {
  const { port, of } = await listen();
  const first = await secured(port);
  const second = await secured(port);
  await second.hello();
  second.under.destroy();
  await expect.poll(() => of("refused").length, PATIENCE).toBe(1);
  expect(of("refused")[0]?.reason).toMatch(/left before it had proved itself/);
  // One after the other: each handshake has a deadline.
  for (let i = 1; i < MAX_STRANGERS; i++) await secured(port);
  expect(of("refused").length).toBe(1);
  const last = await secured(port);
  await expect.poll(() => first.hasEnded(), PATIENCE).toBe(true);
  expect(of("refused")[1]?.reason).toMatch(/made room for another/);
  expect([last.hasEnded(), of("ready")]).toEqual([false, []]);
});

it(
  "offers those that know the secret, with what they claim, also to a program that does not listen",
  PATIENCE,
  async () => {
    const { port, of, tell } = await listen();
    const knocks = Array.from({ length: 3 }, async (_, i) => prove(await secured(port), `claims ${i}`));
    const peers = await Promise.all(knocks);
    await expect.poll(() => of("ready").length, PATIENCE).toBe(3);
    const told = of("ready").map(({ peer }) => peer);
    expect(told.map((one) => one?.claims).sort()).toEqual(["claims 0", "claims 1", "claims 2"]);
    expect(told.map((one) => one?.nonces.rank).sort()).toEqual(peers.map(({ nonce }) => nonce).sort());
    expect(peers.some(({ hasEnded }) => hasEnded())).toBe(false);
    for (const { stream } of of("ready")) tell({ kind: "drop", id: stream });
    await expect.poll(() => peers.every(({ hasEnded }) => hasEnded()), PATIENCE).toBe(true);
    expect(of("refused")).toEqual([]);
  },
);

it("ends a connection whose peer has left in the midst of the handshake", PATIENCE, async () => {
  const { port, of } = await listen();
  const hello = await clientHello();
  const socket = await raw(port);
  socket.end(hello.subarray(0, 50));
  await once(socket.resume(), "close");
  await expect
    .poll(() => of("refused").map(({ reason }) => reason), PATIENCE)
    .toEqual([expect.stringMatching(/^127\.0\.0\.1:\d+ left during the TLS handshake/)]);
});

it("counts connections to two addresses apart that come from one port", PATIENCE, async () => {
  const { port, of } = await listen("0.0.0.0");
  const localPort = await freePort();
  const sockets = [host, "127.0.0.2"].map((to) => connect({ host: to, port, localAddress: host, localPort }));
  cleanups.push(...sockets.map((socket) => () => socket.destroy()));
  await Promise.all(sockets.map((socket) => once(socket, "connect")));
  // Neither made room for the other: both can still say something.
  for (const socket of sockets) {
    const over = once(socket.resume(), "close");
    socket.write("no TLS at all");
    await over;
  }
  expect(of("refused").length).toBe(2);
  expect(of("refused").every(({ reason }) => /uses no TLS/.test(reason))).toBe(true);
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
