/**
 * A bounded part of the fuzz: mutated machines always yield a sound inventory. All 20,000 are run by
 * scripts/fuzz-hardware.mjs. CHORALE_FUZZ_SEED sets the first seed, which is printed when one fails.
 */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { loadRoots, machineOf, mutate, problems } from "../../../scripts/mutate-machine.mjs";
import { inventorySchema } from "../topology/index.ts";
import { detectOn } from "./detect.ts";
import { nvmlSnapshotSchema } from "./nvml-snapshot.ts";

const COUNT = 120;
const FIRST_SEED = Number(process.env["CHORALE_FUZZ_SEED"] ?? 1_000_000);
const fixtures = fileURLToPath(new URL("../../../test/fixtures/machines", import.meta.url));

const parseNvml = (value: unknown) => {
  const parsed = nvmlSnapshotSchema.safeParse(value);
  return parsed.success ? parsed.data : undefined;
};

describe("mutated machines", () => {
  const roots = loadRoots([join(fixtures, "roots"), join(fixtures, "real")]);

  it("in memory give what they give on disk", async () => {
    for (const root of roots) {
      const inventory = await detectOn(machineOf(root, parseNvml));
      expect(
        problems(inventory, (value) => inventorySchema.parse(value)),
        root.name,
      ).toEqual([]);
      expect(inventory.devices.length, root.name).toBeGreaterThan(0);
    }
  });

  it(`always yield a sound inventory (${COUNT} from seed ${FIRST_SEED})`, async () => {
    const unsound: string[] = [];
    for (let seed = FIRST_SEED; seed < FIRST_SEED + COUNT; seed++) {
      const root = roots[seed % roots.length];
      if (root === undefined) throw new Error("no fixtures");
      const before = process.cpuUsage();
      const inventory = await detectOn(machineOf(mutate(root, seed), parseNvml));
      const found = problems(inventory, (value) => inventorySchema.parse(value));
      if (process.cpuUsage(before).user > 5e6) found.push("took more than 5 s of a core");
      if (found.length > 0) unsound.push(`seed ${seed} (${root.name}): ${found.join("; ")}`);
    }
    expect(unsound).toEqual([]);
  }, 60_000);
});
