/**
 * A machine at its end: a temporary folder without room, and fewer open files than a world needs. Whatever is missing, the
 * command ends with exit code 3, the folder or the limit, and what to do: never with a stack.
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { scratchFolder } from "../helpers/scratch.ts";
import { wrongEnding } from "../support/cli-verdict.ts";

const folder = scratchFolder("scarce");
const bin = join(folder, "chorale.mjs");
const program = join(folder, "program.ts");

beforeAll(() => {
  const dev = fileURLToPath(new URL("../../.cache/dev/", import.meta.url));
  const text = readFileSync(new URL("../../bin/chorale.mjs", import.meta.url), "utf8");
  expect(text).toContain('"../dist/');
  writeFileSync(bin, text.replace('"../dist/', `"${dev}`));
  writeFileSync(
    program,
    "export default async (world: { comm: { barrier(): unknown } }) => { await world.comm.barrier(); };",
  );
});

const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
const chorale = `${quote(process.execPath)} ${quote(bin)}`;

function end(command: string, ...args: string[]): { code: number; out: string; err: string } {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: "utf8", timeout: 60_000 });
  if (error !== undefined) throw error;
  return { code: status ?? -1, out: stdout, err: stderr };
}

// A file system of its own needs namespaces of its own, which containers may refuse.
const canMount =
  process.platform === "linux" && spawnSync("unshare", ["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).status === 0;
const why = canMount ? "" : " (skipped: no tmpfs can be mounted here)";

describe.skipIf(!canMount)(`a temporary folder without room${why}`, { timeout: 60_000 }, () => {
  it.each([
    ["launch -n 2", "size=16k", "head -c 16384 /dev/zero > /mnt/ballast; "],
    ["check", "size=16k", "head -c 16384 /dev/zero > /mnt/ballast; "],
    ["launch -n 2", "nr_inodes=1", ""],
    ["check", "size=1M,ro", ""],
  ])("%s: exit code 3 with the folder and the need (%s)", (command, options, first) => {
    const call = `TMPDIR=/mnt ${chorale} ${command} ${quote(program)}; code=$?; ls -A /mnt | grep -v ballast >&2; exit $code`;
    const ended = end("unshare", "-rm", "bash", "-c", `mount -t tmpfs -o ${options} none /mnt && ${first}${call}`);
    expect(wrongEnding(ended)).toEqual([]);
    expect(ended.code).toBe(3);
    // One sentence, and nothing left in the folder.
    expect(ended.err.trim().split("\n")).toHaveLength(1);
    expect(ended.err).toMatch(/^chorale (launch|check): .* bundled module.* \/mnt.*(ENOSPC|EROFS).*(TMPDIR|room)/);
  });
});

describe.skipIf(process.platform === "win32")("fewer open files than it takes", () => {
  it("ends every command in words, whatever the limit", { timeout: 120_000 }, () => {
    const codes = new Set<number>();
    for (const limit of [26, 34, 42, 50, 58, 66]) {
      const ended = end("bash", "-c", `ulimit -n ${limit}; ${chorale} launch -n 2 ${quote(program)}`);
      codes.add(ended.code);
      expect([limit, ...wrongEnding(ended)]).toEqual([limit]);
      expect([limit, ended.code]).toEqual([limit, ended.code === 0 ? 0 : 3]);
      if (ended.code === 3) expect(ended.err).toMatch(/^chorale.*(too many open files|EMFILE).*ulimit -n 1024/);
    }
    expect(codes).toContain(3);
    const enough = end("bash", "-c", `ulimit -n 1024; ${chorale} launch -n 2 ${quote(program)}`);
    expect(enough).toEqual({ code: 0, out: "", err: "" });
  });
});

describe.skipIf(process.platform !== "linux")("a standard output that takes nothing", { timeout: 60_000 }, () => {
  it.each([
    ["detect --format tsv --family cpu", ">/dev/full", "ENOSPC"],
    ["compile ring-all-reduce --arg numRanks=2 --target json", ">/dev/full", "ENOSPC"],
    ["sim --help", "1</dev/null", "EBADF"],
  ])("%s %s: a line on stderr, and no exit code 0", (command, redirection, code) => {
    const ended = end("bash", "-c", `${chorale} ${command} ${redirection}`);
    expect(ended.code).not.toBe(0);
    expect(ended.err).toMatch(new RegExp(`^chorale.*: ${code}: [^\n]*\n$`));
  });

  it("is left in silence where its reader is", () => {
    const command = `${chorale} compile ring-all-reduce --arg numRanks=64`;
    const ended = end("bash", "-c", `set -o pipefail; ${command} | head -1`);
    expect([ended.code, ended.err]).toEqual([0, ""]);
    expect(ended.out).toMatch(/^plan ring-all-reduce/);
  });
});

it("says so when nothing can settle the promise of a program", { timeout: 60_000 }, () => {
  const never = join(folder, "never.mjs");
  writeFileSync(never, "export default () => new Promise(() => {});");
  const { code, err } = end("bash", "-c", `${chorale} check ${quote(never)}`);
  expect([code, err]).toEqual([1, expect.stringMatching(/^chorale: nothing can settle the promise/)]);
});
