/**
 * What a test file ends with that has a process of its own. Vitest ends that process by a signal, and kills it half a second
 * later: on a loaded machine before it has removed, as it exits, the folder of the modules that it bundled.
 */
import { readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { ownName } from "../src/runtime/memory/owned-files.ts";

const folder = tmpdir();
afterAll(() => {
  const own = ownName("chorale-modules", "");
  for (const name of readdirSync(folder)) if (name.startsWith(own)) rmSync(join(folder, name), { recursive: true });
});
