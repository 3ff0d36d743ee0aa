import { expect, it } from "vitest";
import { RankFailedError } from "../../core/index.ts";
import { HOST_HAS_COME } from "../../core/internal.ts";
import { describeLack } from "./exit-codes.ts";
import { describeFailed } from "./launch.ts";

it("says once which rank failed in which generation, where a rank reports another's failure or its generation's", () => {
  const failed = { kind: "rank-failed", timeMs: 0, generation: 2, how: "failed" } as const;
  const { message } = new RankFailedError(0, 2, new Error("no room"));
  expect(
    [
      { ...failed, rank: 0, becauseOfRank: 0, message },
      { ...failed, rank: 1, becauseOfRank: 0, message },
      { ...failed, rank: 1, message: "no memory" },
      { ...failed, rank: 1, becauseOfRank: 0, message: new RankFailedError(0, 2, new Error(HOST_HAS_COME)).message },
    ].map(describeFailed),
  ).toEqual([
    "rank 0 failed (generation 2): no room",
    "rank 1 failed (generation 2) because rank 0 did: no room",
    "rank 1 failed (generation 2): no memory",
    `rank 1 failed (generation 2): ${HOST_HAS_COME}`,
  ]);
});

it("does not say that a rank failed where the world takes in another host", () => {
  const { message } = new RankFailedError(0, 3, new Error(HOST_HAS_COME));
  expect(message).toBe("generation 3 ends: another host has come, and the world is formed anew");
});

it("says that the current folder is gone where that is why nothing can be loaded", () => {
  const error = Object.assign(new Error("ENOENT: no such file or directory, uv_cwd"), {
    code: "ENOENT",
    syscall: "uv_cwd",
  });
  expect(describeLack(error)).toBe(
    "ENOENT: no such file or directory, uv_cwd. The current folder was removed: go to one that is there.",
  );
});
