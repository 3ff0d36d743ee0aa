/** Ranks that meet over tcp within one process. */
import { meet } from "../../src/runtime/backends/tcp/meet.ts";
import type { Bootstrap } from "../../src/runtime/comm/index.ts";

type MeetOptions = Parameters<typeof meet>[0];

/** What each rank of a world publishes where it listens with, in memory. */
export function bootstrapsOf(worldSize: number): Bootstrap[] {
  const values = new Map<string, Promise<Uint8Array>>();
  const puts = new Map<string, (value: Uint8Array) => void>();
  const ranks = Array.from({ length: worldSize }, (_, rank) => rank);
  for (const rank of ranks) {
    const key = `tcp/${rank}`;
    values.set(key, new Promise((resolve) => puts.set(key, resolve)));
  }
  return ranks.map((rank) => ({
    ...{ rank, worldSize, generation: 0 },
    set: async (key, value) => puts.get(key)?.(value),
    get: (key) => values.get(key) as Promise<Uint8Array>,
    fail: () => {},
    onFailure: () => {},
  }));
}

/** Lets as many ranks meet as there are sets of options. @returns the promise of each */
export function meetings(own: readonly Partial<MeetOptions>[], timeoutMs: number): ReturnType<typeof meet>[] {
  const shared = { secret: "a secret of this test alone", host: "127.0.0.1", connections: 1, checksum: "off" } as const;
  const bootstraps = bootstrapsOf(own.length);
  return own.map((options, rank) =>
    meet({ ...shared, timeoutMs, ...options, bootstrap: bootstraps[rank] as Bootstrap }),
  );
}

/** @returns why each of two ranks that give these options does not meet the other; undefined where it does */
export async function refusalsOf(own: readonly Partial<MeetOptions>[]): Promise<(Error | undefined)[]> {
  const both = await Promise.allSettled(meetings(own, 1_000));
  return both.map((one) => (one.status === "rejected" ? (one.reason as Error) : undefined));
}
