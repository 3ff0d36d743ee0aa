/** How the ranks of a world connect to each other: the callee of a pair says over how many connections. */
import { expect, it } from "vitest";
import type { Bootstrap } from "../../comm/index.ts";
import { meet } from "./meet.ts";

it.skipIf(process.platform === "win32")("gives a pair as many connections as the rank that is called has", async () => {
  const values = new Map<string, Promise<Uint8Array>>();
  const puts = new Map<string, (value: Uint8Array) => void>();
  for (const rank of [0, 1, 2]) {
    const key = `tcp/${rank}`;
    values.set(key, new Promise((resolve) => puts.set(key, resolve)));
  }
  const bootstrapOf = (rank: number): Bootstrap => ({
    ...{ rank, worldSize: 3, generation: 0 },
    set: async (key, value) => puts.get(key)?.(value),
    get: (key) => values.get(key) as Promise<Uint8Array>,
    fail: () => {},
    onFailure: () => {},
  });
  const shared = { secret: "a secret of this test alone", host: "127.0.0.1", timeoutMs: 60_000 };
  const all = await Promise.all(
    [3, 2, 1].map((connections, rank) => meet({ ...shared, connections, bootstrap: bootstrapOf(rank) })),
  );
  try {
    const counts = all.map((peers) => peers.map((peer) => peer?.sockets.filter((one) => one !== undefined).length));
    expect(counts).toEqual([
      [undefined, 3, 3],
      [3, undefined, 2],
      [3, 2, undefined],
    ]);
  } finally {
    for (const { socket } of all.flatMap((peers) => peers.flatMap((peer) => peer?.sockets ?? []))) socket.destroy();
  }
});
