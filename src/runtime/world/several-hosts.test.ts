/** Worlds of several hosts: here each is a `launch()` of this process, with an address of its own on the loopback network. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { withoutNotices } from "../../../test/helpers/notices.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { freePort } from "../../../test/support/free-port.mjs";
import {
  AbortedError,
  FormatError,
  InvalidArgumentError,
  RankFailedError,
  UnavailableError,
} from "../../core/index.ts";
import type { FlightDump } from "../comm/index.ts";
import { nodePlace, nodeRendezvous, rendezvousSecret } from "../rendezvous/index.ts";
import { backendKind } from "./backend-table.ts";
import type { WorldEvent } from "./events.ts";
import { launch } from "./launch.ts";
import type { LaunchOptions } from "./launch-options.ts";
import { loadableUrl } from "./package-location.ts";

const secret = randomBytes(32).toString("hex");
const folder = mkdtempSync(join(tmpdir(), "chorale-hosts-"));
beforeAll(() => {
  vi.stubEnv("CHORALE_SECRET", secret);
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

type Given = Partial<LaunchOptions<unknown, unknown, "tcp">>;

/** Starts a world of 2 hosts. @returns what became of each */
async function world(ranks: readonly [number, number], run: LaunchOptions<unknown, unknown>["run"], given: Given = {}) {
  const port = await freePort();
  const lines: string[][] = [[], []];
  const settled = await Promise.allSettled(
    ranks.map((count, rank) =>
      launch({
        ranks: count,
        backend: "tcp",
        env: { GREETING: `host ${rank}` },
        nodes: { count: 2, rank, rendezvous: `127.0.0.1:${port}`, hostTimeoutMs: 20_000, joinTimeoutMs: 20_000 },
        backendOptions: { host: `127.0.0.${rank + 1}` },
        timeoutMs: 30_000,
        graceMs: 500,
        onOutput: ({ text, stream }) => void (stream === "stdout" && lines[rank]?.push(text)),
        run,
        ...given,
      } as LaunchOptions<unknown, unknown, "tcp">),
    ),
  );
  return { settled, lines };
}

