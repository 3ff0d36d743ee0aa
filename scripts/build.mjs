/**
 * Builds dist/ from an empty folder: JavaScript and declarations with the native tsc (the older one, which is here for its
 * API, takes five times as long), each room as few files, and the plans that come compiled. With `--unchecked`,
 * as tests do, types are not checked, which takes more than half of the time: `npm run typecheck` does.
 */
import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { writeBuiltPlans } from "./built-plans.mjs";
import { bundleRooms } from "./bundle-rooms.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const isUnchecked = process.argv.includes("--unchecked");
rmSync(`${root}dist`, { recursive: true, force: true });
const { status } = spawnSync(
  process.execPath,
  [
    `${root}node_modules/@typescript/native/bin/tsc`,
    "-p",
    `${root}tsconfig.build.json`,
    ...(isUnchecked ? ["--noCheck"] : []),
  ],
  { stdio: "inherit" },
);
if (status !== 0) process.exit(status ?? 1);
await bundleRooms();
await writeBuiltPlans(`${root}dist`, [`${root}dist`]);
