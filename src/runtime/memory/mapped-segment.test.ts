import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FormatError, OutOfMemoryError } from "../../core/index.ts";
import { controlBytes } from "./control-layout.ts";
import { sweep } from "./mapped-file.ts";
import { createMappedControl, type MappedControl, openMappedControl, removeMappedControl } from "./mapped-segment.ts";

const world = { ranks: 2, generation: 3 };
const hasMmap = process.platform === "linux" || process.platform === "darwin";
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "chorale-mapped-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function open(control: MappedControl, attach = false) {
  return openMappedControl(control, world, { attach });
}

describe.skipIf(!hasMmap)("the control segment of processes (needs mmap)", () => {
  it("is one memory for everybody who opens it", () => {
    const control = createMappedControl(world, [folder]);
    const [a, b] = [open(control), open(control)];
    const group = { name: "world", ranks: [0, 1] };
    const sender = a.segment.group(group.name, group.ranks, 0, 0);
    const receiver = b.segment.group(group.name, group.ranks, 0, 1);
    sender.publish({ kind: "collective" }, 0, { call: 1, count: 2, hash: 3 });
    expect(receiver.read(0, { kind: "collective" }, 0)).toEqual({ call: 1, count: 2, hash: 3 });
    expect(a.segment.fail({ code: "RANK_FAILED", rank: 1, generation: 3, cause: "died" })).toBe(true);
    expect(b.segment.fail({ code: "ABORTED", reason: "late" })).toBe(false);
    expect(b.segment.failure).toMatchObject({ code: "RANK_FAILED", rank: 1, cause: "died" });
    for (const one of [a, b]) one.close();
  });

  it("belongs to its user alone, is reserved whole, and holds what it says", () => {
    const control = createMappedControl({ ranks: 4, generation: 1 }, [folder]);
    const { mode, size, blocks } = statSync(control.path);
    expect(mode & 0o777).toBe(0o600);
    expect(size).toBe(4096 + controlBytes(4));
    // A folder that fills later ends nobody.
    expect(blocks * 512).toBeGreaterThanOrEqual(size);
  });

  it("has no name any more when the last rank has come", () => {
    const control = createMappedControl(world, [folder]);
    const watcher = open(control);
    const first = open(control, true);
    expect(existsSync(control.path)).toBe(true);
    const second = open(control, true);
    expect(readdirSync(folder)).toEqual([]);
    second.segment.fail({ code: "ABORTED", reason: "still shared" });
    expect(watcher.segment.failure).toEqual({ code: "ABORTED", reason: "still shared" });
    removeMappedControl(control);
    for (const one of [watcher, first, second]) one.close();
  });

  it("reads as empty after its end, however late somebody looks", () => {
    const opened = open(createMappedControl(world, [folder]));
    const group = opened.segment.group("world", [0, 1], 0, 0);
    opened.segment.fail({ code: "ABORTED", reason: "x" });
    opened.close();
    opened.close();
    expect(opened.segment.failed).toBe(false);
    expect(group.failed).toBe(false);
    expect(opened.segment.groups()).toEqual([]);
    group.publish({ kind: "collective" }, 0, { call: 1, count: 1, hash: 1 });
  });

  it("goes to the next folder when there is no room, and says why when there is none", () => {
    expect(createMappedControl(world, [join(folder, "absent"), folder]).path.startsWith(folder)).toBe(true);
    expect(() => createMappedControl(world, [join(folder, "absent")])).toThrow(OutOfMemoryError);
    expect(() => createMappedControl(world, [join(folder, "absent")])).toThrow("--shm-size");
    // Larger than any disk: nothing may be begun there.
    expect(() => createMappedControl({ ranks: 200_000, generation: 1 }, [folder])).toThrow(OutOfMemoryError);
  });

  it.each<[string, (control: MappedControl) => MappedControl | undefined, string]>([
    [
      "a name that is none",
      () => ({ ...{ kind: "mapped", sizeBytes: 4096 + controlBytes(2) }, path: "/etc/passwd" }),
      "name",
    ],
    ["a file that is gone", (c) => void rmSync(c.path), "no such file"],
    ["a link to it", (c) => link(c, symlinkSync), "ELOOP"],
    ["a second name of it", (c) => link(c, linkSync), "second name"],
    ["a folder", (c) => ({ ...c, path: folderNamed(c) }), "EISDIR"],
    ["a pipe", (c) => ({ ...c, path: pipeNamed(c) }), "it is not a file"],
    ["a file that others may open", (c) => void chmodSync(c.path, 0o644), "mode 644"],
    ["a short file", (c) => void truncateSync(c.path, 8192), "8192 bytes instead of"],
    ["an empty file", (c) => void truncateSync(c.path, 0), "0 bytes instead of"],
    ["a long file", (c) => void truncateSync(c.path, c.sizeBytes + 1), "instead of"],
    ["another size in its name", (c) => ({ ...c, sizeBytes: c.sizeBytes + 4096 }), "cannot hold 2 ranks"],
    ["another beginning", (c) => void writeAt(c, 0, "x"), "does not begin as one"],
    ["another key", (c) => void writeAt(c, 10, "not this"), "its key is another"],
    ["another number of ranks", (c) => void writeAt(c, 24, "\x05"), "of 5 ranks"],
    ["another generation", (c) => void writeAt(c, 28, "\x09"), "generation 9"],
    ["another size inside", (c) => void writeAt(c, 32, "x"), "size"],
    ["random bytes", (c) => void writeFileSync(c.path, Buffer.alloc(c.sizeBytes, 0xa5)), "does not begin as one"],
    ["another magic behind the header", (c) => void writeAt(c, 4096, "evil"), "no control segment"],
  ])("refuses %s", (_, spoil, why) => {
    const control = createMappedControl(world, [folder]);
    const spoilt = spoil(control) ?? control;
    expect(() => open(spoilt)).toThrow(FormatError);
    expect(() => open(spoilt)).toThrow(why);
  });

  it("is removed by the next maker when its maker was killed, and only then", async () => {
    const file = fileURLToPath(new URL("../../../.cache/dev/runtime/memory/mapped-segment.js", import.meta.url));
    const code = `import { createMappedControl } from ${JSON.stringify(file)};
      console.log(createMappedControl(${JSON.stringify(world)}, [${JSON.stringify(folder)}]).path);
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", code], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [path] = (await once(child.stdout, "data")) as [Buffer];
    const theirs = basename(path.toString().trim());
    const own = createMappedControl(world, [folder]);
    expect(sweep(folder)).toEqual([]);
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
    // Names of other machines, of live processes, and of anything else are left alone.
    const strange = [theirs.replace(/^chorale-.{8}/, "chorale-00000000"), "chorale-x", "other"];
    for (const name of strange) writeFileSync(join(folder, name), "");
    const next = createMappedControl(world, [folder]);
    expect(readdirSync(folder).toSorted()).toEqual([...strange, basename(own.path), basename(next.path)].toSorted());
  });

  it("does not take a process that has the number of a dead one for it", () => {
    const control = createMappedControl(world, [folder]);
    const [, machine = "", pid, start = ""] = /^chorale-(\w+)-(\d+)-(\d+)-/.exec(basename(control.path)) ?? [];
    const nonce = "ab".repeat(16);
    const reused = `chorale-${machine}-${pid}-${Number(start) - 1}-${nonce}`;
    writeFileSync(join(folder, reused), "");
    expect(process.platform === "linux" ? sweep(folder) : [reused]).toEqual([reused]);
    expect(existsSync(control.path)).toBe(true);
  });
});

function link(control: MappedControl, how: (target: string, path: string) => void): MappedControl {
  const path = control.path.replace(/.{4}$/, "0000");
  how(control.path, path);
  return { ...control, path };
}

function folderNamed({ path }: MappedControl): string {
  rmSync(path);
  spawnSync("mkdir", [path]);
  return path;
}

function pipeNamed({ path }: MappedControl): string {
  rmSync(path);
  spawnSync("mkfifo", ["-m", "600", path]);
  return path;
}

function writeAt({ path }: MappedControl, position: number, text: string): void {
  writeSync(openSync(path, "r+"), text, position, "latin1");
}