describe.skipIf(process.platform !== "linux")("a world of two hosts", () => {
  it("writes what all ranks did last when a person asks, and goes on", { timeout: 60_000 }, async () => {
    const own = scratchFolder("asked-flight");
    const dumps = join(own, "dumps");
    vi.stubEnv("CHORALE_FLIGHT_DIR", dumps);
    const go = join(own, "go");
    const ask = async () => {
      process.kill(process.pid, "SIGUSR2");
      // Both launchers are this process: host 0 writes its own and what host 1 sends, and host 1 its own.
      await vi.waitFor(
        () => expect(readdirSync(dumps).filter((name) => name.endsWith(".json"))).toHaveLength(3),
        20_000,
      );
      writeFileSync(go, "");
    };
    let asked: Promise<void> | undefined;
    const { settled } = await world(
      [1, 1],
      async (world, data) => {
        const { existsSync } = await import("node:fs");
        await world.comm.barrier();
        while (world.rank === 1 && !existsSync(data as string)) await new Promise((resolve) => setTimeout(resolve, 5));
        const work = world.comm.allReduce(Float32Array.of(1));
        if (world.rank === 0) console.log("waits");
        return (await work).data[0];
      },
      {
        data: go,
        onOutput: ({ text }) => {
          if (text === "waits") asked ??= ask();
        },
      },
    );
    await asked;
    vi.stubEnv("CHORALE_FLIGHT_DIR", "");
    expect(settled[0]).toEqual({ status: "fulfilled", value: [2, 2] });
    const names = readdirSync(dumps);
    const read = (name: string): FlightDump => JSON.parse(readFileSync(join(dumps, name), "utf8"));
    const lastOf = ({ ranks }: FlightDump, rank: number) => ranks.find((one) => one.rank === rank)?.entries.at(-1);
    const sent = names.filter((name) => name.endsWith("-host1.json")).map(read);
    expect(sent.map((dump) => lastOf(dump, 1)?.op)).toEqual(["barrier"]);
    const waiting = names.map(read).flatMap((dump) => lastOf(dump, 0) ?? []);
    expect(waiting.map(({ op, state }) => [op, state === "done"])).toEqual([["all_reduce", false]]);
    expect(process.listenerCount("SIGUSR2")).toBe(0);
  });

  it("numbers ranks over hosts, moves data between them, and keeps its secret", { timeout: 60_000 }, async () => {
    const { settled, lines } = await world([1, 2], async (world) => {
      const x = world.tensor("f32", [3]);
      x.data.fill(world.rank + 1);
      await world.comm.allReduce(x);
      const { env, argv } = process;
      const text = JSON.stringify({ env, argv });
      console.log(
        `${env["GREETING"]} node ${env["CHORALE_NODE_RANK"]} local ${env["CHORALE_LOCAL_RANK"]} of ${env["CHORALE_LOCAL_WORLD_SIZE"]}`,
      );
      return { rank: world.rank, sum: x.data[0], text };
    });
    const [first, second] = settled;
    if (first?.status !== "fulfilled") throw first?.reason;
    expect(second).toEqual({ status: "fulfilled", value: [] });
    const results = first.value as { rank: number; sum: number; text: string }[];
    expect(results.map(({ rank, sum }) => [rank, sum])).toEqual([
      [0, 6],
      [1, 6],
      [2, 6],
    ]);
    expect(lines[0]).toEqual(["host 0 node 0 local 0 of 1"]);
    expect(lines[1]?.toSorted()).toEqual(["host 1 node 1 local 0 of 2", "host 1 node 1 local 1 of 2"]);
    for (const { text } of results) expect(text).not.toContain(secret);
  });

  it("tells both launchers which rank failed first, and writes flight files without the secret", {
    timeout: 60_000,
  }, async () => {
    vi.stubEnv("CHORALE_FLIGHT_DIR", folder);
    const { settled } = await world([1, 1], async (world) => {
      await world.comm.barrier();
      if (world.rank === 1) process.kill(process.pid, "SIGKILL");
      await world.comm.barrier();
    });
    vi.stubEnv("CHORALE_FLIGHT_DIR", "");
    for (const one of settled) {
      if (one.status !== "rejected") throw new Error("expected a failure");
      expect(one.reason).toBeInstanceOf(RankFailedError);
      expect(one.reason.message).toMatch(/rank 1 failed .*killed by SIGKILL/);
    }
    const names = readdirSync(folder);
    // Both hosts are this process here, and share its folder: the first host's own, the other's, and what that sent before.
    expect(names.map((name) => name.replace(/^flight-\d+-\d+-/, "")).sort()).toEqual([
      "1-host1.json",
      "1.json",
      "1.json",
    ]);
    const dumps = names.map((name) => readFileSync(join(folder, name), "utf8"));
    const sent = names.find((name) => name.includes("host1")) ?? "";
    const { ranks: told } = JSON.parse(readFileSync(join(folder, sent), "utf8")) as FlightDump;
    expect(told.map(({ entries }) => entries.map(({ call, state }) => `${call} ${state}`))).toEqual([
      [],
      [expect.stringMatching(/^barrier\(\) (done|started)$/)],
    ]);
    for (const dump of dumps) expect(dump).not.toContain(secret);
    // Each host writes what it still has of its own ranks' calls, and nothing of the others'.
    for (const dump of dumps) {
      const { ranks } = JSON.parse(dump) as { ranks: { entries: [] }[] };
      expect(ranks).toHaveLength(2);
      expect(ranks.filter(({ entries }) => entries.length > 0).length).toBeLessThanOrEqual(1);
    }
  });

  it("starts a rank of the other host again", { timeout: 60_000 }, async () => {
    const events: WorldEvent[] = [];
    const run: LaunchOptions<unknown, unknown>["run"] = async (world) => {
      let now = world;
      if (now.generation === 1 && now.rank === 1) process.exit(3);
      for (;;) {
        try {
          const x = now.tensor("i32", [1]);
          x.data[0] = 1;
          await now.comm.allReduce(x);
          await now.comm.barrier();
          return [now.generation, process.env["CHORALE_NODE_RANK"], x.data[0]];
        } catch {
          now = await now.rebuild();
        }
      }
    };
    const given: Given = { onFailure: "respawn", restarts: 2, onEvent: (event) => void events.push(event) };
    const { settled } = await world([1, 1], run, given);
    expect(settled).toEqual([
      {
        status: "fulfilled",
        value: [
          [2, "0", 2],
          [2, "1", 2],
        ],
      },
      { status: "fulfilled", value: [] },
    ]);
    expect(events.some((event) => event.kind === "rank-failed" && event.rank === 1)).toBe(true);
  });
});

