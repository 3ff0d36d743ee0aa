import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";
import { UnavailableError } from "../../core/index.ts";
import { makeOwnFolder, removeOwnFolder } from "./owned-files.ts";

const parent = mkdtempSync(join(tmpdir(), "chorale-test-owned-"));
afterAll(() => rmSync(parent, { recursive: true }));
const transpiled = (path: string) => fileURLToPath(new URL(`../../../.cache/dev/${path}`, import.meta.url));

/** Makes two folders in a process of its own, which then does what `end` says. */
function endAfterTwo(end: string): number | null {
  const text = `import { makeOwnFolder } from ${JSON.stringify(transpiled("runtime/memory/owned-files.js"))};
    import { exitNow } from ${JSON.stringify(transpiled("foreign/native/exit.js"))};
    for (const kind of ["chorale-one", "chorale-two"]) makeOwnFolder(${JSON.stringify(parent)}, kind, "trials");
    ${end}`;
  return spawnSync(process.execPath, ["--input-type=module", "-e", text], { stdio: "inherit" }).status;
}

it("own folders are removed when their process exits, and by the next one when it is killed", () => {
  expect(endAfterTwo("process.exit(0);")).toBe(0);
  expect(readdirSync(parent)).toEqual([]);
  // As a command that a stuck thread would keep.
  expect(endAfterTwo("exitNow(3);")).toBe(3);
  expect(readdirSync(parent)).toEqual([]);
  const thrown = 'process.prependListener("exit", () => { throw "thrown on purpose"; });';
  expect(endAfterTwo(`${thrown} exitNow(3);`)).toBe(3);
  expect(endAfterTwo(`${thrown} exitNow(0);`)).toBe(1);
  expect(readdirSync(parent)).toEqual([]);
  endAfterTwo('process.kill(process.pid, "SIGKILL");');
  expect(readdirSync(parent)).toHaveLength(2);
  const mine = makeOwnFolder(parent, "chorale-one", "trials");
  expect(readdirSync(parent)).toHaveLength(2);
  removeOwnFolder(mine);
  expect(readdirSync(parent)).toEqual([expect.stringMatching(/^chorale-two-/)]);
});

it("own folders that cannot be made are told with the way out", () => {
  const make = () => makeOwnFolder(join(parent, "absent"), "chorale-one", "trials");
  expect(make).toThrow(UnavailableError);
  expect(make).toThrow(/a folder for trials in .*absent is not available: ENOENT.*Set TMPDIR/);
});
