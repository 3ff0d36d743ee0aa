/** `chorale launch`, as a user runs it: the transpiled command line in a process of its own. */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CLI_PROCESS, runCli } from "../helpers/cli.ts";
import { spread } from "../support/spread.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const ranks = (name: string) => join(root, "test/e2e/ranks", `${name}.ts`);
const temporary = mkdtempSync(join(tmpdir(), "chorale-e2e-"));
afterAll(() => rmSync(temporary, { recursive: true, force: true }));

interface Run {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly ms: number;
}

/** Runs `chorale ARGS`; `onStdout` may signal the process. Its temporary files go to a folder of their own. */
function chorale(
  args: readonly string[],
  onStdout?: (text: string, kill: (signal: NodeJS.Signals) => void) => void,
  env: Readonly<Record<string, string>> = {},
): Promise<Run> {
  const start = performance.now();
  const child = spawn(process.execPath, [...CLI_PROCESS, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, TMPDIR: temporary, ...env },
    cwd: temporary,
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => {
    stdout += chunk.toString();
    onStdout?.(stdout, (signal) => child.kill(signal));
  });
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, stdout, stderr, ms: performance.now() - start }));
  });
}

describe("chorale launch", () => {
  const elsewhere = mkdtempSync(join(tmpdir(), "chorale-e2e-blocked-"));
  afterAll(() => rmSync(elsewhere, { recursive: true, force: true }));
  /** A world of which a thread does not stop: it is given up after some seconds, in which the other tests run. */
  let blocked: Promise<Run>;
  beforeAll(() => {
    if (process.platform === "win32") return;
    const fifo = join(elsewhere, "fifo");
    spawnSync("mkfifo", [fifo]);
    let isTold = false;
    const end = (text: string, kill: (signal: NodeJS.Signals) => void) => {
      if (!isTold && text.includes("rank 1 blocks")) kill("SIGTERM");
      isTold ||= text.includes("rank 1 blocks");
    };
    blocked = chorale(["launch", "-n", "2", ranks("blocks"), "--", fifo], end, { TMPDIR: elsewhere });
  });

  it("runs a TypeScript script on every rank and prefixes whole lines", async () => {
    const run = await chorale(["launch", "-n", "3", ranks("hello"), "--", "a", "--flag"]);
    expect(run).toMatchObject({ code: 0 });
    const lines = run.stdout.trimEnd().split("\n");
    for (const rank of [0, 1, 2]) {
      const own = lines.filter((line) => line.startsWith(`[${rank}] `)).map((line) => line.slice(4));
      expect(own).toEqual([
        `hello from ${rank} sum 6 args a,--flag argv a,--flag`,
        ...Array.from({ length: 20 }, (_, i) => Array.from({ length: 10 }, (_, j) => i * 10 + j).join(" ")),
        "no line end",
      ]);
    }
    expect(lines).toHaveLength(3 * 22);
    expect(run.stderr.trimEnd().split("\n").sort()).toEqual([0, 1, 2].map((rank) => `[${rank}] to stderr`));
  });

  it("records what every rank did last where CHORALE_FLIGHT_DIR says", async () => {
    const flight = join(temporary, "flight");
    const run = await chorale(["launch", "-n", "2", ranks("throws")], undefined, { CHORALE_FLIGHT_DIR: flight });
    expect(run.code).toBe(1);
    const dump: unknown = JSON.parse(readFileSync(join(flight, readdirSync(flight)[0] ?? ""), "utf8"));
    expect(dump).toMatchObject({ schemaVersion: 1, worldSize: 2, ranks: [{ rank: 0 }, { rank: 1 }] });
    if (process.platform !== "win32") {
      expect(statSync(flight).mode & 0o777).toBe(0o700);
      expect(statSync(join(flight, readdirSync(flight)[0] ?? "")).mode & 0o777).toBe(0o600);
    }
    rmSync(flight, { recursive: true });
  });

  it.skipIf(process.platform === "win32")("goes on when it was stopped for longer than its deadlines", async () => {
    let stopped: Promise<void> | undefined;
    const run = await chorale(["launch", "-n", "2", "--timeout", "9", ranks("meets-late")], (text, kill) => {
      if (stopped !== undefined || !text.includes("waits")) return;
      kill("SIGSTOP");
      stopped = new Promise((resolve) => {
        setTimeout(() => {
          kill("SIGCONT");
          resolve();
        }, 9_500);
      });
    });
    expect(run).toMatchObject({ code: 0, stderr: "" });
    expect(run.ms).toBeGreaterThan(9_500);
    expect(run.stdout.trimEnd().split("\n").sort()).toEqual(["[0] met", "[0] waits", "[1] met"]);
  });

  it("starts ranks again as often as it is told, and says so", async () => {
    const run = await chorale(["launch", "-n", "3", "--restarts", "2", ranks("throws")]);
    expect(run.code).toBe(1);
    for (const generation of [1, 2, 3]) {
      expect(run.stderr).toContain(`chorale launch: rank 1 failed (generation ${generation}): boom on 1`);
    }
    expect(run.stderr).toContain("chorale launch: rebuild 2 begins: survivors have 60000 ms");
    expect(run.stderr).toContain("chorale launch: generation 3 has 3 ranks; started again: 0, 1, 2");
    expect(run.stderr).toContain("chorale launch: no further rebuild: all 2 rebuilds are used up");
    expect(run.stderr).toContain("chorale launch: rank 1 failed first:\nTypeError: boom on 1");
    const text = (await runCli("launch", "--help")).out;
    for (const flag of [
      "--restarts",
      "--on-failure",
      "--rebuild-timeout",
      "--restart-delay",
      "--min-ranks",
      "--isolation",
    ]) {
      expect(text).toContain(flag);
    }
  });

  it("names the rank that failed first, with its stack, and fails the others' work long before its deadline", async () => {
    const run = await chorale(["launch", "-n", "4", ranks("throws")]);
    expect(run.code).toBe(1);
    expect(run.stderr).toContain("chorale launch: rank 1 failed first:\nTypeError: boom on 1\n");
    expect(run.stderr).toMatch(/at boom \(.*lib\.ts:5:9\)/);
    expect(run.stderr).toContain("caused by: Error: the root");
    for (const rank of [0, 2, 3]) {
      const line = new RegExp(`^\\[${rank}\\] RankFailedError rank=1 generation=1 afterMs=(\\d+)$`, "m").exec(
        run.stdout,
      );
      // Some milliseconds, and more on a busy machine; the deadline is a minute.
      expect(Number(line?.[1])).toBeLessThan(20_000);
    }
  });

  const endings = [
    [["exits", "7"], "rank 1 failed first:\nError: called process.exit(7)"],
    [["crashes", "timer"], "rank 1 failed first:\nError: in a timer"],
    [["exits", "0"], "rank 1 failed first:\nError: called process.exit(0) with its world open"],
    [["crashes", "rejection"], "rank 1 failed first:\nError: unhandled"],
  ] as const;
  // What the launcher prints of it: every ending itself is rank-process.test.ts's.
  it.each(spread(endings, 2))("ends when a rank %j", async ([name = "", arg = ""], message) => {
    const run = await chorale(["launch", "-n", "3", ranks(name), "--", arg]);
    expect(run.stderr).toContain(message);
    expect(run.stderr).not.toMatch(/^ +at .*(runtime\/|node:)/m);
    expect(run.code).toBe(1);
  });

  it("ends ranks that no failure can reach, after a grace period", async () => {
    const run = await chorale(["launch", "-n", "3", ranks("stuck"), "--", "throw"]);
    expect(run.stderr).toContain("rank 0 failed first:\nError: first");
    expect(run.stdout.match(/here/g)).toHaveLength(3);
    expect(run.code).toBe(1);
  });

  it("ends at its time limit and says who was not done", async () => {
    // What ranks did last: everyday-calls.test.ts.
    const never = await chorale(["launch", "-n", "2", "--timeout", "0.5", ranks("never")]);
    expect(never.stderr).toContain("did not complete within 500 ms; arrived: ranks [], missing: ranks [0, 1]");
    expect(never.code).toBe(1);
  });

  const signals = [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const;
  it.each(spread(signals, 2))("leaves nothing behind at %s", async (signal, code) => {
    let sent = false;
    const run = await chorale(["launch", "-n", "2", ranks("stuck")], (text, kill) => {
      if (sent || text.match(/here/g)?.length !== 2) return;
      sent = true;
      kill(signal);
    });
    expect(run.code).toBe(code);
    expect(run.stderr).toContain(`ended by ${signal}`);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it.each([
    [["launch"], "missing required argument 'script'"],
    [["launch", "x.ts"], "-n is not given; expected the number of ranks"],
    [["launch", "-n", "2"], "missing required argument 'script'"],
    [["launch", "-n", "0", "x.ts"], "expected an integer from 1 to 256"],
    [["launch", "-n", "2x", "x.ts"], "expected an integer from 1 to 256"],
    [["launch", "-n", "2", "--backend", "smoke", "x.ts"], "Allowed choices are threads"],
    [["launch", "-n", "2", "--bogus", "x.ts"], "unknown option '--bogus'"],
    [["launch", "-np", "2", "x.ts"], "The number of ranks is -n: chorale launch -n 4 train.ts"],
    [["launch", "--nproc_per_node", "2", "x.ts"], "The number of ranks is -n: chorale launch -n 4 train.ts"],
    [["launch", "--ranks", "2", "x.ts"], "The number of ranks is -n: chorale launch -n 4 train.ts"],
    [["launch", "-n", "2", "x.ts", "--epochs", "3"], "stand after --: chorale launch -n 4 train.ts -- --epochs 3"],
    [["launch", "-n", "2", "--timeout", "soon", "x.ts"], "expected a number of seconds, 0.001 to"],
    [["launch", "-n", "2", "--restarts", "-1", "x.ts"], "expected an integer, 0 or more"],
    [["launch", "-n", "2", "--on-failure", "panic", "x.ts"], "Allowed choices are end, respawn, shrink"],
    [["launch", "-n", "2", "--restarts", "1", "--on-failure", "end", "x.ts"], 'onFailure "respawn" or "shrink"'],
    [["launch", "-n", "2", "--min-ranks", "2", "x.ts"], 'minRanks is 2; expected nothing, or onFailure "shrink"'],
    [["launch", "-n", "2", "absent.ts"], "expected a file that exists"],
    [["lunch"], "(Did you mean launch?)"],
    [[], "Usage: chorale"],
  ])("refuses %j with exit code 2", async (args, message) => {
    expect(await runCli(...args)).toEqual({ code: 2, out: "", err: expect.stringContaining(message) });
  });

  it("ends a process with the exit code of a refusal", async () => {
    const run = await chorale(["launch", "-n", "2", "--bogus", "x.ts"]);
    expect(run).toMatchObject({ code: 2, stdout: "", stderr: expect.stringContaining("unknown option '--bogus'") });
  });

  it("refuses a script that does not parse, with its line", async () => {
    const path = join(temporary, "syntax.ts");
    writeFileSync(path, "const x: = 3;\n");
    const run = await chorale(["launch", "-n", "2", path]);
    expect(run.stderr).toContain(`${path}:1:10: Unexpected "="`);
    expect(run.code).toBe(2);
    rmSync(path);
  });

  it("says by its exit code that the ranks' engine is not on this machine", async () => {
    const path = join(temporary, "lacks.ts");
    writeFileSync(
      path,
      'import { UnavailableError } from "chorale/core";\nthrow new UnavailableError("NCCL", "no such file", "Install it.");\n',
    );
    const run = await chorale(["launch", "-n", "2", path]);
    expect(run.stderr).toContain("NCCL is not available: no such file. Install it.");
    expect(run.code).toBe(3);
    rmSync(path);
  });

  it("refuses times that no timer can wait for, and takes no delay at all", async () => {
    for (const seconds of ["0", "0.0001", "2000001", "Infinity", "-1", ""]) {
      const run = await runCli("launch", "-n", "1", `--timeout=${seconds}`, ranks("hello"));
      expect([run.code, run.err]).toEqual([2, expect.stringContaining("expected a number of seconds, 0.001 to")]);
    }
    expect(await chorale(["launch", "-n", "1", "--restarts=1", "--restart-delay=0", ranks("hello")])).toMatchObject({
      code: 0,
    });
  });

  it.skipIf(process.platform === "win32")("ends at a signal though a thread is blocked in the system", async () => {
    const { code, stderr } = await blocked;
    expect({ code, stderr }).toEqual({ code: 143, stderr: expect.stringContaining("ended by SIGTERM") });
  });

  it.skipIf(process.platform !== "linux")("is killed, and what its threads have started ends, too", async () => {
    const isThere = (pid: string) => {
      try {
        return !/^State:\s+[XZ]/m.test(readFileSync(`/proc/${pid}/status`, "latin1"));
      } catch {
        return false;
      }
    };
    const pidsOf = (text: string) => [...text.matchAll(/child (\d+)/g)].map(([, pid]) => String(pid));
    let started: readonly string[] = [];
    const run = await chorale(["launch", "-n", "2", ranks("starts-child")], (text, kill) => {
      if (started.length === 2 || pidsOf(text).length < 2) return;
      started = pidsOf(text);
      kill("SIGKILL");
    });
    expect([run.code, started.length]).toEqual([null, 2]);
    const until = performance.now() + 30_000;
    while (started.some(isThere) && performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(started.filter(isThere)).toEqual([]);
    for (const name of readdirSync(temporary)) rmSync(join(temporary, name), { recursive: true });
  });

  it("has help and a version", async () => {
    const help = await chorale(["--help"]);
    expect(help).toMatchObject({ code: 0, stderr: "" });
    expect(help.stdout).toContain("launch");
    const commands = [...help.stdout.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name ?? "");
    expect(commands).toEqual(expect.arrayContaining(["launch", "check", "sim", "compile", "bench", "plan", "synth"]));
    for (const command of commands.filter((name) => name !== "help")) {
      const text = (await runCli(command, "--help")).out;
      expect(text).toContain(`chorale ${command}`);
      // An empty list is no default that says anything.
      expect(text, command).not.toMatch(/default:\s+\[\]/);
    }
    expect((await chorale(["--version"])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect(existsSync(temporary)).toBe(true);
  });
});
