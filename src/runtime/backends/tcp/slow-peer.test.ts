/** A rank that has done all that it had to do, and leaves while a peer is slow: what it sent still comes, and nobody blames it. */
import type { World } from "chorale";
import { launch } from "chorale/world";
import { expect, it } from "vitest";

/** 64 MiB: more than the sockets' buffers take. */
const BIG_ELEMENTS = 2 ** 24;
/** Longer than a rank that leaves waits for the others to close their ends. */
const BLOCKED_MS = 2_500;

interface Plan {
  readonly bigElements: number;
  readonly blockedMs: number;
}

async function leaveEarly({ comm, rank }: World, { bigElements, blockedMs }: Plan): Promise<string> {
  const big = new Float32Array(bigElements);
  if (rank === 0) {
    await comm.send(big.fill(3), 1);
    return "sent";
  }
  const received = comm.recv(big, 0);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockedMs);
  await received;
  return `received ${big.every((one) => one === 3)}`;
}

it("gives all that a rank has sent before it returned to a peer that was busy (tcp)", async () => {
  const found = await launch({
    ranks: 2,
    backend: "tcp",
    isolation: "thread",
    timeoutMs: 60_000,
    data: { bigElements: BIG_ELEMENTS, blockedMs: BLOCKED_MS } satisfies Plan,
    run: leaveEarly,
  });
  expect(found).toEqual(["sent", "received true"]);
});