describe.skipIf(process.platform !== "linux")("ranks of torchrun on two hosts", () => {
  it("join over tcp at MASTER_ADDR, and publish no secret", { timeout: 60_000 }, async () => {
    const kind = await backendKind("tcp");
    const made = kind.createHost({ ranks: 2, generation: 1, isolation: "process", worldSecret: secret }, {});
    const published = kind.acrossHosts?.publish(made);
    const adopted = kind.acrossHosts?.adopt(published, secret) as typeof made & { secret: string };
    expect(adopted.secret).toBe((made as typeof adopted).secret);
    expect(JSON.stringify(published)).not.toMatch(new RegExp(`${secret}|${adopted.secret}`));
    expect(() => kind.acrossHosts?.adopt({ kind: "tcp", ranks: 2, generation: 1, salt: "x" }, secret)).toThrow(
      FormatError,
    );
    for (const one of [made, adopted]) kind.releaseHost(one);
    // Ranks listen at the address by which their launcher reached host 0: an interface that is known to work (complaint 11).
    expect(kind.acrossHosts?.optionsAt({}, "10.1.2.3")).toEqual({ host: "10.1.2.3" });
    expect(kind.acrossHosts?.optionsAt({ host: "10.9.9.9" } as object, "10.1.2.3")).toEqual({ host: "10.9.9.9" });

    const world = JSON.stringify(loadableUrl("runtime/world/index").href);
    const program = `import { joinWorld } from ${world};
      const world = await joinWorld({ backend: "tcp", timeoutMs: 20000 });
      const x = world.tensor("f32", [2]);
      x.data.fill(world.rank + 1);
      await world.comm.allReduce(x);
      console.log(world.rank, world.size, x.data[0]);
      await world.close();`;
    const port = await freePort();
    const place = { WORLD_SIZE: "2", LOCAL_RANK: "0", LOCAL_WORLD_SIZE: "1", MASTER_ADDR: "127.0.0.1" };
    const ends = await Promise.all(
      ["0", "1"].map(async (RANK) => {
        const env = { ...process.env, ...place, RANK, MASTER_PORT: String(port - 1) };
        const child = spawn(process.execPath, ["--input-type=module", "-e", program], { env });
        let text = "";
        for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (t) => (text += t));
        const [code] = await once(child, "close");
        return [code, withoutNotices(text)];
      }),
    );
    expect(ends).toEqual([
      [0, "0 2 3\n"],
      [0, "1 2 3\n"],
    ]);
  });
});

