import { transpileSources } from "../scripts/transpile.mjs";
import { useFreshTemporaryFolder } from "./support/temporary-folder.ts";

let done = false;

/** Once for all projects: what a test run needs before its first test. */
export default async function setup(): Promise<void> {
  if (done) return;
  done = true;
  useFreshTemporaryFolder();
  // TypeScript's command keeps V8's compiled code in the temporary folder, which a run must leave empty.
  process.env.NODE_DISABLE_COMPILE_CACHE = "1";
  // Worker threads and child processes cannot run our TypeScript on Node 20: give them a fresh transpiled copy.
  await transpileSources();
}
