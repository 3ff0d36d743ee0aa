/** Failure and rebuild over sockets: ranks that die in every way, each a process; the next generation has right sums. */
import { describe, expect, it } from "vitest";
import type { Fault, How, Plan, Report } from "../../../test/e2e/ranks/faulty.ts";
import { RankFailedError } from "../../core/index.ts";
import type { WorldEvent } from "./events.ts";
import { launch } from "./launch.ts";

const module = new URL("../../../test/e2e/ranks/faulty.ts", import.meta.url);

async function run(faults: readonly Fault[], onFailure: "respawn" | "shrink") {
  const events: WorldEvent[] = [];
  const results = await launch<Report, Plan, "tcp">({
    ranks: 3,
    backend: "tcp",
    module,
    onFailure,
    restarts: 10,
    rebuildTimeoutMs: 30_000,
    timeoutMs: 60_000,
    data: { steps: 3, timeoutMs: 30_000, count: 1000, faults },
    onOutput: () => {},
    onEvent: (event) => events.push(event),
  });
  for (const { wrong } of results) expect(wrong).toEqual([]);
  return { results, events };
}

describe.skipIf(process.platform === "win32")("a world over tcp", () => {
  it("goes on after its ranks died, one after the other", { timeout: 90_000 }, async () => {
    const hows: readonly How[] = ["exit1", "throw"];
    const faults = hows.map((how, i): Fault => ({ generation: i + 1, rank: 2 - i, how, step: i }));
    const { results, events } = await run(faults, "respawn");
    expect(results.map(({ rank, size, generation }) => [rank, size, generation])).toEqual([
      [0, 3, 3],
      [1, 3, 3],
      [2, 3, 3],
    ]);
    const failed = events.flatMap((event) => (event.kind === "rank-failed" ? [event.rank] : []));
    expect(failed).toEqual(expect.arrayContaining([2, 1]));
  });

  it("shrinks to its survivors", { timeout: 60_000 }, async () => {
    const { results } = await run([{ generation: 1, rank: 1, how: "exit1", step: 1 }], "shrink");
    expect(results.map(({ rank, size, generation }) => [rank, size, generation])).toEqual([
      [0, 2, 2],
      [1, 2, 2],
    ]);
  });

  it("tells every survivor at once who was killed", { timeout: 60_000 }, async () => {
    const told: string[] = [];
    const running = launch({
      ranks: 3,
      backend: "tcp",
      data: {},
      // On stderr ranks say of a call that it takes long.
      onOutput: ({ text, stream }) => void (stream === "stdout" && told.push(text)),
      run: async (world) => {
        const began = performance.now();
        const drive = () => (world.rank === 0 ? world.comm.barrier().wait() : world.comm.barrier());
        try {
          // Rank 1 may be dead before its peers have come through this one: then this one tells them.
          await world.comm.barrier();
          if (world.rank === 1) process.kill(process.pid, "SIGKILL");
          await drive();
        } catch (error) {
          const { code, rank } = error as { code?: string; rank?: number };
          console.log(`${code} ${rank} ${performance.now() - began < 30_000}`);
          throw error;
        }
      },
    });
    await expect(running).rejects.toThrow(RankFailedError);
    await expect(running).rejects.toMatchObject({ rank: 1 });
    expect(told).toEqual(["RANK_FAILED 1 true", "RANK_FAILED 1 true"]);
  });

  it("lets a collective end on a rank that is behind, though a receive from a rank that left fails elsewhere", async () => {
    const sums = await launch({
      ranks: 3,
      backend: "tcp",
      timeoutMs: 20_000,
      async run({ comm }) {
        const group = await comm.split(0, comm.rank, { name: "leaving" });
        if (group === undefined) throw new Error("no group");
        const sum = group.allReduce(new Float32Array([comm.rank + 1]));
        // Rank 2 sees its peers' shares, that rank 1 has left and that rank 0's receive failed all at once.
        if (comm.rank === 2) for (const until = performance.now() + 400; performance.now() < until; );
        const { data } = await sum;
        if (comm.rank === 0) await group.recv(new Float32Array(1), 1).catch(() => {});
        await group.close().catch(() => {});
        return data[0];
      },
    });
    expect(sums).toEqual([6, 6, 6]);
  });
});
