/** `joinWorld()` in processes that another launcher started, by that launcher's variables, over a stand-in for GPUs. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder } from "../helpers/fake-gpu.ts";
import { freePort } from "../support/free-port.mjs";
import { spread } from "../support/spread.ts";

const library = buildFakeGpu();
const root = fileURLToPath(new URL("../..", import.meta.url));
const temporary = mkdtempSync(join(tmpdir(), "chorale-foreign-"));
afterAll(() => rmSync(temporary, { recursive: true, force: true }));

const script = join(temporary, "rank.mjs");
writeFileSync(
  script,
  `import { joinWorld } from ${JSON.stringify(join(root, ".cache/dev/runtime/world/index.js"))};
const say = (what) => console.log(JSON.stringify(what));
const mode = process.argv[2];
try {
  if (mode === "asks") say({ asks: process.pid });
  const world = await joinWorld(mode === "asks" ? { timeoutMs: 25000 } : {});
  const { rank, size, generation, backend } = world;
  const x = world.tensor("f32", [4]);
  world.upload(x, new Float32Array(4).fill(rank + 1));
  await world.comm.allReduce(x);
  const got = new Int32Array(1);
  const sent = world.comm.send(new Int32Array([rank]), (rank + 1) % size);
  await world.comm.recv(got, (rank + size - 1) % size);
  await sent;
  say({ rank, size, generation, backend, sum: world.download(x)[0], got: got[0], same: world === (await joinWorld()) });
  if (mode === "leave" && rank === 1) process.exit(0);
  if (mode === "throw" && rank === 1) JSON.parse("{");
  if (mode === "throw null" && rank === 1) {
    setTimeout(() => {
      throw null;
    }, 1);
    await new Promise(() => {});
  }
  if (mode === "wait" || mode === "leave" || mode.startsWith("throw")) {
    try {
      await world.comm.barrier();
      // Rank 1 never makes the second call: it is there until it is killed.
      if (rank === 1) await new Promise(() => setInterval(() => {}, 1000));
      await world.comm.barrier();
    } catch (error) {
      say({ code: error.code, message: error.message, dead: error.rank });
      process.exit(0);
    }
  }
  if (mode.startsWith("knows first")) {
    // Rank 0 waits without the event loop: what the rendezvous has to say is not heard.
    world.comm.barrier().wait();
    if (rank === 1) process.exit(0);
    if (rank === 0) {
      try {
        world.comm.barrier().wait();
      } catch {
        if (mode.endsWith("exits")) process.exit(0);
        await world.close().catch(() => {});
      }
    } else {
      await new Promise((resolve) => {
        if (world.signal.aborted) resolve();
        else world.signal.addEventListener("abort", resolve);
        // Nothing else keeps this process while it waits.
        setTimeout(resolve, 10_000);
      });
      say({ signal: world.signal.reason?.message });
      process.exit(0);
    }
  }
  if (mode === "close") await world.close();
} catch (error) {
  // Of a rank that died, too: it may be done with its part while the others still wait for each other.
  say({ code: error.code, message: error.message, dead: error.rank, sides: error.sides?.map((side) => side.call) });
  process.exit(5);
}
`,
);

interface Rank {
  readonly child: ChildProcess;
  readonly lines: Record<string, unknown>[];
  readonly ended: Promise<{ code: number | null; signal: string | null; stderr: string }>;
}

let folder = fakeGpuFolder();
const started: ChildProcess[] = [];
afterEach(() => {
  for (const child of started.splice(0)) child.kill("SIGKILL");
  folder.remove();
  folder = fakeGpuFolder();
});
afterAll(() => folder.remove());

function start(env: Readonly<Record<string, string>>, mode: string): Rank {
  const child = spawn(process.execPath, [script, mode], {
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      PATH: process.env["PATH"],
      // Compiled code of the modules that every one of these loads.
      NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
      CHORALE_BACKEND: "nccl",
      CHORALE_SECRET: "the secret of this test, long enough",
      CHORALE_CUDA_LIBRARY: library,
      CHORALE_NCCL_LIBRARY: library,
      FAKE_GPU_FOLDER: folder.path,
      ...env,
    },
  });
  started.push(child);
  const lines: Record<string, unknown>[] = [];
  let rest = "";
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => {
    const parts = (rest + chunk.toString()).split("\n");
    rest = parts.pop() ?? "";
    lines.push(...parts.map((line) => JSON.parse(line) as Record<string, unknown>));
    child.emit("line");
  });
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const ended = once(child, "close").then(([code, signal]) => ({ code, signal, stderr }) as Awaited<Rank["ended"]>);
  return { child, lines, ended };
}

const torchrun = (rank: number, size: number, port: number): Record<string, string> => ({
  RANK: String(rank),
  WORLD_SIZE: String(size),
  LOCAL_RANK: String(rank),
  LOCAL_WORLD_SIZE: String(size),
  MASTER_ADDR: "127.0.0.1",
  MASTER_PORT: String(port - 1),
});
const openMpi = (rank: number, size: number, port: number): Record<string, string> => ({
  OMPI_COMM_WORLD_RANK: String(rank),
  OMPI_COMM_WORLD_SIZE: String(size),
  OMPI_COMM_WORLD_LOCAL_RANK: String(rank),
  OMPI_COMM_WORLD_LOCAL_SIZE: String(size),
  CHORALE_RDZV: `127.0.0.1:${port}`,
});
const slurm = (rank: number, size: number, port: number): Record<string, string> => ({
  SLURM_PROCID: String(rank),
  SLURM_STEP_NUM_TASKS: String(size),
  SLURM_LOCALID: String(rank),
  SLURM_STEP_NUM_NODES: "1",
  CHORALE_RDZV: `localhost:${port}`,
});

/** What the ranks' processes left in shared memory. */
function leftBehind(ranks: readonly Rank[]): string[] {
  const pids = ranks.map(({ child }) => String(child.pid));
  return ["/dev/shm", tmpdir()]
    .filter((path) => existsSync(path))
    .flatMap((path) => readdirSync(path).filter((name) => /^chorale-\w+-(\d+)-\d+-/.test(name)))
    .filter((name) => pids.includes(name.split("-")[2] ?? ""));
}

