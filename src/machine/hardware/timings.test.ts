/** How long detection takes. The best of several runs counts: a busy machine makes single ones slow. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { detect, detectOn, openMachine } from "./detect.ts";
import { processRunner } from "./tool-runner.ts";

async function best(runs: number, work: () => Promise<unknown>): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < runs; i++) {
    const begin = performance.now();
    await work();
    least = Math.min(least, performance.now() - begin);
  }
  return least;
}

// Times are what these are about: on a machine that is busy with others all along, another time counts.
describe("detection", { retry: 2 }, () => {
  it("takes less than 100 ms in-process where there is no accelerator", async () => {
    const folder = scratchFolder("bare");
    mkdirSync(join(folder, "proc"));
    writeFileSync(join(folder, "proc/meminfo"), "MemTotal: 65536 kB\n");
    expect(await best(10, () => detect({ root: folder }))).toBeLessThan(100);
    const live = await detect({ exec: false });
    if (live.devices.length === 1) expect(await best(10, () => detect({ exec: false }))).toBeLessThan(100);
  });

  it("of eight GPUs through nvidia-smi is bounded by the slowest call, since all calls run side by side", async () => {
    const tools = fileURLToPath(new URL("../../../test/fixtures/tools/h200", import.meta.url));
    const machine = await openMachine({
      root: fileURLToPath(new URL("../../../test/fixtures/machines/roots/groq-card", import.meta.url)),
    });
    const inner = processRunner({ folders: [tools] });
    let running = 0;
    let most = 0;
    const commands = {
      run: async (request: Parameters<typeof inner.run>[0]) => {
        most = Math.max(most, ++running);
        // Starts only after every probe had its turn, so that calls made one after the other would be seen as such.
        await new Promise((resolve) => setImmediate(resolve));
        try {
          return await inner.run(request);
        } finally {
          running--;
        }
      },
    };
    const inventory = await detectOn({ ...machine, commands });
    expect(inventory.devices.filter((d) => d.family === "nvidia-gpu")).toHaveLength(4);
    // The five calls of nvidia-smi, and those of the other vendors' tools, which are not there.
    expect(most).toBeGreaterThanOrEqual(5);
  });

  it("spawns nothing without execution, on the live machine", async () => {
    const spawned: string[] = [];
    const machine = await openMachine({ exec: false });
    const runner = processRunner({ onSpawn: (path) => spawned.push(path) });
    await detectOn({ ...machine, commands: runner }, { exec: false });
    await detect({ exec: false });
    expect(spawned).toEqual([]);
  });
});
