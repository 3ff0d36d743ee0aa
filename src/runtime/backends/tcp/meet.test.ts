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
  const shared = {
    checksum: "off" as const,
    secret: "a secret of this test alone",
    host: "127.0.0.1",
    timeoutMs: 60_000,
  };
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

it.skipIf(process.platform === "win32")(
  "refuses a rank whose checksum option differs, and names both values",
  async () => {
    let publish = (_: Uint8Array) => {};
    const published = new Promise<Uint8Array>((resolve) => {
      publish = resolve;
    });
    const bootstrapOf = (rank: number): Bootstrap => ({
      ...{ rank, worldSize: 2, generation: 0 },
      set: async (key, value) => void (key === "tcp/0" && publish(value)),
      get: () => published,
      fail: () => {},
      onFailure: () => {},
    });
    const shared = { secret: "a secret of this test alone", host: "127.0.0.1", timeoutMs: 1_000, connections: 1 };
    const both = await Promise.allSettled(
      (["on", "off"] as const).map((checksum, rank) => meet({ ...shared, checksum, bootstrap: bootstrapOf(rank) })),
    );
    const why = /checksum is "on" on rank 0 and "off" on rank 1: give all ranks the same/;
    const [listener, caller] = both.map((one) =>
      one.status === "rejected" ? (one.reason as Error) : new Error("met"),
    );
    expect(caller?.message).toMatch(why);
    expect(String(listener?.cause)).toMatch(why);
  },
);