describe.skipIf(library === undefined)("joinWorld() under other launchers (needs g++)", () => {
  const launchers = [
    ["torchrun", torchrun, "close"],
    ["Open MPI", openMpi, "leave it open"],
    ["Slurm", slurm, "close"],
  ] as const;
  it.each(spread(launchers, 2))("joins the processes of %s", async (_, env, mode) => {
    const port = await freePort();
    const ranks = [2, 0, 1].map((rank) => start(env(rank, 3, port), mode));
    const ends = await Promise.all(ranks.map(({ ended }) => ended));
    expect(ends.map(({ stderr }) => stderr)).toEqual(["", "", ""]);
    expect(ends.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(ranks.flatMap(({ lines }) => lines).sort((a, b) => Number(a["rank"]) - Number(b["rank"]))).toEqual(
      [0, 1, 2].map((rank) => ({
        rank,
        size: 3,
        generation: 1,
        backend: "nccl",
        sum: 6,
        got: (rank + 2) % 3,
        same: true,
      })),
    );
    expect(leftBehind(ranks)).toEqual([]);
  });

  it("tells the survivors when a process is killed", async () => {
    const port = await freePort();
    const flight = join(temporary, "flight");
    const ranks = [0, 1, 2].map((rank) => start({ ...torchrun(rank, 3, port), CHORALE_FLIGHT_DIR: flight }, "wait"));
    const victim = ranks[1];
    // One that is done does not mean that all are.
    for (const { child, lines } of ranks) while (lines.length === 0) await once(child, "line");
    victim?.child.kill("SIGKILL");
    const killed = performance.now();
    for (const rank of [0, 2]) {
      expect((await ranks[rank]?.ended)?.code).toBe(0);
      const said = ranks[rank]?.lines.at(-1);
      expect(said).toMatchObject({ code: "RANK_FAILED", dead: 1 });
      expect(said?.["message"]).toContain(
        `process ${victim?.child.pid} closed its connection without leaving the rendezvous`,
      );
      // The deadline is a minute.
      expect(performance.now() - killed).toBeLessThan(20_000);
    }
    const dumps = readdirSync(flight).map((name) => JSON.parse(readFileSync(join(flight, name), "utf8")) as unknown);
    expect(dumps).toEqual([expect.objectContaining({ backend: "nccl", worldSize: 3, generation: 1 })]);
    expect(leftBehind(ranks)).toEqual([]);
  });

  const endings = [
    ["leave", "called process.exit(0) with its world open"],
    ["throw", "called process.exit(5) with its world open"],
    ["throw null", "threw null, which is not an Error"],
  ] as const;
  it.each(spread(endings, 2))("tells the others when a process ends early (%s)", async (mode, message) => {
    const port = await freePort();
    const ranks = [0, 1, 2].map((rank) => start(torchrun(rank, 3, port), mode));
    await Promise.all(ranks.map(({ ended }) => ended));
    for (const rank of [0, 2]) {
      expect(ranks[rank]?.lines.at(-1)).toMatchObject({ code: "RANK_FAILED", dead: 1 });
      expect(ranks[rank]?.lines.at(-1)?.["message"]).toContain(message);
    }
    expect(leftBehind(ranks)).toEqual([]);
  });

  it.each(spread(["exits", "closes"], 2))(
    "names who died first, though rank 0 knows it before its store and %s",
    async (then) => {
      const port = await freePort();
      const flight = mkdtempSync(join(temporary, "first-"));
      const ranks = [0, 1, 2].map((rank) =>
        start({ ...torchrun(rank, 3, port), CHORALE_FLIGHT_DIR: flight }, `knows first, ${then}`),
      );
      await Promise.all(ranks.map(({ ended }) => ended));
      expect(ranks[2]?.lines.at(-1)).toEqual({
        signal: "rank 1 failed (generation 1): called process.exit(0) with its world open",
      });
      expect(readdirSync(flight)).toEqual([expect.stringMatching(/^flight-\d+-\d+-1\.json$/)]);
      expect(leftBehind(ranks)).toEqual([]);
    },
  );

  it("refuses processes that differ, each with the reason, and goes on with one that does not", async () => {
    const wrong = [
      [{ CHORALE_SECRET: "quite another secret of this test" }, "INVALID_ARGUMENT", "CHORALE_SECRET"],
      [{ FAKE_NCCL_VERSION: "22703" }, "MISMATCH", "agree on the engine"],
      [{ TORCHELASTIC_RESTART_COUNT: "1" }, "MISMATCH", "agree on the generation"],
      [{ WORLD_SIZE: "3", LOCAL_WORLD_SIZE: "3" }, "MISMATCH", "agree on the number of ranks"],
    ] as const;
    const port = await freePort();
    const zero = start(torchrun(0, 2, port), "close");
    const others = wrong.map(([env]) => start({ ...torchrun(1, 2, port), ...env }, "asks"));
    const ends = await Promise.all(others.map(({ ended }) => ended));
    expect(ends.map(({ code }) => code)).toEqual([5, 5, 5, 5]);
    expect(others.map(({ lines }) => lines.slice(1))).toEqual(
      wrong.map(([, code, message]) => [
        expect.objectContaining({ code, message: expect.stringContaining(message) as string }),
      ]),
    );
    const one = start(torchrun(1, 2, port), "close");
    expect(await Promise.all([zero, one].map(({ ended }) => ended))).toMatchObject([{ code: 0 }, { code: 0 }]);
    expect(leftBehind([zero, one, ...others])).toEqual([]);
  });

  it("takes the one device that the launcher leaves visible to each process", async () => {
    const port = await freePort();
    const ranks = [0, 1].map((rank) =>
      start({ ...slurm(rank, 2, port), CUDA_VISIBLE_DEVICES: String(4 + rank) }, "close"),
    );
    const ends = await Promise.all(ranks.map(({ ended }) => ended));
    expect(ends.map(({ code, stderr }) => [code, stderr])).toEqual([
      [0, ""],
      [0, ""],
    ]);
  });

  it("refuses two processes on one GPU", async () => {
    const port = await freePort();
    const ranks = [0, 1].map((rank) => start({ ...torchrun(rank, 2, port), LOCAL_RANK: "0" }, "asks"));
    await Promise.all(ranks.map(({ ended }) => ended));
    const said = ranks.map(({ lines }) => lines[1]);
    expect(said.map((line) => line?.["code"])).toContain("MISMATCH");
    for (const line of said) expect(line?.["message"]).toContain("ranks must have a GPU each");
  });

  const lacking = [
    ["no secret", { CHORALE_SECRET: "" }, "UNAVAILABLE", "openssl rand -hex 32"],
    ["no address", { MASTER_PORT: "" }, "UNAVAILABLE", "CHORALE_RDZV=127.0.0.1:29517"],
    ["a wrong address", { CHORALE_RDZV: "nowhere" }, "INVALID_ARGUMENT", "HOST:PORT"],
    ["several hosts", { LOCAL_WORLD_SIZE: "1" }, "UNSUPPORTED", "1 of its 2 ranks are on this host"],
    ["the threads backend", { CHORALE_BACKEND: "threads" }, "UNAVAILABLE", "CHORALE_BACKEND=shm or tcp or nccl"],
    ["an unknown backend", { CHORALE_BACKEND: "smoke" }, "INVALID_ARGUMENT", "CHORALE_BACKEND"],
    ["a rank that is none", { RANK: "x" }, "INVALID_ARGUMENT", "RANK"],
    ["no GPU", { FAKE_CUDA_DEVICES: "0" }, "UNAVAILABLE", "NO_DEVICE"],
  ] as const;
  it.each(spread(lacking, 2))("says what is wrong with %s", async (_, wrong, code, message) => {
    const rank = start({ ...torchrun(0, 2, 29_518), ...wrong }, "asks");
    expect((await rank.ended).code).toBe(5);
    expect(rank.lines.slice(1)).toEqual([expect.objectContaining({ code, message: expect.stringContaining(message) })]);
  });
});
