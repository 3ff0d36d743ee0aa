import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import { FormatError, InvalidArgumentError, MismatchError, TimeoutError, UnavailableError } from "../../core/index.ts";
import { type Claims, newNonce, prove } from "./handshake.ts";
import { RendezvousStore, type StoreOptions } from "./rendezvous-store.ts";
import { TcpBootstrap } from "./tcp-bootstrap.ts";

const secret = randomBytes(32).toString("hex");
const claims = (rank: number, other: Partial<Claims> = {}): Claims => ({
  rank,
  worldSize: 2,
  generation: 1,
  version: "1.2.3",
  engine: "NCCL 2.28.3",
  host: "here",
  pid: 100 + rank,
  ...other,
});
const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

async function open(options: Partial<StoreOptions> = {}): Promise<{ store: RendezvousStore; refused: string[] }> {
  const refused: string[] = [];
  const store = await RendezvousStore.open({
    secret,
    claims: claims(0),
    onRefused: (reason) => refused.push(reason),
    ...options,
  });
  cleanups.push(() => store.close());
  return { store, refused };
}

async function join(store: RendezvousStore, rank: number, other: Partial<Claims> = {}, key = secret) {
  const door = await TcpBootstrap.join({
    secret: key,
    claims: claims(rank, other),
    host: "127.0.0.1",
    port: store.port,
    timeoutMs: 20_000,
  });
  cleanups.push(() => door.close());
  return door;
}

/** A stranger with bytes of its own. `lines` are the JSON frames that it got. */
async function stranger(port: number): Promise<{ socket: Socket; closed: Promise<unknown>; frames: () => string[] }> {
  const socket = connect({ port, host: "127.0.0.1" });
  let seen = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    seen = Buffer.concat([seen, chunk]);
  });
  socket.on("error", () => {});
  // Also of a socket that was reset: `once` of node:events would be rejected.
  const closed = new Promise((resolve) => socket.once("close", resolve));
  await once(socket, "connect");
  cleanups.push(() => socket.destroy());
  return {
    socket,
    closed,
    frames: () => {
      const texts: string[] = [];
      for (let at = 0; at + 4 <= seen.length; at += 4 + seen.readUInt32BE(at)) {
        texts.push(seen.toString("utf8", at + 4, at + 4 + seen.readUInt32BE(at)));
      }
      return texts;
    },
  };
}

function frame(text: string | Uint8Array, length = text.length): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(length);
  return Buffer.concat([head, Buffer.from(text)]);
}

async function hello(peer: Awaited<ReturnType<typeof stranger>>): Promise<string> {
  while (peer.frames().length === 0) await once(peer.socket, "data");
  return (JSON.parse(peer.frames()[0] ?? "") as { nonce: string }).nonce;
}

