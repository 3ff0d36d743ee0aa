/**
 * All cases of which the suite takes a spread: runs with CHORALE_FULL=1 every test file that asks for it, by
 * test/support/spread.ts or by itself. `npm run cases:full -- src/runtime` takes those below a folder; some 20 minutes of CPU for
 * all of them.
 */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const wanted = process.argv.slice(2).map((folder) => folder.replace(/^(\.\/)+/, ""));
const files = ["src", "test", "examples"]
  .flatMap((folder) =>
    readdirSync(`${root}${folder}`, { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".test.ts"))
      .map((name) => `${folder}/${name.replaceAll("\\", "/")}`),
  )
  .filter((file) => wanted.length === 0 || wanted.some((folder) => file.startsWith(folder)))
  .filter((file) => /support\/spread\.ts|CHORALE_FULL/.test(readFileSync(`${root}${file}`, "utf8")));
if (files.length === 0) {
  console.error(`no test file below ${wanted.join(", ")} has more cases than the suite takes`);
  process.exit(2);
}
console.log(`${files.length} test files with all of their cases`);
const env = { ...process.env, CHORALE_FULL: "1" };
const vitest = `${root}node_modules/vitest/vitest.mjs`;
const { status } = spawnSync(process.execPath, [vitest, "run", ...files], { cwd: root, env, stdio: "inherit" });
process.exit(status ?? 1);
