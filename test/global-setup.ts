import { transpileSources } from "../scripts/transpile.mjs";
import { useFreshTemporaryFolder } from "./support/temporary-folder.ts";

let done = false;

/** Once for all projects: what a test run needs before its first test. */
export default async function setup(): Promise<void> {
  if (done) return;
  done = true;
  useFreshTemporaryFolder();
  // Worker threads and child processes cannot run our TypeScript on Node 20: give them a fresh transpiled copy.
  await transpileSources();
}