/** A door of the test's own in front of the store: what passes is recorded, bytes can be put in, the way can be cut. */
async function openProxy(store: RendezvousStore): Promise<{
  readonly port: number;
  readonly toStore: Buffer[];
  inject(bytes: Buffer): void;
  cut(): void;
}> {
  const toStore: Buffer[] = [];
  let onward: Socket | undefined;
  const proxy = createServer((socket) => {
    const target = connect({ port: store.port, host: "127.0.0.1" });
    onward = target;
    socket.on("data", (chunk: Buffer) => {
      toStore.push(chunk);
      target.write(chunk);
    });
    target.on("data", (chunk: Buffer) => socket.write(chunk));
    socket.on("error", () => {}).on("close", () => target.destroy());
    target.on("error", () => {}).on("close", () => socket.destroy());
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  cleanups.push(() => proxy.close());
  const { port } = proxy.address() as { port: number };
  return { port, toStore, inject: (bytes) => void onward?.write(bytes), cut: () => void onward?.destroy() };
}

describe("the rendezvous", () => {
  it("lets ranks in that know the secret, on loopback, at a port of the system's choice", async () => {
    const { store, refused } = await open();
    expect(store.port).toBeGreaterThan(0);
    const [a, b] = await Promise.all([join(store, 0), join(store, 1)]);
    await a.set("k", Uint8Array.of(5));
    expect(await b.get("k")).toEqual(Uint8Array.of(5));
    expect([store.numJoined, refused]).toEqual([2, []]);
  });

  it("refuses another secret, and says so without showing either", async () => {
    const { store, refused } = await open();
    const wrong = randomBytes(32).toString("hex");
    const error = await join(store, 1, {}, wrong).catch((e: unknown) => e as Error);
    expect(error).toBeInstanceOf(InvalidArgumentError);
    expect((error as Error).message).toContain("CHORALE_SECRET");
    expect((error as Error).message).not.toContain(wrong.slice(0, 8));
    expect((error as Error).message).not.toContain(secret.slice(0, 8));
    expect(refused).toEqual([expect.stringContaining("does not know the secret")]);
    await expect(join(store, 1, {}, "short")).rejects.toThrow("16 at least");
    await join(store, 1);
  });

  it.each([
    ["version of chorale", { version: "9.9.9" }, "9.9.9", "1.2.3"],
    ["engine", { engine: "NCCL 2.14.0" }, "NCCL 2.14.0", "NCCL 2.28.3"],
    ["number of ranks", { worldSize: 3 }, "3 ranks", "2 ranks"],
    ["generation", { generation: 4 }, "generation 4", "generation 1"],
    ["host", { host: "elsewhere" }, "on elsewhere", "on here"],
  ] as const)("refuses a rank of another %s and names both sides", async (what, other, theirs, ours) => {
    const { store } = await open();
    const error = await join(store, 1, other).catch((e: unknown) => e as MismatchError);
    expect(error).toBeInstanceOf(MismatchError);
    const { message, sides } = error as MismatchError;
    expect(message).toContain(`agree on the ${what}`);
    expect(message).toContain(theirs);
    expect(message).toContain(ours);
    expect(sides.map(({ rank }) => rank)).toEqual([0, 1]);
    await join(store, 1);
  });

  it("refuses a rank twice, and one that is out of range", async () => {
    const { store } = await open();
    await join(store, 1);
    await expect(join(store, 1, { pid: 555 })).rejects.toThrow("rank 1 has joined already, from process 101 on here");
    await expect(join(store, 2)).rejects.toThrow("0 to 1");
    expect(store.numJoined).toBe(1);
  });

  it("waits for a store that opens later, and gives up in time", async () => {
    const { store: first } = await open();
    const { port } = first;
    first.close();
    const late = TcpBootstrap.join({ secret, claims: claims(1), host: "127.0.0.1", port, timeoutMs: 20_000 });
    const { store } = await open({ port });
    expect(store.port).toBe(port);
    (await late).close();
    store.close();
    const error = await TcpBootstrap.join({ secret, claims: claims(1), host: "127.0.0.1", port, timeoutMs: 60 }).catch(
      (e: unknown) => e as TimeoutError,
    );
    expect(error).toBeInstanceOf(TimeoutError);
    expect((error as TimeoutError).message).toContain(`joining the rendezvous at 127.0.0.1:${port}`);
    expect((error as TimeoutError).message).toContain("missing: ranks [0]");
  });

  it("says which address is taken", async () => {
    const { store } = await open();
    await expect(open({ port: store.port })).rejects.toThrow(UnavailableError);
    await expect(open({ port: store.port })).rejects.toThrow("another program listens there");
  });

  it("tells the others when a rank's connection ends, and not when it says goodbye", async () => {
    const { store } = await open({ claims: claims(0, { worldSize: 3 }) });
    const [a, b] = await Promise.all([0, 1].map((rank) => join(store, rank, { worldSize: 3 })));
    const { port, cut } = await openProxy(store);
    await TcpBootstrap.join({ secret, claims: claims(2, { worldSize: 3 }), host: "127.0.0.1", port });
    const heard = new Promise((resolve) => a?.onFailure(resolve));
    b?.close();
    await a?.set("after leaving", Uint8Array.of());
    // As the kernel does when a process dies.
    cut();
    expect(await heard).toMatchObject({
      rank: 2,
      message: expect.stringContaining("process 102 closed its connection"),
    });
  });

  it("fails the world when ranks are missing at the deadline, naming them and who was refused", async () => {
    const { store } = await open({ joinTimeoutMs: 3_000 });
    const a = await join(store, 0);
    await join(store, 1, { version: "0.0.1" }).catch(() => {});
    const cause = await new Promise<{ rank: number; message: string }>((resolve) => a.onFailure(resolve));
    expect(cause.rank).toBe(1);
    expect(cause.message).toMatch(/missing: ranks \[1\].*refused: rank 1 .*0\.0\.1/s);
  });

  it("is told apart from another program that listens there", async () => {
    const server = createServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")).listen(0, "127.0.0.1");
    await once(server, "listening");
    cleanups.push(() => server.close());
    const { port } = server.address() as { port: number };
    await expect(TcpBootstrap.join({ secret, claims: claims(1), host: "127.0.0.1", port })).rejects.toThrow(
      FormatError,
    );
  });

  it("is not believed when it cannot prove that it knows the secret", async () => {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      const nonce = newNonce();
      socket.write(frame(JSON.stringify({ kind: "hello", protocol: 1, nonce })));
      socket.on("data", () => {
        const answer = JSON.stringify({ joined: [0] });
        socket.write(frame(JSON.stringify({ kind: "answer", answer, proof: "0".repeat(64) })));
      });
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    cleanups.push(() => server.close());
    const { port } = server.address() as { port: number };
    await expect(TcpBootstrap.join({ secret, claims: claims(1), host: "127.0.0.1", port })).rejects.toThrow(
      "cannot prove that it knows CHORALE_SECRET",
    );
  });
});

describe("a stranger at the rendezvous", () => {
  it("who replays a handshake is refused: the nonce is another", async () => {
    const { store, refused } = await open();
    const { port, toStore } = await openProxy(store);
    const door = await TcpBootstrap.join({ secret, claims: claims(1), host: "127.0.0.1", port });
    door.close();
    const peer = await stranger(store.port);
    await hello(peer);
    for (const chunk of toStore) peer.socket.write(chunk);
    await peer.closed;
    expect(peer.frames().at(-1)).toContain("stranger");
    expect(refused).toContainEqual(expect.stringContaining("does not know the secret"));
  });

  it("who uses the store's own proof as a rank's is refused", async () => {
    const { store, refused } = await open();
    const peer = await stranger(store.port);
    const nonce = await hello(peer);
    const text = JSON.stringify(claims(1));
    const own = newNonce();
    const proof = prove(Buffer.from(secret), "store", { store: nonce, rank: own }, text);
    peer.socket.write(frame(JSON.stringify({ kind: "join", nonce: own, claims: text, proof })));
    await peer.closed;
    expect(refused).toContainEqual(expect.stringContaining("does not know the secret"));
  });

  it.each([
    ["an oversize frame", frame("x", 2 ** 31)],
    ["a frame of more than a handshake", frame("x".repeat(5_000))],
    ["an empty frame", frame("")],
    ["no JSON", frame("hello there")],
    ["JSON that is not an object", frame("[1]")],
    ["a question before the handshake", frame(JSON.stringify({ kind: "get", key: "k", id: 1 }))],
    ["claims without a nonce", frame(JSON.stringify({ kind: "join", claims: "{}", proof: "" }))],
  ])("who sends %s is dropped, and the store goes on", async (_, bytes) => {
    const { store, refused } = await open();
    const peer = await stranger(store.port);
    peer.socket.write(bytes);
    await peer.closed;
    expect(refused).toHaveLength(1);
    const a = await join(store, 1);
    await a.set("k", Uint8Array.of(1));
    expect(store.numJoined).toBe(1);
  });

  it.each([["nothing"], ["a byte now and then"]])("who says %s has little time", async (what) => {
    const { store, refused } = await open({ handshakeMs: 300 });
    const peer = await stranger(store.port);
    const drip = what === "nothing" ? undefined : setInterval(() => peer.socket.write(Buffer.of(0)), 10);
    await peer.closed;
    clearInterval(drip);
    expect(refused).toHaveLength(1);
    // A rank that lacks a core for so long is refused as well, and comes again.
    for (let attempt = 0; store.numJoined === 0 && attempt < 20; attempt++) await join(store, 1).catch(() => {});
    expect(store.numJoined).toBe(1);
  });

  it("who listens and says nothing is waited for no longer than the caller said", async () => {
    const server = createServer(() => {}).listen(0, "127.0.0.1");
    cleanups.push(() => server.close());
    await once(server, "listening");
    const { port } = server.address() as { port: number };
    const began = performance.now();
    const joining = TcpBootstrap.join({ secret, claims: claims(1), host: "127.0.0.1", port, timeoutMs: 300 });
    await expect(joining).rejects.toThrow(TimeoutError);
    await expect(joining).rejects.toThrow(/joining the rendezvous at 127\.0\.0\.1:\d+ did not complete within 300 ms/);
    await expect(joining).rejects.toMatchObject({
      cause: { message: expect.stringContaining("not a chorale rendezvous") },
    });
    expect(performance.now() - began).toBeLessThan(20_000);
  });

  it("who says nothing makes room for ranks", async () => {
    const { store } = await open();
    const silent = await Promise.all(Array.from({ length: 80 }, () => stranger(store.port)));
    const a = await join(store, 0);
    const b = await join(store, 1);
    await a.set("k", Uint8Array.of(1));
    expect(await b.get("k")).toEqual(Uint8Array.of(1));
    expect(silent.filter(({ socket }) => !socket.destroyed).length).toBeLessThan(80);
  });

  it("makes room for another only when more have come than there are ranks", async () => {
    const { store, refused } = await open({ claims: claims(0, { worldSize: 80 }) });
    const first = await stranger(store.port);
    await hello(first);
    await Promise.all(Array.from({ length: 79 }, async () => hello(await stranger(store.port))));
    expect(refused).toEqual([]);
    await stranger(store.port);
    await first.closed;
    expect(refused).toEqual([
      expect.stringMatching(/^127\.0\.0\.1:\d+ had not proved itself yet, and made room for another$/),
    ]);
  });

  it("is named where its connection was reset", async () => {
    const { store, refused } = await open();
    const peer = await stranger(store.port);
    await hello(peer);
    peer.socket.resetAndDestroy();
    await expect.poll(() => refused.length).toBe(1);
    expect(refused[0]).toMatch(/^127\.0\.0\.1:\d+ left before it had proved itself(: read ECONNRESET)?$/);
  });

  it("cannot break it with random bytes, nor with broken copies of a handshake", { timeout: 60_000 }, async () => {
    const { store } = await open();
    const a = await join(store, 0);
    const attack = fc.oneof(
      fc.uint8Array({ maxLength: 300 }),
      fc.uint8Array({ maxLength: 200 }).map((bytes) => frame(bytes)),
      fc.json({ maxDepth: 2 }).map((text) => frame(text)),
      fc
        .record({
          kind: fc.constantFrom("join", "set", "get", "fail", "bye", "__proto__"),
          claims: fc.oneof(fc.string(), fc.json(), fc.constant(JSON.stringify(claims(1)))),
          nonce: fc.oneof(fc.string(), fc.constant(randomBytes(32).toString("hex"))),
          proof: fc.oneof(fc.string(), fc.constant("ab".repeat(32)), fc.integer()),
        })
        .map((message) => frame(JSON.stringify(message))),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(attack, { minLength: 1, maxLength: 3 }), async (chunks) => {
        const peer = await stranger(store.port);
        for (const chunk of chunks) peer.socket.write(chunk);
        peer.socket.end();
        await peer.closed;
        expect(store.numJoined).toBe(1);
      }),
      { numRuns: 120 },
    );
    await a.set("still", Uint8Array.of(1));
    expect(await a.get("still")).toEqual(Uint8Array.of(1));
  });

  it("who is a rank cannot break it either: wrong signatures and frames end its connection alone", async () => {
    const { store } = await open();
    const a = await join(store, 0);
    const { port, inject } = await openProxy(store);
    const b = await TcpBootstrap.join({ secret, claims: claims(1), host: "127.0.0.1", port });
    const heard = new Promise<{ rank: number }>((resolve) => a.onFailure(resolve));
    // A frame that was put in on the way has no signature.
    inject(frame(JSON.stringify({ kind: "fail", rank: 0, message: "x" })));
    expect(await heard).toMatchObject({ rank: 1, message: expect.stringContaining("signature is wrong") });
    await a.set("k", Uint8Array.of(2));
    expect(await a.get("k")).toEqual(Uint8Array.of(2));
    await expect(b.get("k", { timeoutMs: 2_000 })).rejects.toThrow();
  });

  it("keeps what programs set when its rank dies, and tells who waits for that rank", async () => {
    const { store } = await open();
    const a = await join(store, 0);
    const proxy = await openProxy(store);
    const host = "127.0.0.1";
    const b = await TcpBootstrap.join({ secret, claims: claims(1), host, port: proxy.port, timeoutMs: 20_000 });
    await Promise.all([a.store.barrier("all"), b.store.barrier("all")]);
    expect([await b.store.add("n", 5), await a.store.add("n", 2)]).toEqual([5, 7]);
    // A key of the bootstrap is another one.
    await b.set("k", Uint8Array.of(1));
    expect(await a.store.find("k")).toBeUndefined();
    const waiting = [a.store.get("result of 1"), a.store.barrier("all")];
    proxy.cut();
    for (const one of await Promise.allSettled(waiting)) {
      expect(String((one as PromiseRejectedResult).reason)).toMatch(/rank 1 failed .*without leaving the rendezvous/);
    }
    expect([await a.store.find("n"), await a.store.add("n")]).toEqual(["7", 8]);
    await expect(b.store.add("n")).rejects.toThrow("the rendezvous is gone");
  });
});
