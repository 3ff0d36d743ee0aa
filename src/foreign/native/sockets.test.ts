import { once } from "node:events";
import { open } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { devNull } from "node:os";
import { expect, it } from "vitest";
import { descriptorOf, POLL_IN, socketCalls, WOULD_BLOCK } from "./sockets.ts";

/** Two ends of a connection over loopback. */
async function pair(): Promise<readonly [Socket, Socket]> {
  const server = createServer({ pauseOnConnect: true }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, "connection");
  const near = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [[far]] = await Promise.all([accepted as Promise<[Socket]>, once(near, "connect")]);
  server.close();
  return [near.pause(), far];
}

it.skipIf(process.platform !== "linux")("a connection within the host is taken off the system's pacing", async () => {
  const calls = socketCalls();
  const [near, far] = await pair();
  const [from, to] = [descriptorOf(near) as number, descriptorOf(far) as number];
  expect(calls.unpaced(from)).toBe(true);
  const into = new Uint8Array(8);
  expect(calls.receive(to, into)).toBe(WOULD_BLOCK);
  expect(calls.send(from, Uint8Array.of(1, 2, 3), false)).toBe(3);
  expect(calls.poll(Int32Array.of(to, POLL_IN), 1, 10_000)).toBe(1);
  expect(calls.receive(to, into)).toBe(3);
  expect([...into.subarray(0, 3)]).toEqual([1, 2, 3]);
  near.destroy();
  far.destroy();
});

it.skipIf(process.platform !== "linux")("what is no connection stays as it is", async () => {
  const file = await open(devNull);
  expect(socketCalls().unpaced(file.fd)).toBe(false);
  await file.close();
});

it.skipIf(process.platform === "win32")("what was written counts until the other end's system has it", async () => {
  const calls = socketCalls();
  const [near, far] = await pair();
  const [from, to] = [descriptorOf(near) as number, descriptorOf(far) as number];
  expect(calls.unacknowledged(from)).toBe(0);
  const bytes = new Uint8Array(1024 * 1024);
  let sent = 0;
  // Until neither system takes more.
  for (let now = calls.send(from, bytes, false); now > 0; now = calls.send(from, bytes, false)) sent += now;
  expect(calls.unacknowledged(from)).toBeGreaterThan(0);
  let received = 0;
  while (received < sent) {
    calls.poll(Int32Array.of(to, POLL_IN), 1, 10_000);
    received += Math.max(0, calls.receive(to, bytes));
  }
  while (calls.unacknowledged(from) > 0) await new Promise((resolve) => setTimeout(resolve, 1));
  near.destroy();
  far.destroy();
  expect(calls.unacknowledged(-1)).toBe(0);
});