describe("what several hosts are refused with", () => {
  const run = () => 1;
  const nodes = { count: 2, rank: 1, rendezvous: "127.0.0.1:9", joinTimeoutMs: 300 };
  const start = (given: Given) =>
    launch({ ranks: 1, backend: "tcp", run, ...given } as LaunchOptions<unknown, unknown, "tcp">);

  it("a first host that is not there, or has no address", async () => {
    await expect(start({ nodes })).rejects.toThrow(/host 0 at 127\.0\.0\.1:9.*nothing listens there.*ECONNREFUSED/);
    // A name server may take its time.
    const nowhere = { ...nodes, joinTimeoutMs: 4_000, rendezvous: "no-such-host.invalid:29517" };
    await expect(start({ nodes: nowhere })).rejects.toThrow(/cannot be looked up/);
    await expect(start({ nodes: { ...nodes, rank: 0, rendezvous: "192.0.2.1:29517" } })).rejects.toThrow(
      /192\.0\.2\.1:29517 to listen on is not available: this host does not have it/,
    );
  });

  it("a first host that answers once, with what that was, however short the last attempt was", async () => {
    let calls = 0;
    const server = createServer((socket) => void (calls++ === 0 && socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { port: number };
    const late = start({ nodes: { ...nodes, joinTimeoutMs: 3_500.9, rendezvous: `127.0.0.1:${port}` } });
    await expect(late).rejects.toThrow(/launcher of host 0 at .* sent .*; tried for 3\.5009 s/);
    // A launcher that does not run for so long has no time for the second.
    expect(calls).toBeLessThanOrEqual(2);
    server.close();
  });

  it("hosts that do not come, by number, with what was refused", async () => {
    const port = await freePort();
    const rendezvous = `127.0.0.1:${port}`;
    const first = start({ nodes: { count: 3, rank: 0, rendezvous, joinTimeoutMs: 8_000 } });
    first.catch(() => {});
    const second = start({ nodes: { count: 3, rank: 1, rendezvous, joinTimeoutMs: 10_000 } });
    second.catch(() => {});
    await expect(start({ nodes: { count: 2, rank: 1, rendezvous, joinTimeoutMs: 10_000 } })).rejects.toThrow(
      /host 1 is refused; expected one that the launcher of host 0 .* takes: it was told of 2 hosts, and host 0 of 3/,
    );
    vi.stubEnv("CHORALE_SECRET", "another secret of some length");
    await expect(start({ nodes: { count: 3, rank: 1, rendezvous, joinTimeoutMs: 10_000 } })).rejects.toThrow(
      /CHORALE_SECRET.*the one that the launcher of host 0/,
    );
    vi.stubEnv("CHORALE_SECRET", secret);
    const failed = await first.catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(UnavailableError);
    expect(String(failed)).toMatch(/host 2 of 3 did not come .*told of 2 hosts.*does not know the secret/);
    const told = await second.catch((error: unknown) => error);
    expect(told).toBeInstanceOf(AbortedError);
    expect((told as Error).message).toBe(`aborted: by host 0: ${(failed as Error).message}`);
  });

  it("hosts that were told of another backend, on both sides", async () => {
    const rendezvous = `127.0.0.1:${await freePort()}`;
    const both = [
      start({ nodes: { count: 2, rank: 0, rendezvous, joinTimeoutMs: 1_500 } }),
      start({ nodes: { count: 2, rank: 1, rendezvous, joinTimeoutMs: 10_000 }, backend: "nccl" } as never),
    ];
    const [first, second] = await Promise.all(both.map((one) => one.catch((error: unknown) => error)));
    const why = /it runs chorale [\d.]+, --backend nccl, and host 0 chorale [\d.]+, --backend tcp/;
    for (const error of [first, second]) {
      expect(error).toBeInstanceOf(InvalidArgumentError);
      expect((error as Error).message).toMatch(why);
    }
    expect((first as Error).message).toMatch(/^host 1 is refused: .*; expected the same command on every host$/);
  });

  it("wrong numbers, backends and secrets", async () => {
    await expect(start({ nodes: { ...nodes, rank: 2 } })).rejects.toThrow(InvalidArgumentError);
    await expect(start({ nodes: { ...nodes, rendezvous: "10.0.0.1" } })).rejects.toThrow("HOST:PORT");
    await expect(start({ nodes, backend: "threads" } as never)).rejects.toThrow(
      /a backend for several hosts, such as tcp or nccl/,
    );
    expect(() => rendezvousSecret({})).toThrow(/CHORALE_SECRET/);
    const file = join(folder, "secret");
    writeFileSync(file, `${secret}\n`, { mode: 0o644 });
    chmodSync(file, 0o644);
    if (process.platform !== "win32") {
      expect(() => rendezvousSecret({ CHORALE_SECRET_FILE: file })).toThrow(/others can read \(mode 644\).*chmod 600/);
    }
    chmodSync(file, 0o600);
    expect(rendezvousSecret({ CHORALE_SECRET_FILE: file })).toBe(secret);
    expect(() => rendezvousSecret({ CHORALE_SECRET_FILE: folder })).toThrow(/a regular file/);
  });
});

describe("what starters say of hosts", () => {
  it("is read from their variables", () => {
    expect(nodePlace({ PET_NODE_RANK: "1", PET_NNODES: "4" })).toEqual({ node: 1, count: 4 });
    expect(nodePlace({ PET_NODE_RANK: "1", PET_NNODES: "2:4" })).toEqual({ node: 1, count: { min: 2, max: 4 } });
    expect(() => nodePlace({ PET_NODE_RANK: "1", PET_NNODES: "2:" })).toThrow(InvalidArgumentError);
    const slurm = { SLURM_PROCID: "2", SLURM_STEP_NUM_TASKS: "3", SLURM_STEP_TASKS_PER_NODE: "1(x3)" };
    expect(nodePlace(slurm)).toEqual({ node: 2, count: 3 });
    expect(() => nodePlace({ ...slurm, SLURM_STEP_TASKS_PER_NODE: "4(x3)" })).toThrow(
      /one chorale launch on each host/,
    );
    const openMpi = { OMPI_COMM_WORLD_RANK: "0", OMPI_COMM_WORLD_SIZE: "2", OMPI_COMM_WORLD_LOCAL_SIZE: "1" };
    expect(nodePlace(openMpi)).toEqual({ node: 0, count: 2 });
    expect(nodePlace({ PMI_RANK: "1", PMI_SIZE: "2", MPI_LOCALNRANKS: "1" })).toEqual({ node: 1, count: 2 });
    expect(nodePlace({ JOB_COMPLETION_INDEX: "3" })).toEqual({ node: 3, count: undefined });
    expect(nodePlace({ PMI_RANK: "1", PMI_SIZE: "2", PMI_LOCAL_RANK: "0" })).toEqual({ node: 1, count: 2 });
    expect(() => nodePlace({ PMI_RANK: "1", PMI_SIZE: "2", PMI_LOCAL_RANK: "1" })).toThrow(
      /PMI_LOCAL_RANK.*one chorale/,
    );
    const flux = { FLUX_TASK_RANK: "1", FLUX_JOB_SIZE: "2", FLUX_TASK_LOCAL_ID: "0", PMI_RANK: "1", PMI_SIZE: "2" };
    expect(nodePlace(flux)).toEqual({ node: 1, count: 2 });
    const jobSet = { JOB_GLOBAL_INDEX: "2", JOBSET_GLOBAL_REPLICAS: "4", JOB_COMPLETION_INDEX: "0" };
    expect(nodePlace(jobSet)).toEqual({ node: 2, count: 4 });
    expect(() => nodePlace({ ...jobSet, JOB_COMPLETION_INDEX: "1" })).toThrow(
      /JobSet.*one chorale launch for each host/,
    );
    expect(() => nodePlace({})).toThrow(/--nnodes N --node-rank R/);
    expect(() => nodePlace({ JOB_COMPLETION_INDEX: "x" })).toThrow(InvalidArgumentError);
    expect(nodeRendezvous({ PET_NODE_RANK: "0", PET_MASTER_ADDR: "a", PET_MASTER_PORT: "1" })).toEqual({
      address: "a:1",
      from: "PET_MASTER_ADDR and PET_MASTER_PORT",
    });
    expect(nodeRendezvous({ MASTER_ADDR: "fe80::1", MASTER_PORT: "5" })?.address).toBe("[fe80::1]:5");
    expect(nodeRendezvous({})).toBeUndefined();
  });
});
