/** `chorale launch --isolation process`, as a user runs and ends it, over a stand-in for GPUs. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { CLI_PROCESS } from "../helpers/cli.ts";
import { buildFakeGpu, fakeGpuFolder } from "../helpers/fake-gpu.ts";
import { spread } from "../support/spread.ts";

const library = buildFakeGpu();
const root = fileURLToPath(new URL("../..", import.meta.url));
const script = join(root, "test/e2e/ranks/pids.ts");
const temporary = mkdtempSync(join(tmpdir(), "chorale-processes-"));
const folder = fakeGpuFolder();
const started: ChildProcess[] = [];
afterEach(() => {
  for (const child of started.splice(0)) child.kill("SIGKILL");
});
afterAll(() => {
  rmSync(temporary, { recursive: true, force: true });
  folder.remove();
});

interface Launch {
  readonly child: ChildProcess;
  readonly ended: Promise<{ code: number | null; signal: string | null; stdout: string; stderr: string }>;
  /** Waits until the ranks have met. @returns their process numbers */
  met(ranks: number): Promise<number[]>;
}

/** Starts `chorale ARGS` in a process group of its own, as a shell does. */
function chorale(args: readonly string[]): Launch {
  const child = spawn(process.execPath, [...CLI_PROCESS, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    cwd: temporary,
    env: {
      ...process.env,
      TMPDIR: temporary,
      CHORALE_CUDA_LIBRARY: library,
      CHORALE_NCCL_LIBRARY: library,
      FAKE_GPU_FOLDER: folder.path,
    },
  });
  started.push(child);
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const ended = once(child, "close").then(
    ([code, signal]) => ({ code, signal, stdout, stderr }) as Awaited<Launch["ended"]>,
  );
  return {
    child,
    ended,
    met: async (ranks) => {
      while ((stdout.match(/met/g) ?? []).length < ranks) {
        if (child.exitCode !== null) throw new Error(`it ended: ${stderr}`);
        await Promise.race([once(child.stdout, "data"), ended]);
      }
      return [...stdout.matchAll(/pid (\d+)/g)].map(([, pid]) => Number(pid));
    },
  };
}

/** Whether a process runs; one that is dead and not yet waited for does not. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "latin1"));
  } catch {
    return false;
  }
}

async function untilGone(pids: readonly number[]): Promise<number[]> {
  const until = performance.now() + 30_000;
  while (pids.some(isAlive) && performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 5));
  return pids.filter(isAlive);
}

const launchArgs = (mode: string) => [
  "launch",
  "-n",
  "3",
  "--backend",
  "nccl",
  "--isolation",
  "process",
  script,
  "--",
  mode,
];

const has = library !== undefined && process.platform === "linux";
describe.skipIf(!has)("chorale launch --isolation process (needs g++ and Linux)", () => {
  it("runs each rank in a process and prefixes its lines", async () => {
    const launch = chorale(launchArgs("return"));
    const { code, stdout, stderr } = await launch.ended;
    expect([code, stderr]).toEqual([0, ""]);
    const lines = stdout.trimEnd().split("\n").sort();
    expect(lines.map((line) => line.replace(/\d+$/, "N"))).toEqual([
      "[0] met",
      "[0] pid N",
      "[1] met",
      "[1] pid N",
      "[2] met",
      "[2] pid N",
    ]);
    expect(new Set(lines.filter((line) => line.includes("pid"))).size).toBe(3);
  });

  it.each(spread(["SIGINT", "SIGTERM"] as const, 2))(
    "ends all at %s to the whole group, as a terminal sends it",
    async (signal) => {
      const launch = chorale(launchArgs("idle"));
      const pids = await launch.met(3);
      process.kill(-(launch.child.pid ?? 0), signal);
      const { code, stderr } = await launch.ended;
      expect(code).toBe(signal === "SIGINT" ? 130 : 143);
      expect(stderr).toContain(`ended by ${signal}; all ranks are stopped`);
      expect(await untilGone(pids)).toEqual([]);
      expect(readdirSync(temporary)).toEqual([]);
    },
  );

  it.each(spread(["idle", "loop", "wait"], 3))(
    "leaves no rank behind when the launcher is killed and its ranks %s",
    async (mode) => {
      const launch = chorale(launchArgs(mode));
      const pids = await launch.met(3);
      expect(pids.filter(isAlive)).toHaveLength(3);
      launch.child.kill("SIGKILL");
      await launch.ended;
      expect(await untilGone(pids)).toEqual([]);
      const segments = existsSync("/dev/shm") ? readdirSync("/dev/shm") : [];
      expect(segments.filter((name) => name.split("-")[2] === String(launch.child.pid))).toEqual([]);
      // The bundled script stays: nobody was left to remove it.
      for (const name of readdirSync(temporary)) rmSync(join(temporary, name), { recursive: true });
    },
  );

  it("leaves nothing behind that ranks have started when the launcher is killed", async () => {
    const launch = chorale(launchArgs("children"));
    await launch.met(3);
    launch.child.kill("SIGKILL");
    const { stdout } = await launch.ended;
    const children = [...stdout.matchAll(/child (\d+)/g)].map(([, pid]) => Number(pid));
    expect(children).toHaveLength(3);
    expect(await untilGone(children)).toEqual([]);
    for (const name of readdirSync(temporary)) rmSync(join(temporary, name), { recursive: true });
  });

  it("names the rank that was killed, and how", async () => {
    const launch = chorale(launchArgs("idle"));
    const pids = await launch.met(3);
    process.kill(pids[0] ?? 0, "SIGKILL");
    const { code, stderr } = await launch.ended;
    expect(code).toBe(1);
    expect(stderr).toMatch(/chorale launch: rank \d failed first:\nError: its process was killed by SIGKILL/);
    expect(await untilGone(pids)).toEqual([]);
  });

  it("is refused by the threads backend", async () => {
    const { code, stderr } = await chorale(["launch", "-n", "2", "--isolation", "process", script]).ended;
    expect(code).toBe(2);
    expect(stderr).toContain("the threads backend: its ranks share the memory of one process");
  });
});
