/** The connection between two launchers, with somebody on the way who copies, drops, swaps or changes frames. */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { afterEach, describe, expect, it, vi } from "vitest";
import { knock, PeerDoor, type PeerSocket } from "../rendezvous/index.ts";
import { NodeLink, type NodeMessage } from "./node-link.ts";

const secret = randomBytes(32).toString("hex");
const introduction = { from: 1, to: 0, index: 0, worldSize: 2, generation: 0, version: "v" };
const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

/** Whole frames of the rendezvous's form at the start of `bytes`. */
function framesOf(bytes: Buffer): { readonly frames: Buffer[]; readonly rest: Buffer } {
  const frames: Buffer[] = [];
  let rest = bytes;
  while (rest.length >= 4 && rest.length >= 4 + rest.readUInt32BE(0)) {
    const end = 4 + rest.readUInt32BE(0);
    frames.push(rest.subarray(0, end));
    rest = rest.subarray(end);
  }
  return { frames, rest };
}

/** Two links through a proxy. @param tamper what host 0 gets for the frames that host 1 has sent after the handshake */
async function linked(tamper: (frames: readonly Buffer[]) => readonly Buffer[]) {
  let met: (socket: PeerSocket) => void = () => {};
  const atFirst = new Promise<PeerSocket>((resolve) => {
    met = resolve;
  });
  const door = await PeerDoor.open({
    secret,
    host: "127.0.0.1",
    refuse: () => undefined,
    welcome: (_, socket) => met(socket),
  });
  let isTampering = false;
  const held: Buffer[] = [];
  const proxy = createServer((socket) => {
    const onward = connect({ port: door.port, host: "127.0.0.1" });
    let rest: Buffer = Buffer.alloc(0);
    socket.on("data", (chunk: Buffer) => {
      const found = framesOf(Buffer.concat([rest, chunk]));
      rest = found.rest;
      if (!isTampering) for (const frame of found.frames) onward.write(frame);
      else {
        held.push(...found.frames);
        if (held.length >= 4) for (const frame of tamper(held.splice(0))) onward.write(frame);
      }
    });
    onward.on("data", (chunk: Buffer) => socket.write(chunk));
    socket.on("error", () => {}).on("close", () => onward.destroy());
    onward.on("error", () => {}).on("close", () => socket.destroy());
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const { port } = proxy.address() as { port: number };
  const atSecond = await knock({ host: "127.0.0.1", port }, introduction, { secret, timeoutMs: 20_000 });
  const heard: NodeMessage[] = [];
  const lost = new Promise<string>((resolve) => {
    const listener = { message: (message: NodeMessage) => void heard.push(message), lost: resolve };
    atFirst.then((socket) => {
      const link = new NodeLink(socket, "the launcher of host 1", 10_000, listener);
      cleanups.push(() => link.close());
    });
  });
  await atFirst;
  const second = new NodeLink(atSecond, "the launcher of host 0", 10_000, { message: () => {}, lost: () => {} });
  cleanups.push(
    () => second.close(),
    () => proxy.close(),
    () => door.close(),
  );
  isTampering = true;
  for (let slot = 0; slot < 4; slot++) second.send({ kind: "start", slot });
  return { heard, lost };
}

describe("somebody between two launchers", () => {
  const slots = (messages: readonly NodeMessage[]) =>
    messages.flatMap((one) => (one.kind === "start" ? [one.slot] : []));

  it("may pass on what they say", async () => {
    const { heard } = await linked((frames) => frames);
    await expect.poll(() => slots(heard), { timeout: 20_000 }).toEqual([0, 1, 2, 3]);
  });

  const changed = (frame: Buffer) => {
    const copy = Buffer.from(frame);
    copy.writeUInt8(copy.readUInt8(20) ^ 1, 20);
    return copy;
  };
  const short = (frame: Buffer) => Buffer.concat([Buffer.from([0, 0, 0, 20]), frame.subarray(4, 24)]);
  for (const [what, tamper, before] of [
    ["repeats a frame", (all) => [...all.slice(0, 1), ...all], 1],
    ["leaves one out", (all) => [...all.slice(0, 1), ...all.slice(2)], 1],
    ["puts the last first", (all) => all.toReversed(), 0],
    ["changes a byte", (all) => all.map(changed), 0],
    ["cuts one short", (all) => all.map(short), 0],
    ["sends a frame of no length", (all) => [...all.slice(0, 2), Buffer.alloc(4), ...all.slice(2)], 2],
  ] as [string, (frames: readonly Buffer[]) => Buffer[], number][]) {
    it(`${what}: the link ends, and nothing after it is believed`, async () => {
      const { heard, lost } = await linked(tamper);
      expect(await lost).toMatch(/^sent a frame (whose signature is wrong|of 0 bytes)/);
      expect(slots(heard)).toEqual(Array.from({ length: before }, (_, i) => i));
    });
  }
});

describe("a launcher that says nothing", () => {
  it("is said to be stopped or busy where its host answers", async () => {
    const warned = vi.spyOn(process.stderr, "write").mockImplementation(() => true);
    const lost = await new Promise<string>((resolve, reject) => {
      PeerDoor.open({
        secret,
        host: "127.0.0.1",
        refuse: () => undefined,
        welcome: (_, socket) => {
          const link = new NodeLink(socket, "the launcher of host 1", 2_500, { message: () => {}, lost: resolve });
          cleanups.push(() => link.close());
        },
      })
        .then(async (door) => {
          cleanups.push(() => door.close());
          const silent = await knock({ host: "127.0.0.1", port: door.port }, introduction, {
            secret,
            timeoutMs: 20_000,
          });
          cleanups.push(() => silent.socket.destroy());
        })
        .catch(reject);
    });
    const said = warned.mock.calls.map(([text]) => String(text)).join("");
    warned.mockRestore();
    expect(lost).toBe("was silent for 2.5 s, though its host answers: it is stopped, or too busy to speak");
    expect(said).toMatch(
      /^chorale: the launcher of host 1 is silent for \d\.\d s, though its host answers: it is stopped, or too busy to speak; it counts as lost after 2\.5 s\n$/,
    );
  });
});
