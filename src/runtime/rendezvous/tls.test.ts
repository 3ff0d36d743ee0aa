/** Connections over TLS: who may connect, what is said when the sides differ, and what strangers cost. */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { afterEach, describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { Authority, writeTls } from "../../../test/support/certificates.ts";
import type { Claims } from "./handshake.ts";
import { type Introduction, knock, PeerDoor, type PeerSocket } from "./peer-connections.ts";
import { RendezvousStore } from "./rendezvous-store.ts";
import { TcpBootstrap } from "./tcp-bootstrap.ts";
import { type TlsIdentity, tlsFiles, tlsIdentity } from "./tls-identity.ts";

const secret = randomBytes(32).toString("hex");
const introduction: Introduction = { from: 1, to: 0, index: 0, worldSize: 2, generation: 1, version: "frames 1" };
const host = "127.0.0.1";
const authority = new Authority();
const tls: TlsIdentity = { ca: authority.cert, ...authority.issue() };
/** What arrives at the other side of a connection arrives at some time. */
const PATIENCE = { timeout: 60_000 };
const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

async function open(identity: TlsIdentity | undefined = tls) {
  const refused: string[] = [];
  let come: (socket: PeerSocket) => void = () => {};
  const welcomed = new Promise<PeerSocket>((resolve) => {
    come = resolve;
  });
  const onRefused = (reason: string) => void refused.push(reason);
  const door = await PeerDoor.open({
    secret,
    host,
    tls: identity,
    refuse: () => undefined,
    welcome: (_, s) => come(s),
    onRefused,
  });
  cleanups.push(() => door.close());
  const at = { host, port: door.port };
  return { door, refused, welcomed, at };
}

async function rawSocket(port: number): Promise<Socket> {
  const socket = connect({ port, host });
  socket.on("error", () => {});
  cleanups.push(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

const call = (at: { host: string; port: number }, identity: TlsIdentity | undefined, timeoutMs = 20_000) =>
  knock(at, introduction, { secret, timeoutMs, tls: identity });

describe.skipIf(process.platform === "win32")("connections over TLS", () => {
  it("carry what is written, both ways and at any size, to the end of the stream", async () => {
    const { welcomed, at } = await open();
    const [theirs, ours] = await Promise.all([welcomed, call(at, { ca: tls.ca, ...authority.issue() })]);
    cleanups.push(() => theirs.socket.destroy());
    expect(theirs.socket.remoteAddress).toBe(host);
    expect(ours.socket.remotePort).toBe(at.port);
    const size = 3_000_001;
    const whole = async ({ socket, rest }: PeerSocket) => {
      const chunks: Uint8Array[] = [rest];
      let left = size - rest.length;
      for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
        chunks.push(chunk);
        left -= chunk.length;
        if (left <= 0) break;
      }
      return Buffer.concat(chunks);
    };
    for (const [from, to] of [
      [ours, theirs],
      [theirs, ours],
    ] as const) {
      const sent = randomBytes(size);
      const arriving = whole(to);
      from.socket.write(sent);
      expect((await arriving).equals(sent)).toBe(true);
    }
    const ended = once(theirs.socket, "end");
    theirs.socket.resume();
    ours.socket.end();
    await ended;
  });

  it("are not readable on the way", async () => {
    const { welcomed, at } = await open();
    const seen: Buffer[] = [];
    // A wire that is listened to.
    const wire = createServer((near) => {
      const far = connect(at);
      near.on("data", (chunk) => void seen.push(chunk)).pipe(far);
      far.on("data", (chunk) => void seen.push(chunk)).pipe(near);
      for (const one of [near, far]) one.on("error", () => {});
    });
    wire.listen(0, host);
    await once(wire, "listening");
    const { port } = wire.address() as { port: number };
    const ours = await call({ host, port }, tls);
    const theirs = await welcomed;
    const arrived = once(theirs.socket, "data");
    theirs.socket.resume();
    ours.socket.write("a word that nobody else reads");
    expect(String((await arrived)[0])).toBe("a word that nobody else reads");
    const text = Buffer.concat(seen).toString("latin1");
    for (const word of ["nobody", "knock", "worldSize"]) expect(text).not.toContain(word);
    expect(text.length).toBeGreaterThan(500);
    for (const { socket } of [ours, theirs]) socket.destroy();
    wire.close();
  });

  it("need a certificate of the same authority on both sides", async () => {
    const { refused, at } = await open();
    const other = new Authority();
    const foreign = { ca: tls.ca, ...other.issue() };
    await expect(call(at, foreign)).rejects.toThrow(/TLS is .*does not accept this side's certificate/);
    await expect(call(at, { ca: other.cert, ...other.issue() })).rejects.toThrow(/shows a certificate that is refused/);
    const expired = { ca: tls.ca, ...authority.issue("late", -3, -2) };
    await expect(call(at, expired)).rejects.toThrow(/does not accept this side's certificate/);
    await expect.poll(() => refused.join("\n"), PATIENCE).toMatch(/a certificate that is refused: expired, or/);
    // One that shows none.
    const none = connectTls({ ...at, ca: tls.ca, checkServerIdentity: () => undefined });
    const [error] = (await once(none, "error")) as [Error];
    expect(String(error)).toMatch(/certificate required/i);
    await expect.poll(() => refused.join("\n"), PATIENCE).toMatch(/shows no certificate/);
    expect(refused.join("\n")).toMatch(/shows a certificate (of another authority|that is refused)/);
    // And the secret besides.
    const wrong = knock(at, introduction, { secret: "x".repeat(32), timeoutMs: 20_000, tls });
    await expect(wrong).rejects.toThrow(/the secret is another one \(not shown\)/);
  });

  it("fail, each by itself, where the thread that encrypts cannot begin", async () => {
    const unusable = { ca: "no certificate", cert: "nor this", key: "nor this" };
    for (let i = 0; i < 2; i++) await expect(call({ host, port: 1 }, unusable)).rejects.toThrow(/PEM|no start line/);
    await expect(open(unusable)).rejects.toThrow(/cannot be listened on|to listen on.*(PEM|no start line)/s);
  });

  it("say it on both sides when one uses TLS and the other does not", async () => {
    const plain = await PeerDoor.open({ secret, host, refuse: () => undefined, welcome: () => {} });
    cleanups.push(() => plain.close());
    await expect(call({ host, port: plain.port }, tls)).rejects.toThrow(/TLS is .*uses no TLS/);
    await expect.poll(() => plain.refusals.join(), PATIENCE).toMatch(/uses TLS, and this side does not/);
    const { refused, at } = await open();
    await expect(call(at, undefined)).rejects.toThrow(/TLS is off; expected on, as at rank 0/);
    expect(refused.join()).toMatch(/said nothing: it uses no TLS/);
  });

  it("serve the rendezvous", async () => {
    const claims: Claims = { rank: 0, worldSize: 1, generation: 1, version: "1", engine: "e", host: "h", pid: 1 };
    const store = await RendezvousStore.open({ secret, claims, tls });
    cleanups.push(() => store.close());
    const at = { host, port: store.port, secret, claims, timeoutMs: 20_000 };
    const other = new Authority();
    await expect(TcpBootstrap.join({ ...at, tls: { ca: tls.ca, ...other.issue() } })).rejects.toThrow(
      /does not accept this side/,
    );
    const joined = await TcpBootstrap.join({ ...at, tls });
    await joined.set("key", Uint8Array.of(1, 2, 3));
    expect([...(await joined.get("key"))]).toEqual([1, 2, 3]);
    expect(joined.localAddress).toBe(host);
    joined.close();
  });

  it("are open to peers after any bytes that strangers sent, and after silent ones", { timeout: 60_000 }, async () => {
    const { welcomed, refused, at } = await open();
    const silent = await Promise.all(Array.from({ length: 300 }, () => rawSocket(at.port)));
    // A TLS client hello that is changed at random, and noise.
    const trap = createServer().listen(0, host);
    await once(trap, "listening");
    connectTls({ port: (trap.address() as { port: number }).port, host }).on("error", () => {});
    const [trapped] = (await once(trap, "connection")) as [Socket];
    const [hello] = (await once(trapped, "data")) as [Buffer];
    trapped.destroy();
    trap.close();
    for (let i = 0; i < 200; i++) {
      const bytes = i % 2 === 0 ? Buffer.from(hello) : randomBytes(1 + (i % 300));
      if (i % 2 === 0)
        for (let n = 0; n < 3; n++) bytes[randomBytes(2).readUInt16LE() % bytes.length] = randomBytes(1)[0] ?? 0;
      const socket = connect({ port: at.port, host });
      socket.on("error", () => {});
      socket.end(bytes);
    }
    await expect.poll(() => refused.length, PATIENCE).toBeGreaterThan(100);
    expect(refused.join()).toMatch(/made room for another|said nothing/);
    const ours = await call(at, tls);
    const theirs = await welcomed;
    for (const { socket } of [ours, theirs]) socket.destroy();
    for (const socket of silent) socket.destroy();
  });
});

describe("the files of TLS", () => {
  const folder = scratchFolder("tls-files");
  const files = writeTls(folder, authority);

  it("are named all three, by options or by the environment", () => {
    expect(tlsFiles(undefined, {})).toBeUndefined();
    const env = { CHORALE_TLS_CA: files.ca, CHORALE_TLS_CERT: files.cert, CHORALE_TLS_KEY: files.key };
    expect(tlsFiles(undefined, env)).toEqual(files);
    expect(tlsFiles(files, {})).toEqual(files);
    expect(() => tlsFiles(undefined, { CHORALE_TLS_CA: "x" })).toThrow(
      /CHORALE_TLS_CERT is undefined; .*needs ca, cert/,
    );
    expect(() => tlsFiles({ ca: "x", cert: "y" } as never, {})).toThrow(/tls\.key is undefined/);
  });

  it.skipIf(process.platform === "win32")("are refused with the reason, and never shown", () => {
    expect(tlsIdentity(files).cert).toContain("BEGIN CERTIFICATE");
    const other = writeTls(scratchFolder("tls-other"), authority);
    expect(() => tlsIdentity({ ...files, key: other.key })).toThrow(/the TLS key is .*the key of the certificate/);
    expect(() => tlsIdentity({ ...files, cert: "/nowhere" })).toThrow(/the TLS cert is "\/nowhere"; .*ENOENT/);
    expect(() => tlsIdentity({ ...files, ca: files.key })).toThrow(/the TLS ca is .*a certificate in PEM/);
    const late = writeTls(scratchFolder("tls-late"), authority, authority.issue("late", -3, -2));
    expect(() => tlsIdentity(late)).toThrow(/has not expired/);
    chmodSync(other.key, 0o640);
    expect(() => tlsIdentity(other)).toThrow(/others can read \(mode 640\); .*chmod 600/);
    writeFileSync(other.cert, "x".repeat(2 ** 21));
    expect(() => tlsIdentity(other)).toThrow(/a regular file of at most/);
    rmSync(other.cert);
  });
});
