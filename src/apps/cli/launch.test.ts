import { expect, it } from "vitest";
import { InvalidArgumentError, RankFailedError } from "../../core/index.ts";
import { described, HOST_HAS_COME } from "../../core/internal.ts";
import { describeLack, EXIT } from "./exit-codes.ts";
import { describeEnd, describeFailed, tlsOf } from "./launch.ts";

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

it("names the flag that is missing beside the other files of TLS", () => {
  const flags = { tlsCa: "/ca.pem", tlsKey: "/key.pem" };
  expect(() => tlsOf(flags, {})).toThrow(/^--tls-cert is undefined; expected the path of a PEM file/);
  expect(tlsOf(flags, { CHORALE_TLS_CERT: "/cert.pem" })).toEqual({
    ca: "/ca.pem",
    cert: "/cert.pem",
    key: "/key.pem",
  });
  expect(tlsOf({}, { CHORALE_TLS_CERT: "/cert.pem" })).toBeUndefined();
});

it("takes ranks that do not connect, as those of hosts with other options, for bad usage", () => {
  const ended = (argument: string, value: unknown, accepted: string) =>
    describeEnd(new RankFailedError(1, 1, new InvalidArgumentError(argument, value, accepted)));
  const refused = ended("rank 1", described("refused"), "one that rank 0 at 127.0.0.1:7 takes: checksum is off there");
  expect(refused).toEqual({
    words:
      "rank 1 failed first: rank 1 is refused; expected one that rank 0 at 127.0.0.1:7 takes: checksum is off there",
    exitCode: EXIT.usage,
  });
  expect(ended("op", "zum", "sum").exitCode).toBe(EXIT.checkFailed);
  expect(describeEnd(new RankFailedError(1, 1, undefined)).exitCode).toBe(EXIT.checkFailed);
});
