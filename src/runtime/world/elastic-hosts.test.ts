/** Worlds whose number of hosts may change: each host is a `launch()` of this process with an address of its own. */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type { WorldEvent } from "./events.ts";
import { launch } from "./launch.ts";
import type { LaunchOptions } from "./launch-options.ts";
import type { NodesOptions } from "./node-options.ts";
import type { OutputLine } from "./output.ts";

beforeAll(() => {
  vi.stubEnv("CHORALE_SECRET", randomBytes(32).toString("hex"));
});
afterAll(() => {
  vi.unstubAllEnvs();
});

type Given = Partial<LaunchOptions<unknown, unknown, "tcp">>;
const module = new URL("../../../test/e2e/ranks/elastic.ts", import.meta.url);

/** One host of one rank. */
function host(
  rank: number,
  nodes: Pick<NodesOptions, "count" | "rendezvous"> & Partial<NodesOptions>,
  given: Given = {},
) {
  return launch({
    ranks: 1,
    backend: "tcp",
    module,
    data: { until: 3 },
    nodes: { rank, hostTimeoutMs: 20_000, joinTimeoutMs: 20_000, ...nodes },
    backendOptions: { host: `127.0.0.${rank + 1}` },
    timeoutMs: 60_000,
    graceMs: 500,
    onOutput: () => {},
    ...given,
  } as LaunchOptions<unknown, unknown, "tcp">);
}

describe.skipIf(process.platform !== "linux")("a world of 1 to 3 hosts", () => {
  it("begins with those that have come, goes on without one that is lost, and takes in those that come", {
    timeout: 90_000,
  }, async () => {
    const lines: string[] = [];
    const events: WorldEvent[] = [];
    const count = { min: 1, max: 3 };
    const leaving = new AbortController();
    const others: Promise<unknown>[] = [];
    let rendezvous = "";
    const join = (rank: number, given?: Given) => {
      const one = host(rank, { count, rendezvous }, given);
      others.push(one.catch((error: unknown) => error));
    };
    const onOutput = ({ text, stream }: OutputLine) => {
      if (stream === "stderr") return;
      lines.push(text);
      if (text === "generation 1: 2") leaving.abort("its host is drained");
      if (text === "generation 2: 1") for (const rank of [2, 1]) join(rank);
    };
    const onListening = (port: number) => {
      rendezvous = `127.0.0.1:${port}`;
      join(1, { signal: leaving.signal });
    };
    const onEvent = (event: WorldEvent) => void events.push(event);
    const first = host(
      0,
      { count, rendezvous: "127.0.0.1:0", lastCallMs: 3_000, onListening },
      { onOutput, onEvent, restarts: 1 },
    );
    const results = (await first) as [number, number, string, number, number][];
    // By host, also where host 2 came before host 1; all have the steps and the sum of rank 0, who was there from the start.
    const [[, , , steps, counted] = []] = results;
    expect(results).toEqual([0, 1, 2].map((rank) => [rank, 3, String(rank), steps, counted]));
    expect(lines.slice(0, 2)).toEqual(["generation 1: 2", "generation 2: 1"]);
    expect(lines.at(-1)).toMatch(/^generation [34]: 3$/);
    // One rebuild was allowed: those for hosts that came are no failures.
    const begun = events.filter(({ kind }) => kind === "rebuild-started") as { because: string }[];
    // Rank 0 may ask for it before the launcher's word has come.
    const drained = /the launcher of host 1 .* was ended: .*its host is drained/;
    if (begun[0]?.because !== "rank 0 called world.rebuild()") expect(begun[0]?.because).toMatch(drained);
    expect(events).toContainEqual(
      expect.objectContaining({ kind: "rank-failed", rank: 1, generation: 1, message: expect.stringMatching(drained) }),
    );
    expect(begun[1]?.because).toBe("another host has come, and the world is formed anew");
    const [left, ...came] = await Promise.all(others);
    expect(String(left)).toContain("its host is drained");
    expect(came).toEqual([[], []]);
  });

  it("waits for hosts when too few are left, and says how many it needs", { timeout: 60_000 }, async () => {
    const leaving = new AbortController();
    const count = { min: 2, max: 3 };
    const onOutput = () => leaving.abort("its host is drained");
    let other: Promise<unknown> | undefined;
    const onListening = (port: number) => {
      const nodes = { count, rendezvous: `127.0.0.1:${port}` };
      other = host(1, nodes, { signal: leaving.signal }).catch((error: unknown) => error);
    };
    const nodes = { count, rendezvous: "127.0.0.1:0", lastCallMs: 0, joinTimeoutMs: 4_000, onListening };
    const refusals: string[] = [];
    const onEvent = (event: WorldEvent) => void (event.kind === "rebuild-refused" && refusals.push(event.because));
    await expect(host(0, nodes, { onOutput, onEvent })).rejects.toThrow(/rank 1 failed .*its host is drained/);
    expect(refusals).toEqual([
      "only the first host is left of the 2 that the world needs, and no other came within 4 s",
    ]);
    const refused = String(await host(0, { ...nodes, joinTimeoutMs: 300 }).catch((thrown: unknown) => thrown));
    expect(refused).toMatch(/hosts 1, 2 of 2 to 3 did not come/);
    await other;
  });
});

describe("what a changing number of hosts is refused with", () => {
  const rendezvous = "127.0.0.1:9";
  const start = (nodes: Partial<NodesOptions>, given?: Given) =>
    host(nodes.rank ?? 0, { count: { min: 1, max: 2 }, rendezvous, ...nodes }, given);

  it.each([
    [{ count: { min: 3, max: 2 } }, "nodes.count.min is 3; expected an integer from 1 to 2, the most hosts"],
    [{ count: { min: 0, max: 2 } }, "nodes.count.min is 0; expected an integer from 1 to 2, the most hosts"],
    [{ count: { min: 1, max: 0 } }, "nodes.count.max is 0; expected an integer from 1 to 256"],
    [{ count: { min: 1, max: 2.5 } }, "nodes.count.max is 2.5; expected an integer from 1 to 256"],
    [{ rank: 2 }, "nodes.rank is 2; expected an integer from 0 to 1, of 2 hosts"],
    [{ count: 2, lastCallMs: 5 }, "nodes.lastCallMs is 5; expected nothing with one number of hosts"],
    [{ rendezvous: "0.0.0.0:9" }, "expected an address of this host where the number of hosts may change"],
  ])("%j", async (nodes: Partial<NodesOptions>, words) => {
    await expect(start(nodes)).rejects.toThrow(words);
  });

  it("no policy for failures, or a backend of one host", async () => {
    const words = 'onFailure is "end"; expected "respawn" or "shrink" where the number of hosts may change';
    await expect(start({}, { onFailure: "end" })).rejects.toThrow(words);
    await expect(start({}, { backend: "shm", backendOptions: {} } as never)).rejects.toThrow(
      /a backend for several hosts/,
    );
  });
});
