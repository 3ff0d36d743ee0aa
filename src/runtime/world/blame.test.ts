/** Who is named when a rank dies: that one, to everybody, also where another one reports it first. */
import { describe, expect, it } from "vitest";
import { spread } from "../../../test/support/spread.ts";
import { attachThreads, createThreadsHost } from "../backends/threads/index.ts";
import { THREADS_KIND } from "../backends/threads/threads-kind.ts";
import { launch } from "./launch.ts";
import { culpritOf, plainRecord, toErrorRecord } from "./remote-error.ts";

/** Survivors of a failure that must say what they were told, whatever else this machine does. */
const PATIENT = { graceMs: 60_000 };

const BACKENDS = ["threads", "shm", "tcp"] as const;
const reported = (failedRank: number) => ({
  ...plainRecord(`rank ${failedRank} failed (generation 1): gone`),
  failedRank,
  cause: plainRecord("gone"),
});

describe("the culprit of a failure", () => {
  it("is the rank whose death is reported, with that one's cause", () => {
    expect(culpritOf({ rank: 1, error: reported(2) }, 3)).toEqual({
      rank: 2,
      error: plainRecord("gone"),
      text: "gone",
    });
  });

  it("is the reporting rank where the world has no such rank", () => {
    for (const error of [plainRecord("mine"), reported(3), reported(-1)]) {
      expect(culpritOf({ rank: 1, error }, 3)).toMatchObject({ rank: 1, error });
    }
  });

  it.each(spread(BACKENDS, 2))(
    "is named to a group that has only the rank that reports it (%s)",
    { timeout: 120_000 },
    async (backend) => {
      const told: string[] = [];
      const running = launch({
        ...PATIENT,
        ranks: 3,
        backend,
        data: {},
        onOutput: ({ text, rank, stream }) => void (rank === 0 && stream === "stdout" && told.push(text)),
        run: async (world) => {
          const pair = await world.comm.split(world.rank === 2 ? -1 : 0, world.rank);
          // Rank 2 dies when the others have their group: its end must not overtake that.
          const word = new Int32Array(1);
          if (world.rank === 2) for (const peer of [0, 1]) await world.comm.recv(word, peer);
          else await world.comm.send(word, 2);
          if (world.rank === 2) throw new Error("the origin");
          if (world.rank === 1) await world.comm.barrier();
          try {
            await pair?.barrier();
          } catch (error) {
            const { rank, cause } = error as { rank: number; cause: Error };
            console.log(`rank ${rank}: ${cause.message}`);
          }
        },
      });
      await expect(running).rejects.toMatchObject({ rank: 2, cause: { message: "the origin" } });
      // By the launcher, or by a peer.
      expect(told).toEqual([expect.stringMatching(/^rank 2: (Error: )?the origin$/)]);
    },
  );

  it.each([false, true])("is not taken for dead before the launcher sees it end (everybody: %s)", async (everybody) => {
    const handle = createThreadsHost({ ranks: 3, generation: 1 });
    const ranks = [0, 1, 2].map((rank) => attachThreads(handle, rank));
    const apart = await Promise.all(ranks.slice(1).map((rank) => rank.group("apart", [1, 2])));
    THREADS_KIND.fail(handle, 0, "it was killed", everybody, 1);
    const refusal = "rank 1 failed (generation 1): it was killed";
    for (const { world } of ranks.slice(1)) await expect(async () => world.barrier()).rejects.toThrow(refusal);
    // Its other groups go on until the launcher sees it end, unless the generation is over.
    const barriers = async () => Promise.all(apart.map((group) => group.barrier()));
    if (everybody) await expect(barriers()).rejects.toThrow(refusal);
    else await barriers();
    for (const rank of ranks) rank.abandon(new Error("enough"));
    THREADS_KIND.releaseHost(handle);
  });

  it.each(spread(BACKENDS, 2, 1))(
    "is told in the same words on every backend when it calls process.exit() (%s)",
    { timeout: 120_000 },
    async (backend) => {
      for (const code of [3, 0]) {
        const told: string[] = [];
        const running = launch({
          ...PATIENT,
          ranks: 2,
          backend,
          data: code,
          onOutput: ({ text, rank, stream }) => void (rank === 0 && stream === "stdout" && told.push(text)),
          run: async (world, exitCode) => {
            await world.comm.barrier();
            if (world.rank === 1) process.exit(exitCode);
            try {
              await world.comm.barrier();
            } catch (error) {
              console.log((error as Error).message);
              throw error;
            }
          },
        });
        const words = code === 0 ? "called process.exit(0) with its world open" : "called process.exit(3)";
        const whole = `rank 1 failed (generation 1): ${words}`;
        await expect(running).rejects.toThrow(whole);
        expect(told).toEqual([whole]);
      }
    },
  );
});

it("tells peers the class of what a program threw, and none of what happened to its rank", () => {
  const text = (error: ReturnType<typeof plainRecord>) => culpritOf({ rank: 1, error }, 2).text;
  expect(text(plainRecord("its host is lost"))).toBe("its host is lost");
  expect(text(toErrorRecord(new Error("boom")))).toBe("Error: boom");
  expect(text(toErrorRecord(new TypeError("boom")))).toBe("TypeError: boom");
});
