import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { presetInventory } from "../topology/index.ts";
import { resolveHardware } from "./resolve-hardware.ts";

const roots = fileURLToPath(new URL("../../../test/fixtures/machines/roots", import.meta.url));

describe("--hardware", () => {
  it("takes a preset, a composition, an inventory file and a recorded root", async () => {
    const count = async (text: string) =>
      (await resolveHardware(text)).devices.filter((d) => d.family !== "cpu").length;
    expect(await count("hgx-h100-8")).toBe(8);
    expect(await count("16x hgx-h100-8 --nic 8xNDR")).toBe(128);
    expect(await count(join(roots, "gaudi3-8"))).toBe(8);
    const file = join(scratchFolder("hardware"), "machine.json");
    writeFileSync(file, JSON.stringify(presetInventory("mi300x-8")));
    expect(await resolveHardware(file)).toEqual(presetInventory("mi300x-8"));
  });

  it("says what is accepted, and which field of a file is wrong", async () => {
    await expect(resolveHardware("hgx-z100-8")).rejects.toThrow(
      /inventory file or XML of NCCL or RCCL, a recorded root/,
    );
    await expect(resolveHardware("4x hgx-z100-8")).rejects.toThrow(/hgx-h100-8/);
    await expect(resolveHardware("4x hgx-h100-8 --nic 8xFAST")).rejects.toThrow(/8xNDR/);
    const file = join(scratchFolder("hardware"), "machine.json");
    writeFileSync(file, JSON.stringify({ ...presetInventory("l4"), schemaVersion: 99 }));
    await expect(resolveHardware(file)).rejects.toThrow(/schemaVersion/);
    writeFileSync(file, "nonsense");
    await expect(resolveHardware(file)).rejects.toThrow(/machine.json: is not valid JSON/);
  });
});
