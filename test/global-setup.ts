import { fileURLToPath } from "node:url";
import { transpileSources } from "../scripts/transpile.mjs";
import { useFreshTemporaryFolder } from "./support/temporary-folder.ts";

let done = false;

/** Once for all projects: what a test run needs before its first test. */
export default async function setup(): Promise<void> {
  if (done) return;
  done = true;
  useFreshTemporaryFolder();
  // Every process of a run loads the same modules: Node 22 and newer compile them once, which saves a tenth of the CPU time.
  // Without a folder of its own TypeScript's command keeps compiled code in the temporary one, which a run must leave empty.
  process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL("../.cache/compile", import.meta.url));
  // Worker threads and child processes cannot run our TypeScript on Node 20: give them a fresh transpiled copy.
  await transpileSources();
}
