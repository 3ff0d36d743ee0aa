import { expect, it } from "vitest";
import { describeLack } from "./exit-codes.ts";
import { describeFailed } from "./launch.ts";

it("says once which rank failed in which generation, where a rank reports another's failure or its generation's", () => {
  const failed = { kind: "rank-failed", timeMs: 0, generation: 2, how: "failed" } as const;
  const message = "rank 0 failed (generation 2): another host has come";
  expect(
    [
      { ...failed, rank: 0, becauseOfRank: 0, message },
      { ...failed, rank: 1, becauseOfRank: 0, message },
      { ...failed, rank: 1, message: "no memory" },
    ].map(describeFailed),
  ).toEqual([
    "rank 0 failed (generation 2): another host has come",
    "rank 1 failed (generation 2) because rank 0 did: another host has come",
    "rank 1 failed (generation 2): no memory",
  ]);
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
