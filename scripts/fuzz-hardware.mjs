/**
 * The full fuzz of detection: mutated machines, by default 20,000, each of which must yield a sound inventory.
 *   node scripts/fuzz-hardware.mjs [COUNT] [FIRST_SEED] [LIBRARY]    LIBRARY: folder of the built package (default dist)
 */
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { loadRoots, machineOf, mutate, problems } from "./mutate-machine.mjs";

const count = Number(process.argv[2] ?? 20_000);
const first = Number(process.argv[3] ?? 1);
const library = resolve(process.argv[4] ?? fileURLToPath(new URL("../dist", import.meta.url)));
const { detectOn, nvmlSnapshotSchema } = await import(pathToFileURL(join(library, "machine/hardware/index.js")).href);
const { inventorySchema } = await import(pathToFileURL(join(library, "machine/topology/index.js")).href);

const fixtures = fileURLToPath(new URL("../test/fixtures/machines/", import.meta.url));
const roots = loadRoots([join(fixtures, "roots"), join(fixtures, "real")]);
const parseNvml = (value) => {
  const parsed = nvmlSnapshotSchema.safeParse(value);
  return parsed.success ? parsed.data : undefined;
};
const begin = performance.now();
let slowest = { ms: 0 };
let peak = 0;
let failed = 0;
let warned = 0;
for (let seed = first; seed < first + count; seed++) {
  const root = roots[seed % roots.length];
  const from = performance.now();
  let found;
  try {
    const inventory = await detectOn(machineOf(mutate(root, seed), parseNvml), {});
    if (inventory.warnings.length > 0) warned++;
    found = problems(inventory, (value) => inventorySchema.parse(value));
  } catch (error) {
    found = [`threw ${error?.stack ?? error}`];
  }
  const ms = performance.now() - from;
  if (ms > slowest.ms) slowest = { ms, seed, name: root.name };
  if (ms > 5000) found.push(`took ${ms.toFixed(0)} ms`);
  if (seed % 64 === 0) peak = Math.max(peak, process.memoryUsage().rss);
  if (found.length > 0) {
    failed++;
    if (failed <= 20) console.log(`seed ${seed} (${root.name}): ${found.slice(0, 3).join("; ")}`);
  }
}
const seconds = (performance.now() - begin) / 1000;
console.log(
  `${count} machines from seed ${first}, ${failed} unsound, ${warned} with warnings; ${seconds.toFixed(1)} s, slowest ${slowest.ms.toFixed(0)} ms (seed ${slowest.seed}, ${slowest.name}), peak RSS ${(peak / 1024 ** 2).toFixed(0)} MiB`,
);
process.exit(failed === 0 ? 0 : 1);
