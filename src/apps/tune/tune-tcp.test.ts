/** Tuning over sockets: what is listed, and the commands on two pretended hosts, from measuring to a world that uses what was stored. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { CLI_PROCESS, runCli } from "../../../test/helpers/cli.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { freePort } from "../../../test/support/free-port.mjs";
import { checkBackendOptions } from "../../runtime/comm/index.ts";
import { loadLibraryPlans, SERVED_COLLECTIVES } from "../../runtime/executor/internal.ts";
import { backendKind, launch } from "../../runtime/world/index.ts";
import { shippedWay, socketCandidates } from "./socket-candidates.ts";
import type { TuneResult } from "./tune-collective.ts";
import { storeTuning, tunedMachine } from "./tuned-machine.ts";

const SECRET = "a secret of these tests alone, 0123456789";

beforeAll(loadLibraryPlans);
afterEach(() => vi.unstubAllEnvs());

/** Calls a command on two hosts of this machine, the second in a process. @returns what each ended with and printed */
async function onTwoHosts(words: readonly string[], perHost: readonly [string, string] = ["1", "1"]) {
  vi.stubEnv("CHORALE_SECRET", SECRET);
  const hosts = ["--backend", "tcp", "--nnodes", "2", "--rdzv", `127.0.0.1:${await freePort()}`];
  const argv = (node: 0 | 1) => [...words, ...hosts, "--node-rank", String(node), "-n", perHost[node]];
  const other = spawn(process.execPath, [...CLI_PROCESS, ...argv(1)], { env: { ...process.env } });
  let second = "";
  for (const stream of [other.stdout, other.stderr]) stream.on("data", (text) => (second += text));
  const [first, [code]] = await Promise.all([runCli(...argv(0)), once(other, "close")]);
  return { first, second: { code: code as number, out: second } };
}

describe("what is tried over sockets", () => {
  it("has names that tables of tcp may have, fewer of them where pieces would be all there is", async () => {
    const tcp = await backendKind("tcp");
    const { ways } = tcp;
    for (const op of SERVED_COLLECTIVES) {
      const own = ways?.(op) ?? [];
      expect(own).not.toContain("socket-kernel");
      const at = (bytes: number) => socketCandidates(own, op, 4, bytes);
      expect(at(64 * 2 ** 20).length, op).toBeGreaterThan(2);
      expect(at(64).filter((label) => label.includes("@unit"))).toEqual([]);
      const tables = [64, 65_536, 64 * 2 ** 20].map((bytes) => ({
        ...{ backend: "tcp", collective: op, ranks: [4, 4] },
        rows: at(bytes).map((use, i) => ({ fromBytes: i, use })),
      }));
      const choices = { schemaVersion: 1, source: "test", date: "2026-11-29", tables };
      expect(() => checkBackendOptions(tcp, { choices }, 4), op).not.toThrow();
    }
    const ofReduce = (bytes: number) => socketCandidates(ways?.("all_reduce") ?? [], "all_reduce", 3, bytes);
    expect(ofReduce(64)).toEqual(["flat", "hierarchical", "bruck", "recursive-doubling-all-reduce"]);
    expect(ofReduce(16 * 2 ** 20)).toEqual(
      expect.arrayContaining([
        "flat@unit1M",
        "hierarchical@unit512K",
        "reduce-scatter-all-gather",
        "ring-all-reduce*2",
      ]),
    );
    // The schedule that was counted is that of one size.
    expect(["hierarchical", "bruck", "reduce-scatter-all-gather"].map(shippedWay)).toEqual([
      "hierarchical",
      "flat",
      "flat",
    ]);
  });
});

