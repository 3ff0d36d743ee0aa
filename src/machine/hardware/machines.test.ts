/** Every recorded machine yields exactly the inventory that was written down beside it, warnings included. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { type Inventory, inventorySchema, type Link } from "../topology/index.ts";
import { detect } from "./detect.ts";

const folder = fileURLToPath(new URL("../../../test/fixtures/machines", import.meta.url));
/** `roots` are described machines (make.mjs writes them), `real` are recordings. */
const names = ["roots", "real"]
  .flatMap((kind) => readdirSync(join(folder, kind)).map((name) => `${kind}/${name}`))
  .sort();

interface Expected {
  readonly sources: readonly string[];
  readonly deviations: string;
  readonly devices: Inventory["devices"];
  readonly nodes: readonly (readonly [string, string])[];
  readonly links: readonly Link[];
  readonly pairs: NonNullable<Inventory["topology"]["pairs"]>;
  readonly environment: Inventory["environment"];
  readonly warnings: Inventory["warnings"];
  readonly nics?: readonly { readonly name: string; readonly details: unknown }[];
}

/** Links have no direction and no order. */
function sorted(links: readonly Link[]): unknown[] {
  return links
    .map(({ a, b, ...facts }) => ({ ends: [a, b].sort().join(" "), ...facts }))
    .sort((x, y) => `${x.ends} ${x.kind}`.localeCompare(`${y.ends} ${y.kind}`));
}

function pairsSorted(pairs: Expected["pairs"]): unknown[] {
  return [...pairs].sort((x, y) => `${x.a} ${x.b}`.localeCompare(`${y.a} ${y.b}`, "en", { numeric: true }));
}

function warningsSorted(warnings: Inventory["warnings"]): unknown[] {
  return [...warnings].sort((x, y) => `${x.source} ${x.message}`.localeCompare(`${y.source} ${y.message}`));
}

describe("recorded machines", () => {
  it("are at least forty, each citing what it follows", () => {
    expect(names.length).toBeGreaterThanOrEqual(40);
    for (const name of names) {
      const expected = JSON.parse(readFileSync(join(folder, name, "expected.json"), "utf8")) as Expected;
      expect(expected.sources.length, name).toBeGreaterThan(0);
      expect(expected.deviations.length, name).toBeGreaterThan(3);
    }
  });

  it.each(names)("%s", async (name) => {
    const root = join(folder, name);
    const expected = JSON.parse(readFileSync(join(root, "expected.json"), "utf8")) as Expected;
    const inventory = await detect({ root });
    expect(inventorySchema.parse(inventory)).toEqual(inventory);
    expect(inventory.devices).toEqual(expected.devices);
    expect(warningsSorted(inventory.warnings)).toEqual(warningsSorted(expected.warnings));
    expect(inventory.topology.nodes.map(({ id, kind }) => [id, kind]).sort()).toEqual([...expected.nodes].sort());
    expect(sorted(inventory.topology.links)).toEqual(sorted(expected.links));
    expect(pairsSorted(inventory.topology.pairs ?? [])).toEqual(pairsSorted(expected.pairs));
    expect(inventory.environment).toEqual(expected.environment);
    if (expected.nics !== undefined) {
      const nics = inventory.topology.nodes.filter((node) => node.kind === "nic");
      expect(nics.map(({ name: nic, details }) => ({ name: nic, details }))).toEqual(expected.nics);
    }
  });

  it("the real host says the same through nvidia-smi as through NVML", async () => {
    const root = join(folder, "real/nvidia-h200-4");
    const [nvml, smi] = await Promise.all([
      detect({ root, nvidiaSource: "nvml" }),
      detect({ root, nvidiaSource: "nvidia-smi" }),
    ]);
    // nvidia-smi rounds to MiB and hundredths of a watt, and was called a moment later.
    const rounded = ({ devices }: Inventory) =>
      devices.map((d) => ({
        ...d,
        powerWatts: Math.round(d.powerWatts ?? 0),
        memoryFreeBytes: Math.round((d.memoryFreeBytes ?? 0) / 1024 ** 2),
      }));
    expect(rounded(smi)).toEqual(rounded(nvml));
    expect(smi.topology).toEqual(nvml.topology);
    expect(smi.warnings).toEqual(nvml.warnings);
  });
});
