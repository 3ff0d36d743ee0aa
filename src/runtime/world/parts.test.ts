import { mkdtempSync, readFileSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { InvalidArgumentError, RankFailedError, TimeoutError } from "../../core/index.ts";
import type { FlightDump } from "../comm/index.ts";
import { BootstrapStore, PortBootstrap } from "./bootstrap.ts";
import { LineSplitter } from "./output.ts";
import { fromErrorRecord, plainRecord, toErrorRecord } from "./remote-error.ts";
import { RestartBudget, type RestartOptions, restartPolicy } from "./restart-policy.ts";
import { recordFlight } from "./write-flight-file.ts";

describe.skipIf(process.platform === "win32")("flight dumps", () => {
  it("name the ranks of which the launcher knows that they failed, and not those that report it", () => {
    const folder = mkdtempSync(join(tmpdir(), "chorale-flight-failed-"));
    vi.stubEnv("CHORALE_FLIGHT_DIR", folder);
    try {
      const ranks = [0, 1, 2, 3].map((rank) => ({ rank, failed: rank === 3 ? "said so" : undefined, entries: [] }));
      const failures = [
        { rank: 1, error: { ...plainRecord("rank 0 failed: gone"), failedRank: 0, cause: plainRecord("gone") } },
        { rank: 3, error: plainRecord("late") },
      ];
      const path = recordFlight(() => ({ worldSize: 4, ranks }) as unknown as FlightDump, 1, failures) ?? "";
      const dump = JSON.parse(readFileSync(path, "utf8")) as FlightDump;
      const told = ["gone", undefined, undefined, "said so"];
      expect(dump.ranks.map(({ failed }) => failed)).toEqual(told);
    } finally {
      vi.unstubAllEnvs();
      rmSync(folder, { recursive: true });
    }
  });

  it("are never written through a link, nor into a file that was there", () => {
    const folder = mkdtempSync(join(tmpdir(), "chorale-flight-links-"));
    const said = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    vi.spyOn(Date, "now").mockReturnValue(1);
    vi.stubEnv("CHORALE_FLIGHT_DIR", folder);
    try {
      const victim = join(folder, "victim");
      writeFileSync(victim, "kept");
      const path = join(folder, `flight-1-${process.pid}-1.json`);
      const record = () => recordFlight(() => ({}) as FlightDump, 1);
      for (const plant of [() => symlinkSync(victim, `${path}.part`), () => writeFileSync(`${path}.part`, "mine")]) {
        plant();
        expect(record()).toBeUndefined();
        expect(said).toHaveBeenLastCalledWith(expect.stringMatching(/cannot write to CHORALE_FLIGHT_DIR.*EEXIST/));
        unlinkSync(`${path}.part`);
      }
      // A link of the dump's own name is replaced, not followed.
      symlinkSync(victim, path);
      expect(record()).toBe(path);
      expect(readFileSync(path, "utf8")).toBe("{}");
      expect(readFileSync(victim, "utf8")).toBe("kept");
    } finally {
      vi.restoreAllMocks();
      vi.unstubAllEnvs();
      rmSync(folder, { recursive: true });
    }
  });
});

describe("lines", () => {
  it("come out whole, however the text is cut", () => {
    fc.assert(
      fc.property(
        fc.array(fc.stringMatching(/^[^\r\n]*$/), { minLength: 1 }),
        fc.array(fc.nat(20), { minLength: 1 }),
        (lines, cuts) => {
          const text = lines.map((line) => `${line}\n`).join("");
          const seen: string[] = [];
          const splitter = new LineSplitter((line) => seen.push(line));
          for (let at = 0, i = 0; at < text.length; i++) {
            const end = at + (cuts[i % cuts.length] ?? 0) + 1;
            splitter.push(text.slice(at, end));
            at = end;
          }
          splitter.flush();
          expect(seen).toEqual(lines);
        },
      ),
    );
  });

  it("lose a carriage return, keep a last line without end, and stay bounded", () => {
    const seen: string[] = [];
    const splitter = new LineSplitter((line) => seen.push(line), 1000);
    splitter.push("a\r\nb");
    splitter.flush();
    splitter.flush();
    expect(seen).toEqual(["a", "b"]);
    splitter.push("x".repeat(2_500));
    expect(seen.slice(2).map((line) => line.length)).toEqual([1000, 1000]);
  });

  // What came before was once looked through again with each part: 100 GB of copies here.
  it("of many parts are put together once", () => {
    const seen: number[] = [];
    const splitter = new LineSplitter((line) => seen.push(line.length));
    for (let i = 0; i < 16_384; i++) splitter.push("x".repeat(1024));
    splitter.push("\r\n");
    splitter.flush();
    expect(seen).toEqual([2 ** 24]);
  });
});

describe("errors between threads", () => {
  it("keep name, message, stack, code and causes", () => {
    const error = new InvalidArgumentError("x", 1, "2", { cause: new TypeError("root") });
    const back = fromErrorRecord(structuredClone(toErrorRecord(error)));
    expect(back).toMatchObject({ name: "InvalidArgumentError", message: error.message, code: "INVALID_ARGUMENT" });
    expect(back.stack).toBe(error.stack);
    expect(back.cause).toMatchObject({ name: "TypeError", message: "root" });
  });

  it("tell which rank a failure is about, and survive anything that is thrown", () => {
    expect(toErrorRecord(new RankFailedError(3, 1, "why")).failedRank).toBe(3);
    expect(toErrorRecord(new RankFailedError(3, 1, "why")).cause?.message).toBe("why");
    expect(toErrorRecord("text").message).toBe('threw "text", which is not an Error');
    expect(toErrorRecord(undefined).message).toContain("undefined");
    const circle = new Error("circle");
    circle.cause = circle;
    expect(JSON.stringify(toErrorRecord(circle)).length).toBeLessThan(100_000);
  });
});

describe("bootstrap", () => {
  const pair = () => {
    const store = new BootstrapStore(1);
    const ranks = [0, 1].map((rank) => {
      const door: PortBootstrap = new PortBootstrap(rank, 2, 1, (message) => {
        if (message.kind.startsWith("bootstrap")) store.handle(message as never, (reply) => door.receive(reply));
      });
      store.addRank((reply) => door.receive(reply));
      return door;
    });
    return { store, a: ranks[0]!, b: ranks[1]! };
  };

  it("gives what a rank set, before or after it is asked for", async () => {
    const { a, b } = pair();
    const early = b.get("id");
    await a.set("id", Uint8Array.of(1, 2));
    expect(await early).toEqual(Uint8Array.of(1, 2));
    expect(await b.get("id")).toEqual(Uint8Array.of(1, 2));
  });

  it("names the key at a timeout, can be aborted, and bounds values", async () => {
    const { a } = pair();
    await expect(a.get("never", { timeoutMs: 5 })).rejects.toThrow(TimeoutError);
    await expect(a.get("never", { timeoutMs: 5 })).rejects.toThrow('"never", which no rank has set');
    const controller = new AbortController();
    const waiting = a.get("never", { signal: controller.signal });
    controller.abort(new Error("stop"));
    await expect(waiting).rejects.toThrow("stop");
    await expect(a.set("big", new Uint8Array(65537))).rejects.toThrow("at most 65536 bytes");
  });

  it("tells every rank once that the world is over", () => {
    const { a, b } = pair();
    const heard: string[] = [];
    a.onFailure(({ rank, message }) => heard.push(`a ${rank} ${message}`));
    b.onFailure(({ rank, message }) => heard.push(`b ${rank} ${message}`));
    b.fail({ rank: 1, message: "x" });
    a.fail({ rank: 0, message: "later" });
    expect(heard).toEqual(["a 1 x", "b 1 x"]);
    a.onFailure(({ message }) => heard.push(`late ${message}`));
    expect(heard.at(-1)).toBe("late x");
  });

  it("belongs to one generation: what comes from another is dropped, and its end rejects who waits", async () => {
    const { store, a } = pair();
    const replies: unknown[] = [];
    store.handle({ kind: "bootstrap-set", generation: 2, key: "id", value: Uint8Array.of(9) }, () => {});
    store.handle({ kind: "bootstrap-get", generation: 1, key: "id" }, (reply) => replies.push(reply));
    expect(replies).toEqual([]);
    const waiting = a.get("id");
    a.receive({ kind: "bootstrap-value", generation: 2, key: "id", value: Uint8Array.of(9) });
    a.close(new Error("over"));
    await expect(waiting).rejects.toThrow("over");
    await expect(a.get("id")).rejects.toThrow("over");
    await expect(a.set("id", Uint8Array.of(1))).rejects.toThrow("over");
  });
});

describe("restarts", () => {
  const policy = (options: RestartOptions) => restartPolicy(options, 4);

  it("are three by default, respawn when only their number is given, and end the world otherwise", () => {
    expect(policy({})).toMatchObject({ onFailure: "end", restarts: 0, rebuildTimeoutMs: 60_000 });
    expect(policy({ restarts: 5 })).toMatchObject({ onFailure: "respawn", restarts: 5 });
    expect(policy({ onFailure: "shrink" })).toMatchObject({ restarts: 3, minRanks: 1 });
    for (const [options, message] of [
      [{ restarts: -1 }, "restarts is -1; expected an integer"],
      [{ restarts: 1.5 }, "restarts is 1.5"],
      [{ restarts: 1, onFailure: "end" }, 'or onFailure "respawn" or "shrink"'],
      [{ onFailure: "sleep" as "end" }, "one of end, respawn, shrink"],
      [{ onFailure: "shrink", minRanks: 5 }, "from 1 to the number of ranks, 4"],
      [{ onFailure: "respawn", minRanks: 2 }, "minRanks is 2"],
      [{ restarts: 1, rebuildTimeoutMs: 0 }, "rebuildTimeoutMs is 0"],
      [{ restarts: 1, restartDelayMs: 2 ** 31 }, "restartDelayMs is 2147483648"],
      [{ restarts: 1, restartWindowMs: Number.NaN }, "restartWindowMs is NaN"],
    ] satisfies [RestartOptions, string][]) {
      expect(() => policy(options), message).toThrow(message);
    }
  });

  it("are counted within a window, and wait twice as long each time, up to a limit", () => {
    const all = new RestartBudget(policy({ restarts: 2 }));
    expect([all.take(0), all.take(1e9), all.take(2e9)]).toEqual([{ delayMs: 0 }, { delayMs: 0 }, undefined]);
    expect(all.describe()).toBe("all 2 rebuilds are used up");
    const some = new RestartBudget(policy({ restarts: 3, restartWindowMs: 1000, restartDelayMs: 100 }));
    const delays = [0, 10, 20, 30, 999, 1000, 1500, 5000].map((now) => some.take(now)?.delayMs);
    //             1st  2nd  3rd  full       full       the 1st is forgotten, then the others
    expect(delays).toEqual([100, 200, 400, undefined, undefined, 400, 200, 100]);
    const long = new RestartBudget(policy({ restarts: 100, restartDelayMs: 1000 }));
    expect(Array.from({ length: 8 }, () => long.take(0)?.delayMs)).toEqual([
      1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000,
    ]);
  });
});