describe.skipIf(process.platform === "win32")("chorale tune and chorale bench over tcp", () => {
  it("measure on two hosts, and tell on the first one", { timeout: 120_000 }, async () => {
    vi.stubEnv("CHORALE_CHOICES", join(scratchFolder("tune-tcp"), "machine.json"));
    const sizes = ["-b", "4K", "-e", "4K"];
    const tuned = await onTwoHosts(["tune", "all_reduce", ...sizes, "--budget", "2", "--json"]);
    expect(tuned.first.code, tuned.first.err).toBe(0);
    expect(tuned.second).toEqual({ code: 0, out: "" });
    const found = JSON.parse(tuned.first.out) as TuneResult;
    expect(found).toMatchObject({ backend: "tcp", ranks: 2, topology: "2 hosts of 1", wrong: [] });
    const [row] = found.rows;
    expect(row).toMatchObject({ sizeBytes: 4096, shipped: { label: "flat", wrong: 0 } });
    expect(row?.measured.length).toBeGreaterThan(0);
    // What the hosts cannot do was left out.
    expect(row?.measured.map(({ label }) => label)).not.toContain("hierarchical");
    // Whatever it chose, what is stored serves a world of two hosts.
    const [table] = [
      { backend: "tcp", collective: "all_reduce", ranks: [2, 2], topology: "2 hosts of 1" } as const,
    ].map((base) => ({ ...base, dtypes: ["f32" as const], rows: [{ fromBytes: 0, use: "ring-all-reduce" }] }));
    storeTuning(tunedMachine().file ?? "", { ...found, table, measurements: [], fit: undefined }, "0.1.0");
    const benched = await onTwoHosts(["bench", "all_reduce", ...sizes, "--repeats", "1", "--check"]);
    expect(benched.first.code, benched.first.err).toBe(0);
    expect(benched.first.out).toMatch(/# chorale bench all_reduce: 2 ranks, backend tcp.*# Wrong elements : 0 OK/s);
    expect(benched.second).toEqual({ code: 0, out: "# host 0 prints what was measured\n" });
    expect(await choicesOfTwoHosts()).toEqual({ "all_reduce ring-all-reduce": 1 });
  });

  it("refuse hosts with different numbers of ranks, and what they cannot do on several", {
    timeout: 60_000,
  }, async () => {
    const other = await onTwoHosts(["bench", "all_reduce", "-b", "1K", "-e", "1K"], ["1", "2"]);
    expect(other.first.code).toBe(2);
    expect(other.first.err).toMatch(/-n is of 3 ranks in all; expected 2: the same -n on every host/);
    const refusal = async (...argv: string[]) => {
      const { code, err } = await runCli(...argv);
      expect(code, err).toBe(2);
      return err;
    };
    const two = ["--nnodes", "2", "--node-rank", "0", "--rdzv", "127.0.0.1:1"];
    expect(await refusal("bench", "all_reduce", "--backend", "tcp", ...two)).toMatch(/-n is not given/);
    expect(await refusal("bench", "all_reduce", "--backend", "all", "-n", "1", ...two)).toMatch(
      /one backend beside --nnodes/,
    );
    expect(await refusal("bench", "all_reduce", "--backend", "threads", "-n", "1", ...two)).toMatch(
      /a backend for several hosts/,
    );
    const range = ["--nnodes", "1:2", "--node-rank", "0", "--rdzv", "127.0.0.1:1", "-n", "1"];
    expect(await refusal("tune", "all_reduce", "--dry-run", "--backend", "tcp", ...range)).toMatch(
      /--nnodes is "?1:2"?; expected one number/,
    );
    expect(await refusal("tune", "ring-all-reduce", "--dry-run", "--backend", "tcp", "-n", "2")).toMatch(
      /tune of a program on tcp/,
    );
    expect(await refusal("tune", "all_reduce", "--backend", "shm")).toMatch(/threads, cuda, tcp/);
  });
});

/** What served a call of a world of two hosts. */
async function choicesOfTwoHosts() {
  vi.stubEnv("CHORALE_SECRET", SECRET);
  const rendezvous = `127.0.0.1:${await freePort()}`;
  const [first] = await Promise.all(
    [0, 1].map((rank) =>
      launch({
        ranks: 1,
        backend: "tcp",
        nodes: { count: 2, rank, rendezvous },
        run: async ({ comm }) => {
          await comm.allReduce(new Float32Array(9));
          return comm.stats().choices;
        },
      }),
    ),
  );
  return first?.[0];
}
