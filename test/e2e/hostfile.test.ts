/** Launches over a file of hosts: what stands for ssh here runs the command on this machine. */
import { execFile } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CLI_PROCESS, runCli } from "../helpers/cli.ts";
import { withoutNotices } from "../helpers/notices.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-hostfile-"));
const at = (name: string) => join(folder, name);
const secret = "a secret that must stand in no argument";

beforeAll(() => {
  writeFileSync(at("ssh"), `#!/bin/sh\necho "$@" >> ${at("ssh.log")}\nshift 4\nexec sh -c "$*"\n`);
  writeFileSync(at("broken-ssh"), "#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n");
  for (const name of ["ssh", "broken-ssh"]) chmodSync(at(name), 0o755);
  writeFileSync(at("hosts"), "# the machine\n127.0.0.1 slots=1\n\n127.0.0.1:2   # twice\n");
  writeFileSync(
    at("script.mjs"),
    `export default async (world) => {
      const x = world.tensor("f32", [1]);
      x.data[0] = world.rank + 1;
      await world.comm.allReduce(x);
      console.log("node " + process.env.CHORALE_NODE_RANK + " of " + world.args[0] + ": " + x.data[0]);
    };`,
  );
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function launch(...words: string[]): Promise<{ code: number; out: string; err: string }> {
  const env = { ...process.env, CHORALE_SECRET: secret };
  return new Promise((resolve) => {
    execFile(process.execPath, [...CLI_PROCESS, "launch", ...words], { env }, (error, out, err) => {
      resolve({ code: error === null ? 0 : Number(error.code), out, err });
    });
  });
}

describe.skipIf(process.platform === "win32")("chorale launch --hostfile", () => {
  it("starts a launcher on each host, and shows the secret to nobody", { timeout: 60_000 }, async () => {
    const words = [
      "--hostfile",
      at("hosts"),
      "--ssh",
      at("ssh"),
      "--backend",
      "tcp",
      "--no-prefix",
      at("script.mjs"),
      "--",
      "this run",
    ];
    const { code, out, err } = await launch(...words);
    expect([code, withoutNotices(err)]).toEqual([0, ""]);
    expect(out.trim().split("\n").sort()).toEqual([
      "node 0 of this run: 6",
      "node 1 of this run: 6",
      "node 1 of this run: 6",
    ]);
    const commands = readFileSync(at("ssh.log"), "utf8");
    expect(commands).toMatch(
      /launch -n 2 --backend tcp --no-prefix --nnodes 2 --node-rank 1 --rdzv 127\.0\.0\.1:\d+ --secret-stdin/,
    );
    expect(commands).not.toContain(secret);
  });

  it("says at once which host cannot be reached, and why", { timeout: 60_000 }, async () => {
    const began = performance.now();
    const words = ["--hostfile", at("hosts"), "--ssh", at("broken-ssh"), "--backend", "tcp", at("script.mjs")];
    const { code, err } = await launch(...words);
    expect(code).toBe(3);
    expect(err).toMatch(
      /host 1 \(127\.0\.0\.1\) is not available: its launcher ended with code 255: Permission denied/,
    );
    expect(performance.now() - began).toBeLessThan(20_000);
  });

  it("says with --dry-run what it would start, and starts nothing", async () => {
    const { code, out } = await runCli(
      "launch",
      "--hostfile",
      at("hosts"),
      "--dry-run",
      "--backend",
      "tcp",
      "train.ts",
    );
    expect(code).toBe(0);
    expect(out).toMatch(/^host 0 \(127\.0\.0\.1\): rank 0, tcp, train\.ts; this one, listens at 127\.0\.0\.1:0 and/);
    expect(out).toMatch(
      /\nhost 1 \(127\.0\.0\.1\): ranks 1 to 2, tcp, train\.ts\n {2}ssh -T -o BatchMode=yes 127\.0\.0\.1 'cd /,
    );
    // An address is of one host.
    const options = ["--backend-option", "host=10.0.0.1", "--backend-option", "connections=2", "--bind", "numa"];
    const more = await runCli(
      "launch",
      "--hostfile",
      at("hosts"),
      "--dry-run",
      "--backend",
      "tcp",
      ...options,
      "train.ts",
    );
    expect(more.out).toMatch(/ --bind numa --backend-option connections=2 --nnodes 2 /);
    expect(more.out).not.toContain("host=10");
    const alone = await runCli("launch", "-n", "4", "--dry-run", "train.ts");
    expect(alone.out).toBe("this host: ranks 0 to 3, threads, train.ts\n");
    const flags = ["--backend", "tcp", "--nnodes", "2", "--node-rank", "1", "--rdzv", "10.0.0.1:29517"];
    const second = await runCli("launch", "-n", "4", ...flags, "--dry-run", "train.ts");
    expect(second.out).toBe("this is host 1 of 2: 4 ranks, tcp, train.ts; connects to 10.0.0.1:29517\n");
    const range = (text: string) =>
      runCli("launch", "-n", "4", ...flags.with(3, text), "--dry-run", "train.ts").then(({ out, err }) => out + err);
    expect(await range("2:4")).toContain("this is host 1 of 2 to 4: 4 ranks");
    expect(await range("4:2")).toContain("expected MIN:MAX, with MIN no larger than MAX");
    expect(await range("0:2")).toContain("expected a number of hosts, MIN:MAX, or env");
    expect(await range("1")).toContain("--node-rank is 1; expected 0 to 0, of 1 hosts");
    // What the launch would refuse.
    const refused = async (...words: string[]) => {
      const { code, out, err } = await runCli("launch", ...words, "--dry-run", "train.ts");
      return `${code} ${out}${err}`;
    };
    const several = "expected a backend for several hosts, such as tcp or nccl";
    expect(await refused("--hostfile", at("hosts"))).toBe(`2 chorale launch: backend is "threads"; ${several}\n`);
    expect(await refused("-n", "4", ...flags.with(1, "shm"))).toBe(`2 chorale launch: backend is "shm"; ${several}\n`);
    expect(await refused("-n", "4", "--backend-option", "nosuch=1")).toMatch(
      /^2 .*"nosuch"; expected one of memoryLimit/,
    );
    expect(await refused("-n", "4", "--backend", "shm", "--isolation", "thread")).toMatch(/^2 .*isolation is "thread"/);
    const lone = await runCli("launch", "-n", "4", "--rdzv", "10.0.0.1:29517", "--dry-run", "train.ts");
    expect([lone.code, lone.err]).toEqual([
      2,
      expect.stringContaining("--nnodes is not given; expected the number of hosts, beside --rdzv"),
    ]);
  });

  it.skipIf(process.platform !== "linux")("refuses a folder for logs that no file system makes", async () => {
    const { code, err } = await launch("-n", "1", "--log-dir", "/proc/chorale/logs", at("script.mjs"));
    expect([code, err]).toEqual([
      2,
      expect.stringMatching(/--log-dir is "\/proc\/chorale\/logs"; expected a folder \(ENOENT/),
    ]);
  });

  it("refuses files that list no hosts, or lines that could be options of ssh", async () => {
    const refusal = async (text: string, ...flags: string[]) => {
      writeFileSync(at("bad"), text);
      const { code, err } = await runCli("launch", "--hostfile", at("bad"), ...flags, "--dry-run", "train.ts");
      return `${code} ${err}`;
    };
    expect(await refusal("# nothing\n")).toMatch(/^2 .*a file that lists hosts/);
    expect(await refusal("a slots=1\n-oProxyCommand=x slots=1\n")).toMatch(
      /^2 .*line 2 of .*expected HOST, HOST:RANKS/,
    );
    expect(await refusal("a\n")).toMatch(/^2 .*a number of ranks \(slots=N\), or -n N/);
    expect(await refusal("localhost slots=1\nother slots=1\n")).toMatch(/^2 .*a name by which the others reach it/);
    for (const line of ["a slots=2 slots=3", "a:2 slots=2", "a slots=2 color=red"])
      expect(await refusal(`${line}\n`)).toMatch(/^2 .*expected HOST, HOST:RANKS, or HOST slots=RANKS/);
    expect(await refusal("a slots=1\nb:2\n", "-n", "2")).toMatch(/^2 .*-n is 2; expected no -n where .*bad says/);
    expect(await refusal("a slots=1\n", "--ssh", " ")).toMatch(/^2 .*--ssh is " "; expected a command/);
    expect(await refusal("a slots=1\n", "--last-call", "3")).toMatch(
      /^2 .*--last-call is 3; expected --nnodes MIN:MAX/,
    );
    expect(await refusal("a slots=1\n", "--nnodes", "2")).toMatch(/^2 .*no --nnodes and no --node-rank beside it/);
  });
});
