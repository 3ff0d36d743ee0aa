import { transpileSources } from "../scripts/transpile.mjs";

/** Worker threads and child processes cannot run our TypeScript on Node 20: give them a fresh transpiled copy. */
export default async function setup(): Promise<void> {
  await transpileSources();
}
