import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import {
  machineFile,
  readMachineFile,
  readUsedMachineFile,
  removeMachineFile,
  requireWritable,
  STORE_SCHEMA_VERSION,
  thisMachine,
  writeMachineSection,
} from "./machine-store.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-store-"));
afterAll(() => rmSync(folder, { recursive: true }));

const section = (data: unknown) => ({ chorale: "0.1.0", date: "2026-01-02", data });

describe("the machine's file", () => {
  it("lies where CHORALE_CHOICES says, or below the user's data, under the machine's key", () => {
    expect(machineFile({ CHORALE_CHOICES: "shipped" })).toBeUndefined();
    expect(machineFile({ CHORALE_CHOICES: "/a/b.json" })).toBe("/a/b.json");
    expect(machineFile({ XDG_DATA_HOME: "/data" })).toBe(`/data/chorale/machines/${thisMachine().key}.json`);
    expect(machineFile({})).toMatch(/\.local.share.chorale.machines/);
    expect(thisMachine().key).toMatch(/^[a-z0-9_]+-[a-z0-9-]+-\d+c$/);
  });

  it("is checked before anything is measured: what it replaces, and that it can be written", () => {
    const plan = join(folder, "plan.json");
    writeFileSync(plan, '{ "schemaVersion": 1, "name": "ring" }');
    expect(() => requireWritable(plan)).toThrow(/plan\.json"; expected a new file, or one that `chorale tune` wrote/);
    expect(() => requireWritable(join(plan, "below.json"))).toThrow(
      /expected one that can be written \(E[A-Z]+.*CHORALE/,
    );
    requireWritable(join(folder, "made", "new.json"));
    expect(readdirSync(join(folder, "made"))).toEqual([]);
  });

  it("keeps its sections apart, is replaced whole, and is removed", () => {
    const path = join(folder, "new", "machine.json");
    expect(readMachineFile(path)).toBeUndefined();
    writeMachineSection(path, "choices", section([1]));
    writeMachineSection(path, "cpuCosts", section({ a: 2 }));
    writeMachineSection(path, "choices", section([3]));
    expect(readMachineFile(path)).toEqual({
      schemaVersion: STORE_SCHEMA_VERSION,
      machine: thisMachine(),
      choices: section([3]),
      cpuCosts: section({ a: 2 }),
    });
    expect(readdirSync(join(folder, "new"))).toEqual(["machine.json"]);
    expect([removeMachineFile(path), removeMachineFile(path)]).toEqual([true, false]);
  });

  it("is passed over when it is another machine's, or of another schema", () => {
    const path = join(folder, "other.json");
    writeMachineSection(path, "choices", section([1]));
    const text = readFileSync(path, "utf8");
    for (const other of [
      text.replace(thisMachine().key, "x64-other-64c"),
      text.replace('Version": 1', 'Version": 2'),
    ]) {
      expect(other).not.toBe(text);
      writeFileSync(path, other);
      expect(readMachineFile(path)).toBeUndefined();
    }
  });

  it("is refused when CHORALE_CHOICES names it and nothing of this machine is there", () => {
    const path = join(folder, "named.json");
    const before = process.env["CHORALE_CHOICES"];
    try {
      process.env["CHORALE_CHOICES"] = path;
      expect(() => readUsedMachineFile(path)).toThrow(/CHORALE_CHOICES is ".*named.json"; expected a file .*ENOENT/);
      writeMachineSection(path, "choices", section([1]));
      expect(readUsedMachineFile(path)).toMatchObject({ choices: section([1]) });
      writeFileSync(path, readFileSync(path, "utf8").replace(thisMachine().key, "x64-other-64c"));
      expect(() => readUsedMachineFile(path)).toThrow(/CHORALE_CHOICES .*expected measurements of this machine/);
      delete process.env["CHORALE_CHOICES"];
      expect(readUsedMachineFile(path)).toBeUndefined();
      expect(readUsedMachineFile(join(folder, "absent.json"))).toBeUndefined();
    } finally {
      if (before !== undefined) process.env["CHORALE_CHOICES"] = before;
    }
  });

  it.skipIf(process.platform === "win32")("is refused at once when it is no regular file", () => {
    const path = join(folder, "no-file");
    for (const make of [() => execFileSync("mkfifo", [path]), () => symlinkSync("/dev/zero", path)]) {
      make();
      expect(() => readMachineFile(path)).toThrow(/no-file: is not a regular file/);
      rmSync(path);
    }
    expect(readMachineFile(join(folder, "absent.json"))).toBeUndefined();
  });

  it("is refused by name when it is broken, and what is written then replaces it", () => {
    const path = join(folder, "broken.json");
    const good = { schemaVersion: 1, machine: thisMachine() };
    const nested = JSON.stringify({ ...good, choices: section("DEEP") }).replace(
      '"DEEP"',
      "[".repeat(9000) + "]".repeat(9000),
    );
    for (const text of ["{", "5", "{}", nested, JSON.stringify({ ...good, choices: { date: "2026" } })]) {
      writeFileSync(path, text);
      expect(() => readMachineFile(path), text).toThrow(/broken\.json: .*; expected a new file, or one that/);
    }
    writeMachineSection(path, "choices", section([1]));
    expect(readMachineFile(path)).toMatchObject({ choices: section([1]) });
  });
});
